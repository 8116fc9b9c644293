// SPDX-License-Identifier: Apache-2.0

package scan

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operations"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/pipenet"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
)

// scene is a queue, and a scan of it.
type scene struct {
	*testing.T
	ns      *brokertest.Namespace
	work    *search.View
	cfg     Config
	targets []*Target
}

// withScan has act see the queue orders of a broker, in which n messages wait, and a scan of it for
// those of some indexes.
func withScan(t *testing.T, n int, sought []int, act func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate, c.Expiry = false, queue.Lazy
			c.Queues = []broker.QueueConfig{{Name: "orders", LockDuration: 5 * time.Second}}
		})
		sender, err := ns.Client(t).NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			id := fmt.Sprint("m-", i)
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{MessageID: &id}, nil); err != nil {
				t.Fatal(err)
			}
		}
		links := ns.Links(t)
		counter := operations.New(prometheus.NewRegistry())
		work := &search.View{Links: links, Path: "orders", Operations: counter}
		defer work.Close(t.Context())
		page, err := work.Peek(t.Context(), 0, n)
		if err != nil || len(page) != n {
			t.Fatalf("%d messages wait, %v, want %d", len(page), err, n)
		}
		r, err := links.BareReceiver(t.Context(), "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close(t.Context())
		var targets []*Target
		for _, i := range sought {
			targets = append(targets, &Target{Identity: search.IdentityOf(page[i]), Deadline: page[i].EnqueuedTime})
		}
		clock := &judge.Clock{Measured: func() scheduler.Instant { return scheduler.Instant{Time: time.Now(), Measured: true} }}
		cfg := Config{Receiver: r, Clock: clock, Operations: counter}
		act(&scene{T: t, ns: ns, work: work, cfg: cfg, targets: targets})
	})
}

func (s *scene) left() (ids []string) {
	s.Helper()
	page, err := s.work.Peek(s.Context(), 0, 100)
	if err != nil {
		s.Fatal(err)
	}
	for _, m := range page {
		ids = append(ids, m.MessageID)
	}
	return ids
}

// A scan ends with the last of its s.targets, not with the queue: what it takes beyond is kept from
// consumers.
func TestAScanEndsWithTheLastOfItsTargets(t *testing.T) {
	withScan(t, 100, []int{1, 2}, func(s *scene) {
		began := time.Now()
		if _, err := Run(s.Context(), s.cfg, s.targets); err != nil {
			s.Fatal(err)
		}
		for _, target := range s.targets {
			if target.Outcome != DeadLettered {
				s.Errorf("outcome of number %d is %v, want that it is dead-lettered", target.Number, target.Outcome)
			}
		}
		if took := time.Since(began); took >= 100*time.Millisecond {
			s.Errorf("it took %v, want no wait for more", took)
		}
	})
}

// A scan dead-letters its s.targets, which it finds before one that a consumer holds, and leaves the
// others as they are.
func TestAScanLeavesTheOthers(t *testing.T) {
	withScan(t, 10, []int{0, 4}, func(s *scene) {
		held, err := s.cfg.Receiver.Next(s.Context(), func() {}) // the first one, as a consumer would
		if err != nil || held == nil {
			s.Fatalf("received %v, %v", held, err)
		}
		r, err := s.ns.Links(s.T).BareReceiver(s.Context(), "orders", nil)
		if err != nil {
			s.Fatal(err)
		}
		defer r.Close(s.Context())
		holder := s.cfg.Receiver
		s.cfg.Receiver = r
		if _, err := Run(s.Context(), s.cfg, s.targets); err != nil {
			s.Fatal(err)
		}
		if s.targets[0].Outcome != NotFound || s.targets[1].Outcome != DeadLettered {
			s.Errorf("outcomes %v and %v, want that the first is not found and the second is dead-lettered", s.targets[0].Outcome, s.targets[1].Outcome)
		}
		if _, err := holder.GiveBack(s.Context(), held); err != nil {
			s.Fatal(err)
		}
		if got, want := fmt.Sprint(s.left()), "[m-0 m-1 m-2 m-3 m-5 m-6 m-7 m-8 m-9]"; got != want {
			s.Errorf("%s are left, want %s", got, want)
		}
	})
}

// A broker that answers slowly delays what is dead-lettered, and nobody else's messages: their locks
// would lapse, which counts a delivery.
func TestLiveMessagesAreReleasedBeforeTheBrokerAnswers(t *testing.T) {
	const overdue, slow, live = 60, 3, 30
	var sought []int
	for i := range overdue {
		sought = append(sought, i)
	}
	sought = append(sought, overdue+live) // behind the live ones
	withScan(t, overdue+live+1, sought, func(s *scene) {
		defer s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSettle, Entity: "orders", Times: slow, Delay: 9 * time.Second})()
		s.ns.Net.Delay(pipenet.Both, time.Millisecond) // so the first batches are on their way
		if _, err := Run(s.Context(), s.cfg, s.targets); err != nil {
			s.Fatal(err)
		}
		page, err := s.work.Peek(s.Context(), s.targets[overdue-1].Number+1, live)
		if err != nil || len(page) != live {
			s.Fatalf("%d messages behind those are left, %v, want %d", len(page), err, live)
		}
		for _, m := range page {
			if m.DeliveryCount != 0 {
				s.Errorf("message %s has been delivered %d times, want 0", m.MessageID, m.DeliveryCount)
			}
		}
	})
}
