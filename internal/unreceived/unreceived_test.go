// SPDX-License-Identifier: Apache-2.0

package unreceived

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"overdue/internal/broker"
	"overdue/internal/broker/quirk"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/bubble"
	"overdue/scheduler"
)

// noticed is how long after the first companion was due a dead monitor is known.
const noticed = unheldPeriod + 3*checkInterval

type scene struct {
	*testing.T
	ns       *brokertest.Namespace
	s        *scheduler.Scheduler
	registry *prometheus.Registry
}

// play runs act on fake time, with a monitor queue that nobody receives from.
func play(t *testing.T, act func(*testing.T, *scene), quirks ...quirk.Set) {
	t.Helper()
	sc := &scene{registry: prometheus.NewRegistry()}
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		sc.T, sc.ns, sc.s = t, ns, s
		if err := s.MeasureClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		act(t, sc)
	}, func(c *broker.Config, _ *scheduler.Config) {
		c.Queues[0].LockDuration, c.Queues[0].MaxDeliveryCount = 10*time.Second, 2000
		for _, q := range quirks {
			c.Quirks |= q
		}
	})
}

// watch starts a watch, whose metrics are on a registry of its own unless it is the first.
func (s *scene) watch() *Watch {
	s.Helper()
	cfg := Config{Links: s.ns.Links(s.T), Queue: bubble.MonitorQueue, Now: func() time.Time { return s.s.Now().Time }, LastDue: func() time.Time { return s.s.LastDue(bubble.MonitorQueue) }}
	cfg.Operations = operations.New(s.registry)
	w, err := New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	Register(s.registry, w)
	s.registry = prometheus.NewRegistry()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Errorf("Run = %v, want nil", err)
		}
	})
	return w
}

// schedule writes n companions that are due after a while.
func (s *scene) schedule(n int, after time.Duration) {
	s.Helper()
	due := s.s.Now().Time.Add(after)
	for i := range n {
		c := bubble.CompanionOf(fmt.Sprint("order-", due.UnixNano(), "-", i), due)
		c.Due = due
		if err := s.s.Schedule(s.Context(), c); err != nil {
			s.Fatal(err)
		}
	}
}

// monitor opens a receiver as a monitor has it.
func (s *scene) monitor() *link.Receiver {
	s.Helper()
	r, err := s.ns.Links(s.T).Receiver(s.Context(), bubble.MonitorQueue)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// serve receives and completes n companions, one in each interval.
func (s *scene) serve(r *link.Receiver, n int, each time.Duration) {
	s.Helper()
	for range n {
		m, err := r.Next(s.Context())
		if err != nil || m == nil {
			s.Fatalf("Next = %v, %v, want a companion", m, err)
		}
		time.Sleep(each)
		if err := r.Complete(s.Context(), m); err != nil {
			s.Fatal(err)
		}
	}
}

// claimsNothing fails if the watch claims anything within d.
func (s *scene) claimsNothing(w *Watch, d time.Duration) {
	s.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		if err := w.Check(s.Context()); err != nil {
			s.Errorf("Check = %v, although a monitor lives", err)
			return
		}
	}
}

func TestCompanionsThatNobodyReceivesAreNoticed(t *testing.T) {
	for _, q := range append([]quirk.Quirk{{Name: "no quirk"}}, quirk.All...) {
		if q.Set == quirk.BatchUnscheduled {
			continue // nothing waits for its time
		}
		t.Run(q.Name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				registry := s.registry
				w := s.watch()
				s.schedule(30, time.Hour)
				s.schedule(7, time.Second)
				time.Sleep(time.Second + noticed)
				err := w.Check(t.Context())
				if err == nil || !strings.HasPrefix(err.Error(), "7 companions due on overdue-monitor, the oldest for ") {
					t.Errorf("Check = %v, want 7 companions due", err)
				}
				const text = `
# HELP overdue_unreceived_companions Companions that are due and that no monitor receives, as far as one check finds them; 0 while monitors receive.
# TYPE overdue_unreceived_companions gauge
overdue_unreceived_companions 7
`
				if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "overdue_unreceived_companions"); err != nil {
					t.Error(err)
				}
				s.serve(s.monitor(), 7, 0)
				time.Sleep(2 * checkInterval)
				if err := w.Check(t.Context()); err != nil {
					t.Errorf("Check = %v after a monitor has received them", err)
				}
			}, q.Set)
		})
	}
}

// The monitor was killed with a companion in hand: its lock lapses, and counts.
func TestAKilledMonitorIsNoticed(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.watch()
		s.schedule(1, time.Second)
		time.Sleep(2 * time.Second)
		r := s.monitor()
		if m, err := r.Next(t.Context()); m == nil || err != nil {
			t.Fatalf("Next = %v, %v, want the companion", m, err)
		}
		r.Close(t.Context())
		time.Sleep(10*time.Second + noticed)
		if err := w.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "1 companion due on ") {
			t.Errorf("Check = %v, want one companion", err)
		}
	})
}

func TestManyWatchesNoticeToo(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		var all []*Watch
		for range 20 {
			all = append(all, s.watch())
		}
		s.schedule(3, time.Second)
		time.Sleep(time.Second + noticed)
		for i, w := range all {
			if err := w.Check(t.Context()); err == nil {
				t.Errorf("watch %d has noticed nothing", i)
			}
		}
		for _, v := range bubble.OnMonitorQueue(t, s.ns) {
			if v.DeliveryCount != 0 {
				t.Errorf("companion %d was delivered %d times: that counts", v.SequenceNumber, v.DeliveryCount)
			}
		}
	})
}

func TestABusyMonitorIsNoDeadOne(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.watch()
		s.schedule(200, time.Second)
		time.Sleep(2 * time.Second)
		r := s.monitor()
		go s.claimsNothing(w, 200*time.Second)
		s.serve(r, 100, time.Second)
		late := s.watch() // sees only the middle of what is behind
		go s.claimsNothing(late, 100*time.Second)
		s.serve(r, 100, time.Second)
	})
}

// A monitor holds a companion whose event waits for a sink.
func TestACompanionInHandIsReceived(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.watch()
		s.schedule(1, time.Second)
		time.Sleep(2 * time.Second)
		r := s.monitor()
		m, err := r.Next(t.Context())
		if m == nil || err != nil {
			t.Fatalf("Next = %v, %v, want the companion", m, err)
		}
		renewer := s.ns.Links(t).Renewer(bubble.MonitorQueue, link.RenewerConfig{
			Now: func() time.Time { return s.s.Now().Time }, Renewed: func(int) {},
			Failed: func(_ int, err error) { t.Errorf("renew: %v", err) }, Lost: func(int) { t.Error("the lock was lost") },
		})
		renewer.Hold(m)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go renewer.Run(ctx)
		s.claimsNothing(w, 10*time.Minute)
	})
}

// With far more companions than one check can peek at.
func TestTheFewThatAreDueAreFoundAmongMany(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.watch()
		receiver := s.ns.Client(t)
		sender, err := receiver.NewSender(bubble.MonitorQueue, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sender.Close(context.Background()) }()
		for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			ms := make([]*azservicebus.Message, 200)
			for i := range ms {
				ms[i] = &azservicebus.Message{Body: []byte("x")}
			}
			if _, err := sender.ScheduleMessages(t.Context(), ms, time.Now().Add(time.Hour), nil); err != nil {
				t.Fatal(err)
			}
			s.schedule(20, time.Second)
			if w.Check(t.Context()) != nil {
				return
			}
		}
		t.Error("4,800 companions are due and nobody receives them, and nobody has noticed")
	})
}

func TestAnIdleProcessDoesNotPeek(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		registry := s.registry
		s.watch()
		time.Sleep(watchPeriod + time.Minute)
		peeks := func() float64 {
			n := 0.0
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if f.GetName() == "overdue_broker_operations_total" {
						n += m.GetCounter().GetValue()
					}
				}
			}
			return n
		}
		before := peeks()
		if before == 0 || before > 18 {
			t.Errorf("%v operations in the first minutes, want one each 12 s", before)
		}
		time.Sleep(time.Hour)
		if n := peeks() - before; n != 0 {
			t.Errorf("%v operations in an idle hour, want none", n)
		}
		s.schedule(1, time.Hour)
		before = peeks()
		time.Sleep(59 * time.Minute)
		if n := peeks() - before; n < 260 || n > 340 {
			t.Errorf("%v operations in an hour with a deadline ahead, want about 300", n)
		}
	})
}

func TestAWatchNeedsItsConfig(t *testing.T) {
	if _, err := New(Config{Queue: "q"}); err == nil {
		t.Error("New without links = nil, want an error")
	}
}
