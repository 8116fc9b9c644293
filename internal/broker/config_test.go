// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"overdue/internal/queue"
)

func TestConfigurationErrorsNameWhatIsWrong(t *testing.T) {
	_, err := New(Config{MaxMessageSize: 1, MaxQueues: -1, Expiry: 9, AutoCreateConfig: QueueConfig{MaxSize: -1}})
	for _, want := range []string{"MaxMessageSize", "MaxQueues", "Expiry", "MaxSize"} {
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
	for _, want := range []string{`"bad name"`, "LockDuration", "DefaultMessageTimeToLive", "MaxDeliveryCount", "queue exists: D"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want it to name %s", err, want)
		}
	}
	if !errors.Is(err, ErrQueueExists) {
		t.Errorf("New = %v, want it to wrap ErrQueueExists", err)
	}
}

func TestQueuesAreFoundWithoutCase(t *testing.T) {
	b, err := New(Config{MaxQueues: 2, Queues: []QueueConfig{{Name: "Orders", MaxDeliveryCount: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, ok := b.Queue("oRDERS"); !ok {
		t.Error("Queue(oRDERS) was not found")
	}
	got, ok := b.QueueConfig("orders")
	want := QueueConfig{Name: "Orders", MaxDeliveryCount: 3, LockDuration: queue.DefaultLockDuration}
	if !ok || got != want {
		t.Errorf("QueueConfig(orders) = %+v, %v; want %+v", got, ok, want)
	}
	if _, ok := b.QueueConfig("other"); ok {
		t.Error("QueueConfig(other) was found")
	}
	if err := b.AddQueue(QueueConfig{Name: "a"}); err != nil {
		t.Errorf("AddQueue = %v", err)
	}
	if err := b.AddQueue(QueueConfig{Name: "b"}); !errors.Is(err, ErrTooManyQueues) {
		t.Errorf("AddQueue above MaxQueues = %v, want ErrTooManyQueues", err)
	}
	if names := strings.Join(b.QueueNames(), " "); names != "Orders a" {
		t.Errorf("QueueNames = %s, want Orders a", names)
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
