// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

func TestAFullJournalRefuses(t *testing.T) {
	directory := t.TempDir()
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		var n news
		j, _ := start(t, s, directory, func(c *journal.Config) { c.MaxSize, c.Changed = 2000, n.changed })
		end := outages["the queue is full"](t, ns)
		var err error
		kept := 0
		for i := 0; err == nil && i < 100; i++ {
			if err = j.Begin(one(fmt.Sprint(i), time.Now().Add(time.Hour+time.Duration(i)*time.Minute)))(t.Context()); err == nil {
				kept++
			}
		}
		if err == nil || !strings.Contains(err.Error(), "overdue.journal") || !strings.Contains(err.Error(), "it is full") || kept < 3 {
			t.Fatalf("%d were kept in 2,000 bytes, then %v; want some, then a sentence that says the journal is full", kept, err)
		}
		_ = j.Begin(one("more", time.Now().Add(time.Hour)))(t.Context()) // refused as well
		if got := n.count("journal takes no companions"); got != 1 {
			t.Errorf("the full journal was reported %d times, want once: %q", got, n.events)
		}
		if st := j.Status(); st.Refusing == nil || st.Bytes > 2000 {
			t.Errorf("status %+v, want at most 2,000 bytes and why it refuses", st)
		}
		end()
		time.Sleep(time.Minute)
		got := ids(t, ns)
		for i := range kept {
			if !slices.Contains(got, fmt.Sprint(i)) {
				t.Errorf("the monitor queue has %q, want %d too, which was kept", got, i)
			}
		}
		// Which of them asks first whether the outage has ended is open: one of the kept, or the last refused.
		if len(got) != kept && (len(got) != kept+1 || !slices.Contains(got, "more")) {
			t.Errorf("the monitor queue has %q, want the %d that were kept, and at most the one that was refused last", got, kept)
		}
		end = outages["the queue is full"](t, ns)
		schedule(t, j, one("later", time.Now().Add(time.Hour)))
		if got := n.count("journal takes companions again"); got != 1 {
			t.Errorf("the free space was reported %d times, want once: %q", got, n.events)
		}
		end()
	})
}

// Nobody sends to a process that is not ready, so it finds out by itself that sends are accepted
// again. The journal is empty, so there is nothing else to ask the queue with.
func TestARefusalEndsWithTheOutageThoughNobodySends(t *testing.T) {
	setup(t, func(t *testing.T, ns *brokertest.Namespace, s *scheduler.Scheduler) {
		j, _ := start(t, s, t.TempDir(), func(c *journal.Config) { c.MaxSize = 1 })
		end := outages["the queue is full"](t, ns)
		if err := j.Begin(one("refused", time.Now().Add(time.Hour)))(t.Context()); err == nil {
			t.Fatal("a companion was accepted, without the queue and without room")
		}
		time.Sleep(time.Minute)
		if st := j.Status(); st.Refusing == nil || st.Down == nil {
			t.Errorf("status %+v while the queue is down, want that sends are refused", st)
		}
		end()
		time.Sleep(15 * time.Second)
		if st := j.Status(); st.Refusing != nil || st.Down != nil {
			t.Errorf("status %+v a moment after the outage, want nothing wrong", st)
		}
		if got := len(ids(t, ns)); got != 1 {
			t.Errorf("the monitor queue has %d companions, want the one that it was asked with", got)
		}
	})
}
