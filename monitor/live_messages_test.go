// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/racetest"

	"github.com/google/go-cmp/cmp"
)

// Live messages stand around overdue ones, and before them. The monitor gives back each message
// that it has to touch on its way, as it was.
func TestLiveMessagesAreNotDisturbed(t *testing.T) {
	for _, mode := range []struct {
		name   string
		expiry queue.Expiry
		stamp  bool // without a time-to-live the monitor has to scan for the message
	}{
		{"lazy", queue.Lazy, true},
		{"lazy-head", queue.LazyHead, true},
		{"eager", queue.Eager, true},
		{"by hand", queue.Lazy, false},
	} {
		t.Run(mode.name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.stamp = mode.stamp
				s.MeasureClock()
				s.startMonitor()
				live, overdue := racetest.Sized(1000, 300), racetest.Sized(100, 30)
				for i := range live {
					s.send(workQueue, fmt.Sprint("live-", i), ttl(time.Hour))
					if i%(live/overdue) == live/overdue/2 {
						s.send(workQueue, fmt.Sprint("overdue-", i), "", "Overdue-Within", `"3s"`)
					}
				}
				before := livingOf(s)
				time.Sleep(15 * time.Second)

				after := livingOf(s)
				if len(after) != live {
					s.Errorf("%d live messages are left, want %d", len(after), live)
				}
				if diff := cmp.Diff(before, after); diff != "" {
					s.Errorf("the live messages changed (-before +after):\n%s", diff)
				}
				dead := s.Dead(workQueue)
				if len(dead) != overdue {
					s.Errorf("%d dead letters, want %d", len(dead), overdue)
				}
				want := "TTLExpiredException"
				if !mode.stamp {
					want = "DeadlineExceeded"
				}
				for _, m := range dead {
					if due := m.EnqueuedTime.Add(3 * time.Second); m.DeadLetterReason != want || m.DeadLetteredTime.Before(due) || m.DeadLetteredTime.After(due.Add(2*time.Second)) {
						s.Errorf("%s: reason %q, %v after its deadline", m.MessageID, m.DeadLetterReason, m.DeadLetteredTime.Sub(due))
					}
				}
				if got := len(s.Hook.Events()); got != overdue {
					s.Errorf("%d events, want %d", got, overdue)
				}
				s.receivableInOrder(live)
			}, func(_ *scene, c *broker.Config) { c.Expiry = mode.expiry })
		})
	}
}

// living is what must not change about a message.
type living struct {
	ID            string
	Number        int64
	DeliveryCount int
	Body          []byte
}

func livingOf(s *scene) []living {
	var out []living
	for _, m := range s.Waiting(workQueue) {
		if bytes.HasPrefix([]byte(m.MessageID), []byte("live-")) {
			out = append(out, living{m.MessageID, m.SequenceNumber, m.DeliveryCount, m.Body})
		}
	}
	return out
}

// receivableInOrder receives the n live messages as a consumer that comes late: all of them,
// unlocked, in the order in which they were sent, on their first delivery.
func (s *scene) receivableInOrder(n int) {
	s.Helper()
	r, err := s.Client.NewReceiverForQueue(workQueue, nil)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = r.Close(s.Context()) }()
	for i := 0; i < n; {
		ms, err := r.ReceiveMessages(s.Context(), n-i, nil)
		if err != nil {
			s.Fatal(err)
		}
		for _, m := range ms {
			if want := fmt.Sprint("live-", i); m.MessageID != want || m.DeliveryCount != 1 {
				s.Fatalf("message %d is %s on delivery %d, want %s on its first", i, m.MessageID, m.DeliveryCount, want)
			}
			i++
		}
	}
}
