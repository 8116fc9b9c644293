// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
)

// inStores plays a scene twice: with the companions on the monitor queue, and with them in Redis.
func inStores(t *testing.T, act func(*scene), configure ...func(*scene, *broker.Config)) {
	t.Helper()
	t.Run("monitor queue", func(t *testing.T) { play(t, act, configure...) })
	t.Run("redis", func(t *testing.T) { play(t, act, append(configure, inRedis(redistest.Start(t).Addr))...) })
}

// inRedis has companions kept there.
func inRedis(addr string) func(*scene, *broker.Config) { return inRedisWithSlack(addr, 20) }

// inRedisWithSlack is inRedis whose bounds are stretched by a factor: see withSlack.
func inRedisWithSlack(addr string, slack float64) func(*scene, *broker.Config) {
	return func(s *scene, _ *broker.Config) {
		var all []*redisstore.Companions
		s.newStore = func() *waking {
			c := openRedis(s, addr, slack).Companions()
			c.Heard()
			all = append(all, c)
			return &waking{c, func() {
				for _, c := range all {
					c.Heard()
				}
			}}
		}
	}
}

// notified informs the processes of a scene as Redis would: a connection that somebody listens to
// stops fake time.
type waking struct {
	*redisstore.Companions
	wake func()
}

func (c *waking) Put(ctx context.Context, items []redisstore.Item) error {
	err := c.Companions.Put(ctx, items)
	c.wake()
	return err
}

func (c *waking) GiveBack(ctx context.Context, l redisstore.Lease) error {
	err := c.Companions.GiveBack(ctx, l)
	c.wake()
	return err
}

// inModesAndRedis is inModes, and once more with the companions in Redis.
func inModesAndRedis(t *testing.T, make func(*scene, *broker.Config), act func(*scene)) {
	t.Helper()
	inModes(t, make, act)
	t.Run("redis", func(t *testing.T) { play(t, act, make, inRedis(redistest.Start(t).Addr)) })
}

// openRedis opens what a process of a scene shares.
func openRedis(s *scene, addr string, slack float64) *redisstore.Store {
	s.Helper()
	a, err := redisstore.ParseAddress("redis://" + addr)
	s.must(err)
	store, err := redisstore.Open(redisstore.Config{Address: a, Fleet: []string{"overdue.test", monitorQueue}, Slack: slack})
	s.must(err)
	s.Cleanup(func() {
		_ = store.Close()           // its server may be gone
		time.Sleep(2 * time.Second) // then its pool looks whether it is back, every second until it notices
	})
	return store
}
