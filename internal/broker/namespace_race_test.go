// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/address"
)

// rush calls f from two goroutines at once, n times each, and stops at the first
// error.
func rush(t *testing.T, n int, f func(who, i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for who := range 2 {
		wg.Go(func() {
			for i := range n {
				if err := f(who, i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func newTestBroker(t *testing.T, cfg Config) *Broker {
	t.Helper()
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
	return b
}

func TestOfTwoUpdatesAtOnceOneHolds(t *testing.T) {
	b := newTestBroker(t, Config{Queues: []QueueConfig{{Name: "to"}, {Name: "from"}}})
	n := b.Default()
	for range 500 {
		rush(t, 1, func(who, _ int) error {
			_, err := n.UpdateQueue(QueueConfig{Name: "from", ForwardTo: [...]string{"", "to"}[who]})
			return err
		})
		e := n.entities.find("from")
		forwards, want := e.movers.Load().main != nil, e.common().forwardTo != ""
		if forwards != want {
			t.Fatalf("after two updates the queue forwards: %v, its settings say %v", forwards, want)
		}
	}
}

// A delay that a fault causes ends before its connection counts as closed.
func TestWhatIsLateIsNotLaterThanTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l late
		done := false
		l.after(time.Second, func() {
			time.Sleep(time.Second)
			done = true
		})
		l.after(3*time.Second, func() { t.Error("what was to happen after the end has happened") })
		time.Sleep(1500 * time.Millisecond)
		l.close()
		if !done {
			t.Error("close has not waited for what was being done")
		}
		l.close()
		time.Sleep(time.Minute)
	})
}

// A noted link remembers whether it was detached.
type notedLink struct{ detached atomic.Bool }

func (l *notedLink) Detach(*amqp.Error) { l.detached.Store(true) }

func TestNoLinkOutlivesTheUpdateThatForbidsIt(t *testing.T) {
	b := newTestBroker(t, Config{Queues: []QueueConfig{{Name: "q"}}})
	n := b.Default()
	e := n.entities.find("q")
	for range 2000 {
		var l notedLink
		var refusal *amqp.Error
		rush(t, 1, func(who, _ int) error {
			if who == 0 {
				_, err := n.UpdateQueue(QueueConfig{Name: "q", Status: Disabled})
				return err
			}
			refusal = e.join(&l, address.Address{Name: "q"})
			return nil
		})
		if refusal == nil && !l.detached.Load() {
			t.Fatal("a link receives from a queue that is disabled")
		}
		e.links.remove(&l)
		if _, err := n.UpdateQueue(QueueConfig{Name: "q"}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUpdatesAndDeletionsAtOnceLeaveNothing(t *testing.T) {
	b := newTestBroker(t, Config{Queues: []QueueConfig{{Name: "to"}}})
	n := b.Default()
	rush(t, 500, func(who, i int) error {
		cfg := QueueConfig{Name: "q", ForwardTo: "to", AutoDeleteOnIdle: time.Hour}
		if who == 0 { // errors: the other has deleted it, or not yet
			_, _ = n.CreateQueue(cfg)
			_, err := n.UpdateQueue(cfg)
			if err != nil && !errors.Is(err, ErrEntityNotFound) {
				return fmt.Errorf("update %d = %w, want nil or that the queue is gone", i, err)
			}
			return nil
		}
		_ = n.DeleteQueue("q")
		return nil
	})
}

// Clients that come back at once must not make with AutoCreate what the
// configuration makes otherwise.
func TestResetIsOneStep(t *testing.T) {
	b := newTestBroker(t, Config{AutoCreate: true,
		Queues: []QueueConfig{{Name: "q", RequiresSession: true}},
		Topics: []TopicSetup{{TopicConfig: TopicConfig{Name: "t"}, Subscriptions: []SubscriptionSetup{{SubscriptionConfig: SubscriptionConfig{Name: "s"}}}}}})
	n := b.Default()
	rush(t, 300, func(who, i int) error {
		if who == 0 {
			if err := n.Reset(); err != nil {
				return fmt.Errorf("reset %d = %w, want nil", i, err)
			}
			return nil
		}
		for _, path := range []string{"q", "t", "other"} {
			e, err := n.Entity(path)
			if err != nil {
				return err
			}
			if path == "q" && !e.RequiresSession() {
				return fmt.Errorf("after reset %d the queue is not the one of the configuration", i)
			}
			if path == "t" && (e.Kind() != KindTopic || len(e.subscriptions()) != 1) {
				return fmt.Errorf("after reset %d there is a %v with %d subscriptions, want the topic and its one", i, e.Kind(), len(e.subscriptions()))
			}
		}
		return nil
	})
}
