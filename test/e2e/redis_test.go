// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
	"overdue/scheduler"
)

// withRedis runs a scene on fake time whose processes share a redis-server.
func withRedis(t *testing.T, act func(*scene, *redistest.Server), configure ...func(*scene, *broker.Config)) {
	t.Helper()
	withSlack(t, 20, act, configure...)
}

// withSlack is withRedis whose bounds are stretched by a factor: they are real time, and a
// busy machine is no Redis that is gone.
func withSlack(t *testing.T, slack float64, act func(*scene, *redistest.Server), configure ...func(*scene, *broker.Config)) {
	t.Helper()
	r := redistest.Start(t) // outside of the bubble
	configure = append(configure, func(s *scene, _ *broker.Config) {
		s.shared = func() *redisstore.Store { return s.OpenRedis(r.Addr, slack) }
	})
	play(t, func(s *scene) { act(s, r) }, configure...)
}

// Two companions stand for one missed message, as when two proxies have slots, and come to two
// monitors. The second comes back to a monitor that was not there when the first notified of it.
// With Redis they notify once; without Redis each of them does.
func TestMonitorsTogetherNotifyOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fail     func(*redistest.Server)
		notified int
	}{
		"shared":        {func(*redistest.Server) {}, 1},
		"Redis flushed": {func(r *redistest.Server) { r.Must("FLUSHALL") }, 2},
		"Redis killed":  {(*redistest.Server).Kill, 2},
	} {
		t.Run(name, func(t *testing.T) {
			withRedis(t, func(s *scene, r *redistest.Server) {
				s.MeasureClock()
				other := s.newScheduler(nil)
				s.Must(other.MeasureClock(s.Context()))
				stop := s.startMonitor()
				s.send(workQueue, "m", ttl(2*time.Second))
				const slot = 20 * time.Millisecond
				end := s.Waiting(workQueue)[0].EnqueuedTime.Add(2*time.Second - 1).Truncate(slot).Add(slot)
				time.Sleep(5 * time.Second)
				if notified := s.Hook.Subjects(); len(notified) != 1 {
					t.Fatalf("notified of %v, want m", notified)
				}
				stop()
				c.fail(r)
				s.startMonitor()
				s.Must(other.Schedule(s.Context(), scheduler.Companion{
					Entity: workQueue, Due: time.Now().Add(time.Second), SlotEnd: end, Lives: []time.Duration{2 * time.Second},
				}))
				time.Sleep(time.Minute)
				s.Settled(time.Second)
				if notified := s.Hook.Subjects(); len(notified) != c.notified {
					t.Errorf("notified %d times, want %d", len(notified), c.notified)
				}
			}, func(s *scene, _ *broker.Config) { s.slots = true })
		})
	}
}

// redisFails is what may happen to a Redis, and what ends it.
var redisFails = map[string]func(r *redistest.Server) (end func()){
	"killed":  func(r *redistest.Server) func() { r.Kill(); return r.Restart },
	"frozen":  func(r *redistest.Server) func() { r.Freeze(); return r.Thaw },
	"flushed": func(r *redistest.Server) func() { r.Must("FLUSHALL"); return func() { r.Must("FLUSHALL") } },
	"a replica": func(r *redistest.Server) func() {
		r.Must("REPLICAOF", "127.0.0.1", "1") // which nobody may write to
		return func() { r.Must("REPLICAOF", "NO", "ONE") }
	},
	"full": func(r *redistest.Server) func() {
		r.Must("CONFIG", "SET", "maxmemory", "1")
		return func() { r.Must("CONFIG", "SET", "maxmemory", "0") }
	},
}

// Deadlines that pass are kept in time and notified, and settled messages are left alone, whatever
// happens to Redis meanwhile.
func TestDeadlinesThatPassWhileRedisFails(t *testing.T) {
	for name, fail := range redisFails {
		for _, slots := range []bool{false, true} {
			if slots && name != "killed" && name != "frozen" {
				continue // which are the two ways: an answer, and none
			}
			t.Run(fmt.Sprintf("%s, slots %v", name, slots), func(t *testing.T) {
				const n = 120
				withSlack(t, .2, func(s *scene, r *redistest.Server) {
					tr := s.traffic()
					other := s.newScheduler(s.counter)
					tr.receiver = tr.consumer(s.clientAt(s.endpointOf(s.newProxy(other))), nil)
					s.startMonitor()
					s.startMonitor()
					end := func() {}
					settled := map[string]bool{}
					due := map[string]time.Time{}
					for i := range n {
						switch i {
						case n / 4:
							end = fail(r)
						case n * 3 / 4:
							end()
						}
						id := fmt.Sprint("m-", i)
						due[id] = time.Now().Add(7 * time.Second)
						tr.send(7*time.Second, id)
						if i%5 == 0 {
							for _, m := range tr.receive(1) {
								tr.Must(tr.receiver.CompleteMessage(tr.Context(), m, nil))
								settled[m.MessageID] = true
							}
						}
						time.Sleep(50 * time.Millisecond)
					}
					time.Sleep(2 * time.Minute)
					s.Settled(time.Second)
					notified := map[string]int{}
					for _, e := range s.Hook.Events() {
						notified[e.Subject]++
						if late := e.Data.DeadLetteredTime.Sub(due[e.Subject]); late < -10*time.Millisecond || late > 250*time.Millisecond {
							t.Errorf("%s was dead-lettered %v after its deadline, want 250ms at most", e.Subject, late)
						}
					}
					for id := range due {
						switch {
						case settled[id] && notified[id] > 0:
							t.Errorf("%s was settled and notified of", id)
						case !settled[id] && notified[id] != 1:
							t.Errorf("%s was notified %d times, want once", id, notified[id])
						}
					}
					if left := len(s.Waiting(workQueue)); left != 0 {
						t.Errorf("%d messages are left on the queue", left)
					}
				}, early, func(s *scene, _ *broker.Config) { s.slots = slots })
			})
		}
	}
}
