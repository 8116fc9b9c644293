// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	brokerqueue "overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
	"overdue/internal/redisstore"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/bubble"
	"overdue/scheduler"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
)

// worker takes leases of companions and keeps them, by message-id.
type worker struct {
	*Intake
	end  func() // ends Run
	stop func() // likewise, and what is in hand

	mu    sync.Mutex
	taken map[string]*Companion
	times int
}

// start runs an intake until stop is called.
func start(t *testing.T, cfg Config) *worker {
	t.Helper()
	w := &worker{taken: map[string]*Companion{}}
	cfg.Clock, cfg.Log, cfg.Outstanding = clock{}, zap.NewNop(), func(string, int) {}
	cfg.Take = func(ctx context.Context, l *Lease) {
		h := w.Open(ctx, l)
		if h == nil {
			return
		}
		h.Add(1)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.taken[h.Content.References[0].MessageID] = h
		w.times++
	}
	w.Intake = New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		w.Run(ctx, work)
		close(ended)
	}()
	w.end = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	w.stop = sync.OnceFunc(func() {
		w.end()
		w.Wait()
		stopWork()
	})
	t.Cleanup(w.stop)
	return w
}

// names returns what was taken, in order.
func (w *worker) names() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.taken {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// of returns the companion that was last taken with that message-id.
func (w *worker) of(name string) *Companion {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken[name]
}

// count returns how often a companion was taken.
func (w *worker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.times
}

func counts(t *testing.T, ns *brokertest.Namespace, name string) brokerqueue.Counts {
	t.Helper()
	q, ok := ns.Broker.Queue(name)
	if !ok {
		t.Fatalf("there is no queue %s", name)
	}
	return q.Counts()
}

func TestACompanionIsSettledOnTheQueueThatItCameFrom(t *testing.T) {
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		for _, name := range []string{"done", "refused", "rewritten", "back"} {
			if err := s.Schedule(t.Context(), bubble.CompanionOf(name, time.Now().Add(time.Second))); err != nil {
				t.Fatal(err)
			}
		}
		w := start(t, Config{Links: ns.Links(t), Scheduler: s, Queues: []string{bubble.MonitorQueue}})
		time.Sleep(2 * time.Second)
		if diff := cmp.Diff([]string{"back", "done", "refused", "rewritten"}, w.names()); diff != "" || len(w.Unattached()) != 0 {
			t.Fatalf("%v is not attached; taken -want +got:\n%s", w.Unattached(), diff)
		}
		// A minute is the lock duration: the locks are renewed meanwhile.
		time.Sleep(3 * time.Minute)
		w.of("done").Done(t.Context(), nil)
		w.of("refused").Refuse(t.Context(), Undeliverable, "no sink")
		later := bubble.CompanionOf("rewritten", time.Now().Add(time.Hour))
		w.of("rewritten").Done(t.Context(), &later)
		w.of("back").HandBack(t.Context(), &later)
		time.Sleep(time.Second)
		if c := counts(t, ns, bubble.MonitorQueue); c.Scheduled != 1 || c.DeadLetter != 1 || c.Active != 1 || w.count() != 5 {
			t.Errorf("%+v, and %d were taken; want one scheduled for later, one dead letter, and one that came again", c, w.count())
		}
		w.of("back").Done(t.Context(), nil)
		w.stop()
		if c := counts(t, ns, bubble.MonitorQueue); c.Active != 0 || len(w.Unattached()) != 1 {
			t.Errorf("%+v are left after the stop, want none; %v is not attached, want the queue", c, w.Unattached())
		}
	})
}

// While a worker that stops still settles, other workers get what becomes due.
func TestAStopGivesTheCreditBack(t *testing.T) {
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		first := start(t, Config{Links: ns.Links(t), Scheduler: s, Queues: []string{bubble.MonitorQueue}})
		time.Sleep(time.Second)
		first.end()
		if err := s.Schedule(t.Context(), bubble.CompanionOf("m", time.Now())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		second := start(t, Config{Links: ns.Links(t), Scheduler: s, Queues: []string{bubble.MonitorQueue}})
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{"m"}, second.names()); diff != "" || len(first.names()) != 0 || first.held.Load() != 0 {
			t.Errorf("the one that stops has taken %v and has %d in hand, want nothing; the other one -want +got:\n%s", first.names(), first.held.Load(), diff)
		}
	})
}

// Nothing goes to a worker that has stopped, even if the broker never takes its credit back.
func TestAStopClosesTheLink(t *testing.T) {
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		first := start(t, Config{Links: ns.Links(t), Scheduler: s, Queues: []string{bubble.MonitorQueue}})
		time.Sleep(time.Second)
		first.stop()
		synctest.Wait()
		if err := s.Schedule(t.Context(), bubble.CompanionOf("m", time.Now())); err != nil {
			t.Fatal(err)
		}
		second := start(t, Config{Links: ns.Links(t), Scheduler: s, Queues: []string{bubble.MonitorQueue}})
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{"m"}, second.names()); diff != "" {
			t.Errorf("the next worker -want +got:\n%s", diff)
		}
	}, func(c *broker.Config, _ *scheduler.Config) { c.Quirks = quirk.DrainUnanswered })
}

// A queue that there was before is emptied for as long as it exists.
func TestAFormerQueueIsReceivedFromUntilItIsGone(t *testing.T) {
	const former = "overdue-monitor-2"
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		c := bubble.CompanionOf("m", time.Now())
		body, _, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		sender, err := ns.Client(t).NewSender(former, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: body}, nil); err != nil {
			t.Fatal(err)
		}
		if err := sender.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := start(t, Config{Links: ns.Links(t), Scheduler: s, Queues: []string{bubble.MonitorQueue}})
		for range 2 {
			w.ReceiveAlso(former)
		}
		w.ReceiveAlso("overdue-monitor-3") // does not exist
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{"m"}, w.names()); diff != "" || len(w.all()) != 2 || len(w.Unattached()) != 0 {
			t.Fatalf("%d queues, %v is not attached, want two and none; taken -want +got:\n%s", len(w.all()), w.Unattached(), diff)
		}
		if got := w.of("m").Queue(); got != former {
			t.Errorf("it came from %s, want %s", got, former)
		}
		w.of("m").Done(t.Context(), nil)
		w.Wait()
		if c := counts(t, ns, former); c.Active != 0 {
			t.Errorf("%+v are left, want none", c)
		}
	}, func(c *broker.Config, _ *scheduler.Config) {
		c.Queues = append(c.Queues, broker.QueueConfig{Name: former})
	})
}

// store has companions that are due, and keeps what becomes of them.
type store struct {
	mu     sync.Mutex
	leases []redisstore.Lease
	fails  error
	how    []string
}

func (s *store) Claim(_ context.Context, _ time.Time, n int) (leases []redisstore.Lease, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.leases))
	leases, s.leases = s.leases[:n], s.leases[n:]
	return leases, 100 * time.Millisecond, s.fails
}

func (*store) Woken() <-chan struct{}                                     { return nil }
func (*store) Notes(context.Context, string, func(redisstore.Item)) error { return nil }
func (s *store) Renew(context.Context) error                              { return s.note("renewed") }

func (s *store) Done(_ context.Context, l redisstore.Lease) error { return s.note(l.ID + " done") }

func (s *store) GiveBack(_ context.Context, l redisstore.Lease) error { return s.note(l.ID + " back") }

func (s *store) Bury(_ context.Context, l redisstore.Lease, reason, _ string) error {
	return s.note(l.ID + " " + reason)
}

func (s *store) LetGo(l redisstore.Lease) { _ = s.note(l.ID + " let go") }

func (s *store) note(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.how = append(s.how, what)
	return nil
}

func TestCompanionsOfAStoreAreClaimedOnceTheClockIsMeasured(t *testing.T) {
	bubble.WithScheduler(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		kept := &store{}
		for i := range 4 {
			c := bubble.CompanionOf(fmt.Sprint("m-", i), time.Now())
			body, _, err := c.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			kept.leases = append(kept.leases, redisstore.Lease{Item: redisstore.Item{ID: fmt.Sprint(i), Body: body}})
		}
		w := start(t, Config{Links: ns.Links(t), Scheduler: s, Queues: []string{bubble.MonitorQueue}, Store: kept})
		time.Sleep(time.Second)
		if got := w.names(); len(got) != 0 || len(w.Unattached()) != 1 {
			t.Fatalf("%v are claimed before the clock is measured, and %v is not attached", got, w.Unattached())
		}
		if err := s.MeasureClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(redisstore.RenewEvery * 3 / 2)
		if diff := cmp.Diff([]string{"m-0", "m-1", "m-2", "m-3"}, w.names()); diff != "" || len(w.Unattached()) != 0 {
			t.Fatalf("%v is not attached; claimed -want +got:\n%s", w.Unattached(), diff)
		}
		w.of("m-0").Done(t.Context(), nil)
		synctest.Wait()
		w.of("m-1").HandBack(t.Context(), &scheduler.Companion{})
		synctest.Wait()
		w.of("m-2").Refuse(t.Context(), Malformed, "")
		synctest.Wait()
		w.of("m-3").lease.LetGo()
		kept.mu.Lock()
		if diff := cmp.Diff([]string{"renewed", "0 done", "1 back", "2 " + Malformed, "3 let go"}, kept.how); diff != "" {
			t.Errorf("the store -want +got:\n%s", diff)
		}
		kept.fails = errors.New("down")
		kept.mu.Unlock()
		time.Sleep(time.Second)
		if len(w.Unattached()) != 1 {
			t.Error("a store that fails counts as attached")
		}
	})
}
