// SPDX-License-Identifier: Apache-2.0

package search

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
)

// scene is a queue orders on fake time, and a view of it.
type scene struct {
	*testing.T
	ns   *brokertest.Namespace
	view *View
	seen []*link.Message // by see
}

// play runs a scene.
func play(t *testing.T, act func(*scene), configure ...func(*broker.QueueConfig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t}
		s.ns = brokertest.New(t, func(c *broker.Config) {
			orders := broker.QueueConfig{Name: "orders"}
			for _, f := range configure {
				f(&orders)
			}
			c.AutoCreate, c.Expiry, c.Queues = false, queue.Lazy, []broker.QueueConfig{orders}
		})
		s.view = &View{Links: s.ns.Links(t), Path: "orders", Operations: operations.New(nil)}
		defer func() { s.view.Close(t.Context()) }()
		act(s)
	})
}

func partitioned(c *broker.QueueConfig) { c.EnablePartitioning = true }

func (s *scene) orders() *queue.Queue {
	q, _ := s.ns.Broker.Queue("orders")
	return q
}

// noData is an encoded message: a data section of no bytes.
var noData = []byte{0x00, 0x53, 0x75, 0xa0, 0x00}

// send sends n messages, each a pause after the one before.
func (s *scene) send(n int, pause time.Duration) {
	s.Helper()
	for range n {
		time.Sleep(pause)
		_, err := s.orders().Send(queue.Message{Body: noData})
		s.must(err)
	}
}

// receive takes the first n messages off the queue.
func (s *scene) receive(n int) {
	s.Helper()
	c := s.orders().NewConsumer(queue.ReceiveAndDelete)
	defer c.Close()
	c.AddCredit(int64(n))
	for taken := 0; taken < n; {
		some, _, _ := c.Take(nil)
		if taken += len(some); len(some) == 0 {
			s.Fatalf("received %d messages, want %d", taken, n)
		}
	}
}

// recreate deletes the queue and makes it again under its name.
func (s *scene) recreate() {
	s.Helper()
	info, err := s.ns.Broker.Default().QueueInfo("orders")
	s.must(err)
	s.must(s.ns.Broker.Default().DeleteQueue("orders"))
	_, err = s.ns.Broker.Default().CreateQueue(info.Config)
	s.must(err)
}

// all are the identities of what waits, in the order of numbers.
func (s *scene) all() (all []Identity) {
	for _, m := range brokertest.Seen(s.orders().Peek(nil, 0, 1<<20)) {
		all = append(all, Identity{m.SequenceNumber, m.EnqueuedTime.UnixMilli()})
	}
	return all
}

func (s *scene) see(m *link.Message) { s.seen = append(s.seen, m) }

// take returns the identities that see got, without repetitions, in the order of numbers.
func (s *scene) take() []Identity {
	var seen []Identity
	for _, m := range s.seen {
		seen = append(seen, IdentityOf(m))
	}
	s.seen = nil
	slices.SortFunc(seen, func(a, b Identity) int { return int(a.Number - b.Number) })
	return slices.Compact(seen)
}

// peeks returns how many peeks act makes.
func (s *scene) peeks(act func()) int {
	before := s.view.Peeks
	act()
	return s.view.Peeks - before
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("unexpected error: %v", err)
	}
}
