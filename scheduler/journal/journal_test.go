// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

func TestCompanionsWaitOnDiskForTheMonitorQueue(t *testing.T) {
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
				var n news
				j, _ := start(t, s, directory, func(c *journal.Config) { c.Changed = n.changed })
				schedule(t, j, one("before", time.Now().Add(time.Hour)))
				if st := j.Status(); st.Companions != 0 || st.Down != nil {
					t.Errorf("status %+v with the monitor queue up, want nothing kept", st)
				}
				end := begin(t, ns)
				began := time.Now()
				schedule(t, j, one("first", time.Now().Add(2*time.Hour)))
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("the first companion of the outage took %v, want 5s at most", took)
				}
				for i := range 50 {
					began = time.Now()
					schedule(t, j, one(fmt.Sprint("m-", i), time.Now().Add(time.Duration(i+1)*time.Minute)))
					if took := time.Since(began); took > 0 {
						t.Fatalf("a companion took %v with the monitor queue known to be down, want no wait", took)
					}
				}
				if st := j.Status(); st.Companions < 51 || st.Down == nil {
					t.Errorf("status %+v in the outage, want 51 companions and what is wrong", st)
				}
				time.Sleep(10 * time.Minute)
				if got := n.count("monitor queue is down"); got != 1 {
					t.Errorf("the outage was reported %d times, want once: %q", got, n.events)
				}
				end()
				time.Sleep(time.Minute)
				if st := j.Status(); st.Companions != 0 || st.Down != nil {
					t.Errorf("status %+v a minute after the outage, want an empty journal", st)
				}
				for _, want := range []string{"monitor queue is back", "journal is empty"} {
					if got := n.count(want); got != 1 {
						t.Errorf("%q was reported %d times, want once: %q", want, got, n.events)
					}
				}
				seen := map[string]bool{}
				for _, id := range ids(t, ns) {
					seen[id] = true
				}
				for i := range 50 {
					if !seen[fmt.Sprint("m-", i)] {
						t.Errorf("the monitor queue has no companion for m-%d", i)
					}
				}
				if !seen["first"] {
					t.Error("the monitor queue has no companion for the first send of the outage")
				}
				began = time.Now()
				schedule(t, j, one("after", time.Now().Add(time.Hour)))
				if st, took := j.Status(), time.Since(began); st.Companions != 0 || took > time.Second {
					t.Errorf("status %+v and %v after a companion that the monitor queue took, want nothing kept and no wait", st, took)
				}
			})
		})
	}
}

// Companions are written in the order of their due times; those that are due already become due at once.
func TestJournalIsWrittenInTheOrderOfDeadlines(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, _ := start(t, s, directory)
		end := outages["the queue is full"](t, ns)
		for _, minutes := range []int{50, 10, 40, 1, 30, 20} {
			schedule(t, j, one(fmt.Sprint(minutes), time.Now().Add(time.Duration(minutes)*time.Minute)))
		}
		time.Sleep(5 * time.Minute)
		end()
		time.Sleep(time.Minute)
		got := ids(t, ns) // the queue was asked with the first; the others went together
		if slices.Sort(got[1:]); strings.Join(got, " ") != "1 10 20 30 40 50" {
			t.Errorf("companions were written as %s, want 1 first", got)
		}
		for _, v := range companions(t, ns) {
			if want := queue.Scheduled; parse(t, v).References[0].MessageID == "1" && v.State != queue.Active {
				t.Errorf("the companion whose deadline has passed is %v, want %v", v.State, queue.Active)
			} else if v.State != want && parse(t, v).References[0].MessageID != "1" {
				t.Errorf("a companion that is not due is %v, want %v", v.State, want)
			}
		}
	})
}

// A monitor queue that has just come back gets the journal in batches, and not all at once.
func TestJournalIsWrittenAtABoundedPace(t *testing.T) {
	directory := t.TempDir()
	var mu sync.Mutex
	var batches []int
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, _ := start(t, s, directory)
		end := outages["the queue is full"](t, ns)
		schedule(t, j, one("first", time.Now().Add(time.Hour)))
		var wg sync.WaitGroup
		for i := range 3000 {
			wg.Go(func() { schedule(t, j, one(fmt.Sprint(i), time.Now().Add(time.Hour+time.Duration(i)*time.Second))) })
		}
		wg.Wait()
		end()
		time.Sleep(7 * time.Second) // a pause of 5 s at most
		most, sum := 0, 0
		mu.Lock()
		for _, n := range batches {
			most, sum = max(most, n), sum+n
		}
		mu.Unlock()
		if most > 100 || sum == 0 || sum > 7*1000+1 {
			t.Errorf("%d companions in batches of up to %d within 7s, want some, and 1,000 a second in batches of 100 at most", sum, most)
		}
		time.Sleep(10 * time.Second)
		if st := j.Status(); st.Companions != 0 {
			t.Errorf("%d companions are left, want none", st.Companions)
		}
	}, func(_ *broker.Config, c *scheduler.Config) {
		c.Written = func(n int, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				batches = append(batches, n)
			}
		}
	})
}

// A companion that is refused while the journal is empty has nobody who would ask the monitor
// queue, so the next send does.
func TestAJournalThatTakesNothingDoesNotHideThatTheQueueIsBack(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		var n news
		j, _ := start(t, s, directory, func(c *journal.Config) { c.MaxSize, c.Changed = 10, n.changed })
		end := outages["the queue is full"](t, ns)
		for range 3 {
			if err := j.Begin(one("m", time.Now().Add(time.Hour)))(t.Context()); err == nil {
				t.Error("a companion that nobody takes = nil, want an error")
			}
		}
		end()
		schedule(t, j, one("m", time.Now().Add(time.Hour)))
		if st := j.Status(); st.Down != nil {
			t.Errorf("status %+v, want the monitor queue up", st)
		}
		if down, back := n.count("monitor queue is down"), n.count("monitor queue is back"); down != 1 || back != 1 {
			t.Errorf("reported %q, want once down and once back", n.events)
		}
	})
}

// The monitor queue may be a smaller one by the time that it is back. Then a companion of many
// messages is written in parts.
func TestACompanionThatIsTooLargeIsWrittenInParts(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, stop := start(t, s, directory)
		end := outages["the queue is full"](t, ns)
		large := one("large", time.Now().Add(time.Hour))
		for i := range 99 {
			large.References = append(large.References, scheduler.Reference{MessageID: fmt.Sprint("large-", i), Deadline: large.References[0].Deadline, Stated: "ttl"})
		}
		schedule(t, j, large)
		schedule(t, j, one("small", time.Now().Add(2*time.Hour)))
		stop()
		end()
	})
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, _ := start(t, s, directory)
		time.Sleep(time.Minute)
		messages := 0
		for _, v := range companions(t, ns) {
			messages += len(parse(t, v).References)
		}
		if messages != 101 {
			t.Errorf("the monitor queue has companions for %d messages, want 101", messages)
		}
		if st := j.Status(); st.Companions != 0 || st.Down != nil {
			t.Errorf("status %+v, want an empty journal and the queue up", st)
		}
	}, func(c *broker.Config, _ *scheduler.Config) { c.MaxMessageSize = 4096 })
}
