// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/sas"
)

func TestConfigurationErrorsNameWhatIsWrong(t *testing.T) {
	_, err := New(Config{MaxMessageSize: 1, MaxEntities: -1, Expiry: 9, AutoCreateConfig: QueueConfig{MaxSize: -1}})
	for _, want := range []string{"MaxMessageSize", "MaxEntities", "Expiry", "MaxSize"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want it to name %s", err, want)
		}
	}
	_, err = New(Config{Queues: []QueueConfig{
		{Name: "bad name"},
		{Name: "a", LockDuration: -1},
		{Name: "b", DefaultMessageTimeToLive: -1},
		{Name: "c", MaxDeliveryCount: -1},
		{Name: "d"}, {Name: "D"},
	}})
	for _, want := range []string{`"bad name"`, "LockDuration", "DefaultMessageTimeToLive", "MaxDeliveryCount", "entity exists: D"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want it to name %s", err, want)
		}
	}
	if !errors.Is(err, ErrEntityExists) {
		t.Errorf("New = %v, want it to wrap ErrEntityExists", err)
	}
}

func TestQueuesAreFoundWithoutCase(t *testing.T) {
	b, err := New(Config{MaxEntities: 2, Queues: []QueueConfig{{Name: "Orders", MaxDeliveryCount: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, ok := b.Queue("oRDERS"); !ok {
		t.Error("Queue(oRDERS) was not found")
	}
	got, err := b.Default().QueueInfo("orders")
	want := QueueConfig{Name: "Orders", MaxDeliveryCount: 3, LockDuration: queue.DefaultLockDuration,
		DuplicateDetectionHistoryTimeWindow: DefaultDuplicateDetectionWindow}
	if diff := cmp.Diff(want, got.Config); err != nil || diff != "" {
		t.Errorf("QueueInfo(orders), error %v (-want +got):\n%s", err, diff)
	}
	if err := b.AddQueue(QueueConfig{Name: "a"}); err != nil {
		t.Errorf("AddQueue = %v", err)
	}
	if err := b.AddQueue(QueueConfig{Name: "b"}); !errors.Is(err, ErrTooManyEntities) {
		t.Errorf("AddQueue above MaxEntities = %v, want ErrTooManyEntities", err)
	}
	var names []string
	for _, q := range b.Default().Queues() {
		names = append(names, q.Config.Name)
	}
	if got := strings.Join(names, " "); got != "a Orders" {
		t.Errorf("Queues = %s, want a Orders", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.AddQueue(QueueConfig{Name: "c"}); !errors.Is(err, ErrClosed) {
		t.Errorf("AddQueue after Close = %v, want ErrClosed", err)
	}
}

func TestTheClockOfTheBrokerCanBeSkewed(t *testing.T) {
	b, err := New(Config{ClockOffset: -time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if behind := time.Since(b.Now()); behind < time.Hour || behind > time.Hour+time.Minute {
		t.Errorf("Now is %v behind, want an hour", behind)
	}
	b.SetClockOffset(time.Hour)
	if ahead := time.Until(b.Now()); ahead > time.Hour || ahead < time.Hour-time.Minute {
		t.Errorf("Now is %v ahead, want an hour", ahead)
	}
}

func TestEachNamespaceHasAClockOfItsOwn(t *testing.T) {
	b, err := New(Config{Isolate: true, Queues: []QueueConfig{{Name: "q"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ahead, other := b.Namespace("ahead"), b.Namespace("other")
	for _, n := range []*Namespace{ahead, other} {
		if _, err := n.entities.find("q").queue.Send(queue.Message{ScheduledEnqueueTime: b.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	ahead.SetClockOffset(2 * time.Hour)
	for n, want := range map[*Namespace]int{ahead: 1, other: 0} {
		if got := n.entities.find("q").queue.Counts().Active; got != want {
			t.Errorf("%s: %d messages are due, want %d", n.Name(), got, want)
		}
	}
	if d := other.Now().Sub(b.Now()); d < -time.Second || d > time.Second {
		t.Errorf("the other clock is %v off, want none", d)
	}
	if err := ahead.Reset(); err != nil {
		t.Fatal(err)
	}
	if d := ahead.ClockOffset(); d != 0 {
		t.Errorf("after a reset the clock is %v ahead, want none", d)
	}
}

func TestNamespacesAreBounded(t *testing.T) {
	b, err := New(Config{Isolate: true, AutoCreate: true, Queues: []QueueConfig{{Name: "q"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range maxNamespaces - 1 { // with the default one
		if n := b.Namespace(fmt.Sprint("n", i)); n.entities.find("q") == nil {
			t.Fatalf("namespace %d is not like the others", i)
		}
	}
	more := b.Namespace("one too many")
	if more == b.Default() || more.entities.find("q") != nil {
		t.Error("one namespace too many is somebody's")
	}
	if _, err := more.Entity("q"); !errors.Is(err, ErrTooManyEntities) {
		t.Errorf("Entity in one namespace too many = %v, want ErrTooManyEntities", err)
	}
	if b.Namespace("N7") != b.Namespace("n7") {
		t.Error("a namespace that exists is not found any more")
	}
}

func TestRequestsWithoutAKeyMakeNoNamespace(t *testing.T) {
	b, err := New(Config{Isolate: true, Keys: []AuthorizationRule{{KeyName: "k", PrimaryKey: "secret", Manage: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	later := time.Now().Add(time.Hour)
	for _, c := range []struct {
		token string
		want  bool
	}{
		{"", false}, // these in this order: the last makes it
		{"Bearer x", false},
		{sas.Make("k", "wrong", "sb://h/q", later), false},
		{sas.Make("k", "secret", "sb://h/q", time.Now().Add(-time.Hour)), false},
		{sas.Make("k", "secret", "sb://h/q", later), true},
	} {
		if made := b.NamespaceOf("t1.localhost:5673", c.token) != b.Default(); made != c.want {
			t.Errorf("the token %.40q made a namespace: %v, want %v", c.token, made, c.want)
		}
	}
}

func TestASubscriptionDoesNotForwardToItsOwnTopic(t *testing.T) {
	b, err := New(Config{Topics: []TopicSetup{{TopicConfig: TopicConfig{Name: "t"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, to := range []string{"t", "T", "sb://host/t/"} {
		_, err := b.Default().CreateSubscription("t", SubscriptionConfig{Name: "s", ForwardTo: to})
		if !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("a subscription that forwards to %s: %v, want ErrInvalidConfig", to, err)
		}
	}
	if _, err := b.Default().CreateSubscription("t", SubscriptionConfig{Name: "s", ForwardTo: "other"}); err != nil {
		t.Errorf("a subscription that forwards elsewhere: %v", err)
	}
}
