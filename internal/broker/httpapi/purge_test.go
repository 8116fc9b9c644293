// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	sdk "github.com/Azure/go-amqp"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

// purgeScene is a namespace with an SDK client and the control handler.
func purgeScene(t *testing.T, disk broker.Disk) (*controlScene, *azservicebus.Client) {
	ns := brokertest.New(t, func(c *broker.Config) {
		*c = broker.Config{
			Disk:   disk,
			Queues: []broker.QueueConfig{{Name: "q"}, {Name: "sessions", RequiresSession: true}},
			Topics: []broker.TopicSetup{{
				TopicConfig:   broker.TopicConfig{Name: "t"},
				Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "s"}}},
			}},
		}
	})
	s := &controlScene{t, ns.Broker, newControl(Config{Broker: ns.Broker})}
	return s, ns.Client(t)
}

func (s *controlScene) sendWith(client *azservicebus.Client, path string, ms ...*azservicebus.Message) {
	s.Helper()
	sender, err := client.NewSender(path, nil)
	if err != nil {
		s.Fatal(err)
	}
	defer sender.Close(s.Context())
	for _, m := range ms {
		if err := sender.SendMessage(s.Context(), m, nil); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *controlScene) deadLetterOne(path string) {
	s.Helper()
	q, _ := s.broker.Queue(path)
	c := q.NewConsumer(queue.PeekLock)
	defer c.Close()
	c.AddCredit(1)
	ds, _, err := c.Take(nil)
	if err != nil || len(ds) != 1 {
		s.Fatalf("taken: %v, %v", ds, err)
	}
	q.Settle(queue.Settlement{Outcome: queue.DeadLetter}, ds[0].LockToken)
}

func (s *controlScene) purged(path string) (lines []string) {
	s.Helper()
	for _, e := range read[[]entityForm](s, "DELETE", path, "") {
		if n := [...]int{e.Active, e.Deferred, e.Scheduled, e.DeadLetter}; n != [4]int{} {
			lines = append(lines, fmt.Sprint(e.Path, " ", n))
		}
	}
	return lines
}

func wantPurged(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the purge of %s: -want +got:\n%s", what, diff)
	}
}

// The client of a purged message hears that its lock is lost, and its receivers go on.
func TestReceiversGoOnAfterAPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := purgeScene(t, nil)
		text := func(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }
		s.sendWith(client, "q", text("locked"), text("deferred"), text("dead"), text("waiting"))
		r, err := client.NewReceiverForQueue("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		var ms []*azservicebus.ReceivedMessage
		for len(ms) < 3 {
			more, err := r.ReceiveMessages(t.Context(), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			ms = append(ms, more...)
		}
		if err := errors.Join(r.DeferMessage(t.Context(), ms[1], nil), r.DeadLetterMessage(t.Context(), ms[2], nil)); err != nil {
			t.Fatal(err)
		}
		soon := time.Now().Add(time.Hour)
		s.sendWith(client, "q", &azservicebus.Message{Body: []byte("scheduled"), ScheduledEnqueueTime: &soon})

		wantPurged(t, "a queue", s.purged("/_overdue/messages/q"), "q [2 1 1 1]")
		var lost *azservicebus.Error
		if err := r.CompleteMessage(t.Context(), ms[0], nil); !errors.As(err, &lost) || lost.Code != azservicebus.CodeLockLost {
			t.Errorf("Complete of a purged message = %v, want %s", err, azservicebus.CodeLockLost)
		}
		s.sendWith(client, "q", text("next"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if ms, err = r.ReceiveMessages(ctx, 1, nil); err != nil || string(ms[0].Body) != "next" {
			t.Fatalf("the next receive = %v, %v; want the message sent after the purge", ms, err)
		}
	})
}

func TestAPurgedSessionStaysLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, client := purgeScene(t, nil)
		id := "a"
		message := func(body string) *azservicebus.Message {
			return &azservicebus.Message{Body: []byte(body), SessionID: &id}
		}
		s.sendWith(client, "sessions", message("1"), message("2"))
		r, err := client.AcceptSessionForQueue(t.Context(), "sessions", id, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.SetSessionState(t.Context(), []byte("state"), nil); err != nil {
			t.Fatal(err)
		}
		wantPurged(t, "everything", s.purged("/_overdue/messages"), "sessions [2 0 0 0]")
		if state, err := r.GetSessionState(t.Context(), nil); err != nil || len(state) > 0 {
			t.Errorf("the state of the session = %q, %v; want none, under the same lock", state, err)
		}
		s.sendWith(client, "sessions", message("3"))
		if ms, err := r.ReceiveMessages(t.Context(), 1, nil); err != nil || string(ms[0].Body) != "3" {
			t.Errorf("received under the lock: %v, %v; want the message sent after the purge", ms, err)
		}
	})
}

func TestAPurgeTakesWhatItsPathNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := purgeScene(t, nil)
		fill := func() {
			for _, path := range []string{"q", "q", "t"} {
				if err := s.send(path, &sdk.Message{Data: [][]byte{[]byte("m")}}); err != nil {
					t.Fatal(err)
				}
			}
			s.deadLetterOne("q")
		}
		for _, test := range []struct {
			path string
			want []string
		}{
			{"q/$DeadLetterQueue", []string{"q/$DeadLetterQueue [0 0 0 1]"}},
			{"Q", []string{"q [1 0 0 1]"}},
			{"t/Subscriptions/s", []string{"t/Subscriptions/s [1 0 0 0]"}},
			{"t", []string{"t/Subscriptions/s [1 0 0 0]"}},
			{"q/$Transfer/$DeadLetterQueue", nil},
			{"", []string{"q [1 0 0 1]", "t/Subscriptions/s [1 0 0 0]"}},
		} {
			fill()
			wantPurged(t, "/"+test.path, s.purged("/_overdue/messages/"+test.path), test.want...)
			s.purged("/_overdue/messages")
		}
		for _, path := range []string{"none", "q/$management", "q/$DeadLetterQueu", "t/Subscriptions/none"} {
			s.ask("DELETE", "/_overdue/messages/"+path, "", http.StatusNotFound)
		}
		s.ask("DELETE", "/_overdue/messages?namespace=t1", "", http.StatusBadRequest)
	})
}

func TestAPurgeIsOnDiskBeforeItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &brokertest.SlowDisk{Prompt: true}
		s, _ := purgeScene(t, disk)
		for range 2 {
			if err := s.send("q", &sdk.Message{Data: [][]byte{[]byte("m")}}); err != nil {
				t.Fatal(err)
			}
		}
		s.deadLetterOne("q")
		disk.Prompt = false
		disk.Steps()
		disk.Until(t, "a purge", func() error {
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, httptest.NewRequest("DELETE", "/_overdue/messages", nil))
			if w.Code != http.StatusOK {
				return fmt.Errorf("status %d: %s", w.Code, w.Body)
			}
			return nil
		})
		if alone, held := disk.Steps(); alone > 0 || held == 0 {
			t.Errorf("the purge of a queue with dead letters took %d steps alone and %d in one piece, want one piece", alone, held)
		}
		disk.Fail(queue.ErrNoRoom)
		s.ask("DELETE", "/_overdue/messages", "", http.StatusServiceUnavailable)
	})
}
