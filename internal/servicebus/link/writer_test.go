// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/pipenet"
)

func (s *scene) writer() *link.Writer {
	s.Helper()
	w, err := s.links.Writer(s.Context(), "orders")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { w.Close(context.Background()) })
	return w
}

// add gives w n messages that are due in an hour.
func add(t testing.TB, w *link.Writer, n int, body string) {
	t.Helper()
	for i := range n {
		if !w.Add(&link.ScheduledMessage{MessageID: fmt.Sprint(i), Due: time.Now().Add(time.Hour), Body: []byte(body)}) {
			t.Fatal("the message is too large")
		}
	}
}

// seen is what the SDK shows of a message.
func seen(m *azservicebus.ReceivedMessage) string {
	return fmt.Sprint(m.MessageID, *m.Subject, *m.ContentType, string(m.Body), m.State, m.EnqueuedTime, m.ScheduledEnqueueTime,
		m.TimeToLive, m.ApplicationProperties, m.CorrelationID, m.To, m.ReplyTo, m.SessionID, m.PartitionKey)
}

func TestAWriterSchedulesAsTheSDKDoes(t *testing.T) {
	play(t, func(s *scene) {
		due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		w := s.writer()
		if !w.Add(&link.ScheduledMessage{MessageID: "m", Subject: "each", ContentType: "application/json", Due: due, Body: []byte(`{"a":1}`)}) {
			t.Fatal("the message is too large")
		}
		if err := w.Flush(s.Context()); err != nil {
			t.Fatal(err)
		}
		client := s.ns.Client(s.T)
		sender, err := client.NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.SendMessage(s.Context(), &azservicebus.Message{
			MessageID: to.Ptr("m"), Subject: to.Ptr("each"), ContentType: to.Ptr("application/json"), ScheduledEnqueueTime: &due, Body: []byte(`{"a":1}`),
		}, nil); err != nil {
			t.Fatal(err)
		}
		receiver, err := client.NewReceiverForQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := receiver.PeekMessages(s.Context(), 10, nil)
		if err != nil || len(got) != 2 {
			t.Fatalf("peek = %d messages, %v, want both", len(got), err)
		}
		if diff := cmp.Diff(seen(got[1]), seen(got[0])); diff != "" {
			t.Errorf("the SDK's message and the writer's: %s", diff)
		}
	})
}

// The AMQP client does not see what the writer exchanges with the peer, but it has to know that the peer lives; credit and
// windows come anew.
func TestAWriterLastsAsLongAsItIsUsed(t *testing.T) {
	play(t, func(s *scene) {
		w := s.writer()
		for i := range 600 {
			add(t, w, 10, "x")
			if err := w.Flush(s.Context()); err != nil {
				t.Fatalf("flush %d: %v", i, err)
			}
			time.Sleep(time.Second)
		}
		if n := s.orders.Counts().Scheduled; n != 6000 {
			t.Errorf("%d messages, want 6000", n)
		}
		time.Sleep(time.Hour) // with nothing but keep-alives, and tokens that expire
		add(t, w, 1, "x")
		if err := w.Flush(s.Context()); err != nil {
			t.Errorf("after an hour: %v", err)
		}
	})
}

func TestAWriterCutsWhatIsLargerThanAFrame(t *testing.T) {
	play(t, func(s *scene) {
		w := s.writer()
		body := strings.Repeat("0123456789", 20_000)
		add(t, w, 3, body)
		if err := w.Flush(s.Context()); err != nil {
			t.Fatal(err)
		}
		for _, v := range s.orders.Peek(nil, 0, 10) {
			if !bytes.Contains(v.Body, []byte(body)) {
				t.Errorf("a body of %d bytes, want one of %d", len(v.Body), len(body))
			}
		}
		if w.Add(&link.ScheduledMessage{Body: make([]byte, 2<<20)}) {
			t.Error("taken, though the queue does not take it")
		}
	})
}

// Whatever goes wrong, a flush does not say that all is accepted, it ends, and the writer is of no more use.
func TestAWriterThatFailsSaysSo(t *testing.T) {
	for name, hurt := range map[string]func(*scene){
		"throttled": func(s *scene) {
			s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Error: broker.ServerBusy(), Times: 1})
		},
		"unanswered": func(s *scene) {
			s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Silent: true, Times: 1})
		},
		"cut":     func(s *scene) { s.ns.Net.Cut() },
		"stalled": func(s *scene) { s.ns.Net.Stall(pipenet.Both) },
		"deleted": func(s *scene) {
			if err := s.ns.Broker.Default().DeleteQueue("orders"); err != nil {
				s.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.ns.Net.Delay(pipenet.Both, time.Millisecond)
				w := s.writer()
				add(t, w, 2, "x")
				if err := w.Flush(s.Context()); err != nil || w.Err() != nil {
					t.Fatalf("before: %v, %v", err, w.Err())
				}
				hurt(s)
				synctest.Wait()
				add(t, w, 2, "x")
				ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
				defer cancel()
				if err := w.Flush(ctx); err == nil || w.Err() == nil {
					t.Errorf("Flush = %v, then Err = %v, want errors", err, w.Err())
				}
				cancel()
				w.Close(ctx)
			})
		})
	}
}

func TestThereIsNoWriterForWhatIsNotThere(t *testing.T) {
	play(t, func(s *scene) {
		if _, err := s.links.Writer(s.Context(), "nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("Writer = %v, want an error that names the queue", err)
		}
	})
}
