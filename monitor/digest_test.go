// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"overdue/alert"
	"overdue/internal/redisstore"
	"overdue/internal/testing/racetest"
	"overdue/monitor/notify"
	"overdue/scheduler"
)

// pages is a sink for groups.
type pages struct {
	mu   sync.Mutex
	said []string
}

func (*pages) Name() string { return "pages" }

func (p *pages) Notify(_ context.Context, page alert.Notification) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := "firing"
	if page.Resolved {
		state = "resolved"
	}
	p.said = append(p.said, fmt.Sprintf("%s %s %d of %d", page.Labels["entity"], state, page.Count, page.Total))
	return nil
}

func (p *pages) notified() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.said)
}

// Many missed deadlines are one page, though the monitor that has found them is replaced before
// it is sent; and the next one reports when it is over.
func TestMissedDeadlinesAreOnePageOfTheirGroup(t *testing.T) {
	inStores(t, func(s *scene) {
		sink := &pages{}
		s.groups = func(sc *scheduler.Scheduler) *alert.Groups {
			g, err := alert.NewGroups(alert.GroupsConfig{
				Sink: sink, Outbox: notify.NewOutbox(sc), Source: "sb://overdue.test",
				Wait: 30 * time.Second, Interval: time.Minute, ResolveAfter: 2 * time.Minute,
			})
			if err != nil {
				s.Fatal(err)
			}
			return g
		}
		s.MeasureClock()
		stop := s.startMonitor()
		n := racetest.Sized(250, 60)
		for i := range n {
			s.send(workQueue, fmt.Sprint("m-", i), ttl(time.Duration(1000+i*20)*time.Millisecond))
		}
		time.Sleep(15 * time.Second)
		if got := len(s.Hook.Events()); got != n {
			t.Errorf("events at the webhook = %d, want %d", got, n)
		}
		if got := sink.notified(); len(got) != 0 {
			t.Errorf("pages before the group has waited: %q", got)
		}
		stop()
		time.Sleep(time.Minute)
		s.startMonitor()
		time.Sleep(30 * time.Second)
		want := []string{fmt.Sprintf("orders firing %d of %d", n, n)}
		if got := sink.notified(); !slices.Equal(got, want) {
			t.Errorf("pages = %q, want %q", got, want)
		}
		time.Sleep(5 * time.Minute)
		want = append(want, fmt.Sprintf("orders resolved 0 of %d", n))
		if got := sink.notified(); !slices.Equal(got, want) {
			t.Errorf("pages = %q, want %q", got, want)
		}
		if c := s.CompanionsKept(); c != (redisstore.Counts{}) {
			t.Errorf("companions are left: %+v", c)
		}
		if got := len(s.Hook.Events()); got != n {
			t.Errorf("events at the webhook in the end = %d, want %d", got, n)
		}
	})
}

// The sinks of a monitor change while it runs. Events of the same second go to the sinks that they
// were meant for, and the events of a group that stays are notified. Later events go to the new
// sinks.
func TestSinksChangeWhileTheMonitorRuns(t *testing.T) {
	play(t, func(s *scene) {
		stays, goes := &pages{}, &events{name: "goes"}
		var group *alert.Groups
		s.groups = func(sc *scheduler.Scheduler) *alert.Groups {
			g, err := alert.NewGroups(alert.GroupsConfig{
				Sink: stays, Outbox: notify.NewOutbox(sc), Source: "sb://overdue.test",
				Wait: 30 * time.Second, Interval: time.Minute, ResolveAfter: 2 * time.Minute,
			})
			if err != nil {
				s.Fatal(err)
			}
			group = g
			return g
		}
		s.MeasureClock()
		s.startMonitor()
		s.worker.SetAlerters([]alert.Alerter{goes, group})
		s.send(workQueue, "m-1", ttl(time.Second))
		time.Sleep(10 * time.Second)
		comes := &events{name: "comes"}
		s.worker.SetAlerters([]alert.Alerter{comes, group})
		s.send(workQueue, "m-2", ttl(time.Second))
		time.Sleep(time.Minute)
		if got := goes.notified(); !slices.Equal(got, []string{"m-1"}) {
			t.Errorf("the sink that is gone was notified of %q, want m-1 alone", got)
		}
		if got := comes.notified(); !slices.Equal(got, []string{"m-2"}) {
			t.Errorf("the sink that is new was notified of %q, want m-2 alone", got)
		}
		if got, want := stays.notified(), []string{"orders firing 2 of 2"}; !slices.Equal(got, want) {
			t.Errorf("pages of the sink that stays = %q, want %q", got, want)
		}
		// Without its sink nobody waits for its groups, and the monitor ends as ever.
		s.worker.SetAlerters([]alert.Alerter{comes})
		s.send(workQueue, "m-3", ttl(time.Second))
		time.Sleep(10 * time.Second)
		if got := comes.notified(); !slices.Equal(got, []string{"m-2", "m-3"}) {
			t.Errorf("the sink that is left was notified of %q, want m-2 and m-3", got)
		}
	})
}

// events is a sink that remembers what it was notified.
type events struct {
	name string
	mu   sync.Mutex
	said []string
}

func (e *events) Name() string { return e.name }

func (e *events) Alert(_ context.Context, ev alert.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, ev.Subject)
	return nil
}

func (e *events) notified() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.said)
}
