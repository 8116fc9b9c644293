// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// outbox is a monitor queue: it delivers kept digests when they are due, also to groups that come later.
type outbox struct {
	t       *testing.T
	mu      sync.Mutex
	groups  *Groups // who is rung
	waiting []kept  // due while there were no groups
	left    int     // not done
	kept    int
	refused []error
	down    bool
}

type kept struct{ d Digest }

func (o *outbox) Now() time.Time { return time.Now() }

func (o *outbox) Keep(_ context.Context, due time.Time, d Digest) error {
	time.Sleep(time.Millisecond) // the way there: what comes meanwhile shares the next
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		return errors.New("down")
	}
	body, err := json.Marshal(d)
	if err != nil {
		o.t.Error(err)
	}
	if d, err = ParseDigest(body); err != nil {
		o.t.Errorf("a digest of our own cannot be read: %v\n%s", err, body)
	}
	o.left++
	o.kept++
	time.AfterFunc(time.Until(due), func() { o.deliver(d) })
	return nil
}

func (o *outbox) deliver(d Digest) {
	o.mu.Lock()
	g := o.groups
	if g == nil {
		o.waiting = append(o.waiting, kept{d})
	}
	o.mu.Unlock()
	if g == nil {
		return
	}
	g.Due(DueDigest{
		Digest: d,
		Done: func(refused error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.left--
			if refused != nil {
				o.refused = append(o.refused, refused)
			}
		},
		Release: func() { o.deliver(d) },
	})
}

// serve makes g the one who is rung; nil: nobody.
func (o *outbox) serve(g *Groups) {
	o.mu.Lock()
	o.groups = g
	waiting := o.waiting
	o.waiting = nil
	o.mu.Unlock()
	for _, k := range waiting {
		o.deliver(k.d)
	}
}

// pager records notifications, and fails while err is set.
type pager struct {
	mu    sync.Mutex
	pages []Notification
	at    []time.Duration
	began time.Time
	err   error
	asked int
}

func (p *pager) Name() string { return "pager" }

func (p *pager) Notify(_ context.Context, page Notification) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.err != nil {
		return p.err
	}
	p.pages = append(p.pages, page)
	p.at = append(p.at, time.Since(p.began).Truncate(time.Second))
	return nil
}

// said is the pages in short: when, state, new and all.
func (p *pager) said() (s []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, page := range p.pages {
		state := "firing"
		if page.Resolved {
			state = "resolved"
		}
		s = append(s, fmt.Sprintf("%v %s %s %d of %d", p.at[i], page.Labels["entity"], state, page.Count, page.Total))
	}
	return s
}

type groupScene struct {
	*testing.T
	o      *outbox
	p      *pager
	g      *Groups
	n      int
	change func(*GroupsConfig)
}

func playGroups(t *testing.T, change func(*GroupsConfig), f func(*groupScene)) {
	synctest.Test(t, func(t *testing.T) {
		s := &groupScene{T: t, o: &outbox{t: t}, p: &pager{began: time.Now()}, change: change}
		s.start()
		f(s)
		s.stop()
		time.Sleep(time.Hour) // digests that are left on the outbox are delivered to nobody
	})
}

func (s *groupScene) start() {
	cfg := GroupsConfig{Sink: s.p, Outbox: s.o, Source: "sb://n", Wait: 30 * time.Second, Interval: 5 * time.Minute, ResolveAfter: 10 * time.Minute}
	if s.change != nil {
		s.change(&cfg)
	}
	g, err := NewGroups(cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.g = g
	s.o.serve(g)
}

func (s *groupScene) stop() {
	s.o.serve(nil)
	s.g.Close()
}

// miss has n events happen on the entity at once.
func (s *groupScene) miss(entity string, n int) {
	s.Helper()
	var done sync.WaitGroup
	for range n {
		s.n++
		now := time.Now()
		e := Event{ID: fmt.Sprint(s.n), Type: TypeMissed, Time: now, Subject: fmt.Sprint("m-", s.n), Data: EventData{
			Entity: entity, Deadline: now.Add(-time.Duration(s.n) * time.Millisecond), DeadLetteredTime: now, LagMs: int64(s.n),
		}}
		done.Go(func() {
			if err := s.g.Alert(s.Context(), e); err != nil {
				s.Errorf("Alert = %v", err)
			}
		})
	}
	done.Wait()
}

func (s *groupScene) want(want ...string) {
	s.Helper()
	got := s.p.said()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.Errorf("pages:\n%q\nwant\n%q", got, want)
	}
}

// pass lets time pass, and what is due then happen.
func (s *groupScene) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTenThousandMissesAreOneNotification(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		s.miss("orders", 10_000)
		s.pass(40 * time.Second)
		s.want("30s orders firing 10000 of 10000")
		p := s.p.pages[0]
		if len(p.Samples) != samples || p.WorstLag != 10*time.Second || p.Oldest == nil || p.Oldest.Data.LagMs != 10_000 || p.Samples[0].ID != p.Oldest.ID {
			t.Errorf("page = %d samples, worst lag %v, oldest %+v, want %d, 10s and the last event", len(p.Samples), p.WorstLag, p.Oldest, samples)
		}
		if s.o.kept > 5 {
			t.Errorf("%d digests for 10,000 events", s.o.kept)
		}
	})
}

func TestAGroupFiresAgainAndIsResolved(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		s.miss("orders", 2)
		s.miss("bills", 1)
		s.pass(2 * time.Minute)
		s.miss("orders", 3)
		s.pass(20 * time.Second)
		s.miss("orders", 1)
		s.pass(time.Hour)
		s.want("30s bills firing 1 of 1", "30s orders firing 2 of 2", "5m30s orders firing 4 of 6", "10m0s bills resolved 0 of 1", "12m20s orders resolved 0 of 6")
		if s.o.left != 0 {
			t.Errorf("%d digests are left on the outbox", s.o.left)
		}
		s.miss("orders", 1)
		s.pass(time.Minute)
		if got := s.p.said(); got[len(got)-1] != "1h2m50s orders firing 1 of 1" {
			t.Errorf("after it was resolved: %q", got[len(got)-1])
		}
		entities := map[string]string{}
		for _, p := range s.p.pages {
			entities[p.Key] += p.Labels["entity"] + " "
		}
		want := []string{"bills bills ", "orders orders orders orders "}
		if got := slices.Sorted(maps.Values(entities)); !slices.Equal(got, want) {
			t.Errorf("pages by key are of %q, want %q", got, want)
		}
	})
}

func TestASinkThatWasDownGetsOneNotification(t *testing.T) {
	playGroups(t, func(c *GroupsConfig) { c.Wait = 0 }, func(s *groupScene) {
		s.p.err = errors.New("down")
		s.miss("orders", 5)
		s.pass(10 * time.Minute)
		s.miss("orders", 2)
		s.pass(time.Minute)
		s.p.mu.Lock()
		s.p.err = nil
		s.p.mu.Unlock()
		s.pass(5 * time.Minute)
		total := 0
		for _, p := range s.p.pages {
			total += p.Count
		}
		if total != 7 || len(s.p.pages) > 2 {
			t.Errorf("%d events in %q, want 7 in at most two notifications", total, s.p.said())
		}
	})
}

func TestANotificationThatNoSinkAcceptsBecomesUndeliverable(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		s.p.err = errors.New("down")
		s.miss("orders", 5)
		s.pass(48 * time.Hour)
		if len(s.o.refused) != 1 || s.o.left != 0 {
			t.Errorf("refused %v, %d left, want one and none", s.o.refused, s.o.left)
		}
	})
}

// Another process sends the digests of the first, and resolves its groups.
func TestAnotherProcessGoesOn(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		s.miss("orders", 4)
		s.stop()
		s.pass(time.Minute)
		s.start()
		s.pass(time.Minute)
		s.want("1m0s orders firing 4 of 4")
		s.stop()
		s.pass(5 * time.Minute)
		s.start() // at 7m
		s.pass(30 * time.Minute)
		s.want("1m0s orders firing 4 of 4", "17m0s orders resolved 0 of 4")
		if s.o.left != 0 {
			t.Errorf("%d digests are left on the outbox", s.o.left)
		}
	})
}

func TestASinkIsRemindedWhileAGroupFires(t *testing.T) {
	playGroups(t, func(c *GroupsConfig) { c.Wait, c.ResolveAfter, c.Resend = 0, 3*time.Minute, time.Minute }, func(s *groupScene) {
		s.miss("orders", 1)
		s.pass(10 * time.Minute)
		s.want("0s orders firing 1 of 1", "1m0s orders firing 0 of 1", "2m0s orders firing 0 of 1", "3m0s orders resolved 0 of 1")
	})
}

func TestAlertFailsUnlessTheEventIsKept(t *testing.T) {
	playGroups(t, nil, func(s *groupScene) {
		s.o.down = true
		if err := s.g.Alert(s.Context(), Event{Type: TypeMissed}); err == nil {
			t.Error("an event that could not be kept was taken")
		}
		s.o.down = false
	})
}

func TestDigestsFromOutsideAreChecked(t *testing.T) {
	for _, body := range []string{"", "{}", "[]", `{"sink":"s","count":-1}`, `{"sink":"s","count":1}`, `{"sink":"s","total":-1}`} {
		if d, err := ParseDigest([]byte(body)); err == nil {
			t.Errorf("ParseDigest(%s) = %+v, want an error", body, d)
		}
	}
}
