// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/redisstore"
	"overdue/internal/redistest"
)

// besideRedis runs a scene on fake time whose processes share a redis-server.
func besideRedis(t *testing.T, act func(*scene, *redistest.Server), configure ...func(*scene, *broker.Config)) {
	t.Helper()
	r := redistest.Start(t) // outside of the bubble
	configure = append(configure, func(s *scene, _ *broker.Config) {
		s.shared = func() *redisstore.Store { return openRedis(s, r.Addr, 20) }
	})
	play(t, func(s *scene) { act(s, r) }, configure...)
}

// openRedis opens what the processes of a scene share. Bounds are real time; with a slack a busy machine is not taken for a Redis that is gone.
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

// A message that is sent through one sidecar and settled through another takes its companion along.
func TestSettlementThroughAnotherSidecarCancels(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*redistest.Server)
		left int // companions that have to ring
	}{
		"shared":        {func(*redistest.Server) {}, 0},
		"Redis flushed": {func(r *redistest.Server) { r.Must("FLUSHALL") }, 1},
		"Redis killed":  {(*redistest.Server).Kill, 1},
	} {
		t.Run(name, func(t *testing.T) {
			besideRedis(t, func(s *scene, r *redistest.Server) {
				tr := s.traffic()
				other := s.newScheduler(s.counter)
				tr.receiver = tr.consumer(s.atDoor(s.doorOf(s.newProxy(other))), nil)
				s.startMonitor()
				tr.batch(time.Minute, numbered("m", 20)...)
				time.Sleep(3 * time.Second)
				c.fail(r)
				tr.complete(20)
				time.Sleep(15 * time.Second)
				if got := s.waitingCompanions(); got != c.left {
					t.Errorf("%d companions wait after all messages were settled elsewhere, want %d", got, c.left)
				}
				time.Sleep(time.Minute)
				s.settled(time.Second)
				if told := s.hook.subjects(); len(told) != 0 {
					t.Errorf("told of %v, want nobody: all was received in time", told)
				}
			}, early)
		})
	}
}
