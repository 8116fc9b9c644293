// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"context"
	"time"

	"overdue/internal/broker"
	"overdue/internal/redisstore"
	"overdue/internal/testing/brokertest"
)

// Companions are the companions that one process of a scene keeps in Redis. They notify the other
// processes as Redis would: a connection that a goroutine reads from stops fake time.
type Companions struct {
	*redisstore.Companions
	wake func()
}

// Put keeps companions, and wakes the workers.
func (c *Companions) Put(ctx context.Context, items []redisstore.Item) error {
	err := c.Companions.Put(ctx, items)
	c.wake()
	return err
}

// GiveBack gives leases back, and wakes the workers.
func (c *Companions) GiveBack(ctx context.Context, l redisstore.Lease) error {
	err := c.Companions.GiveBack(ctx, l)
	c.wake()
	return err
}

// InRedis keeps the companions of a scene in the Redis at addr.
func InRedis[S interface{ Base() *Scene }](addr string) func(S, *broker.Config) {
	return InRedisWithSlack[S](addr, 20)
}

// InRedisWithSlack is InRedis with timeouts that are longer by a factor.
func InRedisWithSlack[S interface{ Base() *Scene }](addr string, slack float64) func(S, *broker.Config) {
	return func(scene S, _ *broker.Config) {
		s := scene.Base()
		var all []*redisstore.Companions
		s.NewStore = func() *Companions {
			c := s.OpenRedis(addr, slack).Companions()
			c.Heard()
			all = append(all, c)
			return &Companions{c, func() {
				for _, c := range all {
					c.Heard()
				}
			}}
		}
	}
}

// OpenRedis opens what a process shares with others. The timeouts of Redis are real time, and a
// busy machine must not look like a Redis that is gone: slack makes them longer. There are enough
// connections that nobody waits for one: go-redis waits with timers that it shares between bubbles.
func (s *Scene) OpenRedis(addr string, slack float64) *redisstore.Store {
	s.Helper()
	a, err := redisstore.ParseAddress("redis://" + addr)
	s.Must(err)
	store, err := redisstore.Open(redisstore.Config{Address: a, Fleet: []string{brokertest.Host, MonitorQueue}, Slack: slack, Connections: 1024})
	s.Must(err)
	s.Cleanup(func() {
		_ = store.Close()           // its server may be gone
		time.Sleep(2 * time.Second) // then its pool checks every second whether it is back
	})
	return store
}

// Settled waits until there is no companion any more.
func (s *Scene) Settled(within time.Duration) {
	s.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		left := s.CompanionsLeft()
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%d companions are left after %v", left, within)
		}
	}
}

// CompanionsLeft is how many companions and notes there are, wherever they are kept.
func (s *Scene) CompanionsLeft() int {
	s.Helper()
	c := s.CompanionsKept()
	return int(c.Waiting + c.Leased)
}

// CompanionsKept counts the companions that wait, that are due, and that failed, wherever they are
// kept.
func (s *Scene) CompanionsKept() redisstore.Counts {
	s.Helper()
	q := s.Queue(MonitorQueue).Counts()
	if s.NewStore == nil {
		return redisstore.Counts{Waiting: int64(q.Scheduled), Leased: int64(q.Active), Dead: int64(q.DeadLetter)}
	}
	if q.Scheduled > 0 {
		s.Errorf("%d messages are scheduled on the monitor queue, want the companions in Redis", q.Scheduled)
	}
	c, err := s.Store.Counts(s.Context())
	s.Must(err)
	return c
}
