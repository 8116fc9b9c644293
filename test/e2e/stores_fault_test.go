// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/redisstore"
	"overdue/internal/testing/redistest"
)

// durably is a redis-server that has on disk what it has acknowledged.
func durably(t *testing.T) *redistest.Server {
	t.Helper()
	return redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
}

// hasty bounds what is asked of a Redis that does not answer: it is real time, in which nothing
// else happens.
func hasty(addr string) func(*scene, *broker.Config) { return inRedisWithSlack(addr, .05) }

// notifiedOnceEachOf wants events about these messages, one of each, and no other.
func notifiedOnceEachOf(s *scene, ids ...string) {
	s.Helper()
	if notified := s.Hook.Subjects(); !slices.Equal(notified, ids) {
		s.Errorf("notified of %v, want %v", notified, ids)
	}
}

// An acknowledged message is notified, and never early, once the Redis that has the companions is
// back, whatever happens to it while deadlines pass. A send that cannot be promised is refused, or
// has its companion in the journal.
func TestDeadlinesThatPassWhileTheStoreFails(t *testing.T) {
	for name, fail := range redisFails {
		if name == "flushed" {
			continue // what it had is lost: TestAStoreThatIsFlushedGoesOn
		}
		for _, pass := range []bool{false, true} {
			if pass && name != "killed" && name != "frozen" {
				continue // which are the two ways: an answer, and none
			}
			t.Run(fmt.Sprintf("%s, pass %v", name, pass), func(t *testing.T) {
				r, directory := durably(t), ""
				if pass {
					directory = t.TempDir()
				}
				play(t, func(s *scene) {
					s.MeasureClock()
					s.startMonitor()
					s.startMonitor()
					const n, life = 16, 1500 * time.Millisecond
					due, refused := map[string]time.Time{}, 0
					end := func() {}
					for i := range n {
						switch i {
						case n / 4:
							end = fail(r)
						case n * 3 / 4:
							time.Sleep(life + 500*time.Millisecond) // all that was sent before is due
							end()
							time.Sleep(3 * time.Second) // until its pool has noticed
						}
						id, sent := fmt.Sprint("m-", i), time.Now()
						switch code, body := s.post(workQueue, id, ttl(life)); {
						case code == http.StatusCreated:
							due[id] = sent.Add(life)
						case code == http.StatusServiceUnavailable && !pass:
							refused++
						default:
							t.Errorf("send = %d %s", code, body)
						}
						time.Sleep(50 * time.Millisecond)
					}
					time.Sleep(time.Minute)
					s.Settled(time.Second)
					notified := map[string]int{}
					for _, e := range s.Hook.Events() {
						notified[e.Subject]++
						if at, ok := due[e.Subject]; ok && e.Data.DeadLetteredTime.Before(at.Truncate(time.Millisecond)) {
							t.Errorf("%s was dead-lettered %v early", e.Subject, at.Sub(e.Data.DeadLetteredTime))
						}
					}
					for id := range due {
						// A companion whose write was not answered may be in Redis, beside the one that the journal
						// brings. At two monitors, which do not know of each other here, that is two events.
						if notified[id] == 0 || notified[id] > 1 && !pass {
							t.Errorf("%s was notified %d times, want once", id, notified[id])
						}
					}
					if !pass && refused == 0 {
						t.Error("no send was refused while Redis was away")
					}
				}, hasty(r.Addr), func(s *scene, _ *broker.Config) { s.journal = directory })
			})
		}
	}
}

// A Redis that is emptied has lost what it had; what is sent from then on has its companions,
// and nobody has to start anything again.
func TestAStoreThatIsFlushedGoesOn(t *testing.T) {
	r := redistest.Start(t)
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.send(workQueue, "lost", ttl(time.Minute))
		r.Must("FLUSHALL")
		r.Must("SCRIPT", "FLUSH")
		s.send(workQueue, "m", ttl(2*time.Second))
		time.Sleep(10 * time.Second)
		notifiedOnceEachOf(s, "m")
		s.Settled(time.Second)
	}, inRedis(r.Addr))
}

// The companions that a killed worker held come to another worker, which notifies once.
func TestAWorkerIsKilledWithCompanionsInHand(t *testing.T) {
	r := redistest.Start(t)
	play(t, func(s *scene) {
		s.MeasureClock()
		s.send(workQueue, "m-1", ttl(2*time.Second))
		s.send(workQueue, "m-2", ttl(2*time.Second))
		time.Sleep(3 * time.Second)
		dead := s.NewStore() // it never renews, and is never heard of again
		leases, _, err := dead.Claim(s.Context(), time.Now(), 100)
		s.Must(err)
		if len(leases) != 2 {
			t.Fatalf("%d companions are due, want 2", len(leases))
		}
		s.startMonitor()
		time.Sleep(10 * time.Second)
		if notified := s.Hook.Subjects(); len(notified) != 0 {
			t.Errorf("notified of %v while another has the companions in hand", notified)
		}
		r.Must("EVAL", `for _, k in ipairs(redis.call('KEYS', 'overdue:*:leased')) do
			for _, id in ipairs(redis.call('ZRANGE', k, 0, -1)) do redis.call('ZADD', k, 1, id) end
		end`, "0") // as if their time were over, which is Redis's own
		time.Sleep(10 * time.Second)
		notifiedOnceEachOf(s, "m-1", "m-2")
		s.Settled(time.Second)
	}, inRedis(r.Addr))
}

// A companion that nobody can read is put where operators find it, and holds nothing up.
func TestACompanionInTheStoreThatCannotBeRead(t *testing.T) {
	r := redistest.Start(t)
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		s.Must(s.Store.Put(s.Context(), []redisstore.Item{
			{ID: "odd", Due: time.Now(), ContentType: "application/octet-stream", Body: []byte("x")},
			{ID: "a note that is odd", Due: time.Now(), ContentType: "application/vnd.overdue.digest+json", Body: []byte("x"), Note: true},
		}))
		s.send(workQueue, "m", ttl(2*time.Second))
		time.Sleep(10 * time.Second)
		notifiedOnceEachOf(s, "m")
		reasons := map[string]string{}
		s.Must(s.Store.Dead(s.Context(), func(d redisstore.Dead) bool { reasons[d.ID] = d.Reason; return true }))
		if len(reasons) != 2 || reasons["odd"] != "CompanionMalformed" || reasons["a note that is odd"] != "CompanionMalformed" {
			t.Errorf("the dead are %v, want both that cannot be read", reasons)
		}
		s.Settled(time.Second)
	}, inRedis(r.Addr))
}

// The broker's clock is wrong by hours, and so is everybody's by that: deadlines are kept by the
// broker's.
func TestTheStoreGoesByTheClockOfTheBroker(t *testing.T) {
	for _, offset := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		r := redistest.Start(t)
		play(t, func(s *scene) {
			s.MeasureClock()
			s.startMonitor()
			for i := range 20 {
				s.send(workQueue, fmt.Sprint("m-", i), ttl(time.Duration(2000+i*37)*time.Millisecond))
			}
			time.Sleep(5 * time.Second)
			lags := s.Lags(workQueue)
			if len(lags) != 20 || lags[19] > 100*time.Millisecond {
				t.Errorf("offset %v: lags %v, want 20 of 100ms at most", offset, lags)
			}
			s.Settled(time.Second)
		}, inRedis(r.Addr), func(_ *scene, c *broker.Config) { c.ClockOffset = offset })
	}
}
