// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/alert"
	"overdue/internal/redisstore"
	"overdue/scheduler"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
)

// counted is a sink that counts its events.
type counted struct {
	name   string
	refuse bool

	mu  sync.Mutex
	got int
}

func (c *counted) Name() string { return c.name }

func (c *counted) Alert(context.Context, alert.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got++
	if c.refuse {
		return backoff.Permanent(errors.New("refused"))
	}
	return nil
}

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got
}

// newNotifier makes a notifier with these sinks, and counts what it reports.
func newNotifier(shared Shared, sinks ...alert.Alerter) (n *Notifier, reported map[string]int) {
	reported = map[string]int{}
	var mu sync.Mutex
	count := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		reported[what]++
	}
	n = New(Config{
		Record: &Record{}, Shared: shared, Log: zap.NewNop(),
		Begun: func(entity string, _ *alert.Event) { count("begun " + entity) },
		Delivered: func(sink string, err error) {
			if err != nil {
				sink += " failed"
			}
			count(sink)
		},
	})
	n.SetSinks(sinks)
	return n, reported
}

// notify notifies of one event, and returns how that ends.
func (n *Notifier) notify(t *testing.T, m *scheduler.Missed) (ended []Result) {
	t.Helper()
	n.Notify(t.Context(), "orders", &scheduler.Reference{MessageID: "m"}, m, func(r Result) { ended = append(ended, r) })
	synctest.Wait()
	return ended
}

func TestASinkGetsTheEventsOfQueuesWithItsLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		only := func(a alert.Alerter, label string) alert.Alerter {
			selection, err := alert.NewSelection(nil, []string{label}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return selection.Only(a)
		}
		theirs, others := &counted{name: "theirs"}, &counted{name: "others"}
		n, reported := newNotifier(nil, only(theirs, "team=payments"), only(others, "team!=payments"))
		n.cfg.Labels = func(entity string) map[string]string {
			return map[string]map[string]string{"events": {"team": "payments"}}[entity]
		}
		n.Notify(t.Context(), "events/Subscriptions/audit", &scheduler.Reference{MessageID: "m"}, &scheduler.Missed{}, func(Result) {})
		synctest.Wait()
		if theirs.count() != 1 || others.count() != 0 || reported["others"] != 0 {
			t.Errorf("theirs got %d events and others %d, reported %v; want the event of a subscription for the team of its topic", theirs.count(), others.count(), reported)
		}
	})
}

func TestAnEventGoesToTheSinksThatHaveNotTakenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &counted{name: "a"}, &counted{name: "b", refuse: true}
		n, reported := newNotifier(nil, a, b)
		m := scheduler.Missed{SequenceNumber: 7}
		ended := n.notify(t, &m)
		if len(ended) != 1 || !ended[0].Failed || ended[0].Err == nil || !cmp.Equal(ended[0].Taken, []string{"a"}) {
			t.Fatalf("it ends with %+v, want that a has taken it and b has not", ended)
		}
		b.refuse = false
		m.TakenBy = ended[0].Taken
		time.Sleep(time.Second) // the pause of b
		if ended = n.notify(t, &m); len(ended) != 1 || ended[0].Err != nil || a.got != 1 || b.got != 2 {
			t.Errorf("it ends with %+v, and a has got %d, b %d; want success, 1 and 2", ended, a.got, b.got)
		}
		// It is done, so nothing more is sent.
		if ended = n.notify(t, &m); len(ended) != 1 || ended[0].Err != nil || a.got != 1 || b.got != 2 {
			t.Errorf("then it ends with %+v, and a has got %d, b %d; want success without sending", ended, a.got, b.got)
		}
		if diff := cmp.Diff(map[string]int{"begun orders": 2, "a": 1, "b failed": 1, "b": 1}, reported); diff != "" {
			t.Errorf("reported -want +got:\n%s", diff)
		}
	})
}

// A filter that keeps an event from its sink says nothing about that sink.
func TestAnEventThatAFilterKeepsIsNoDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &counted{name: "a"}, &counted{name: "b"}
		n, reported := newNotifier(nil, alert.Without(a, "orders"), alert.Without(b, "events"))
		if ended := n.notify(t, &scheduler.Missed{SequenceNumber: 7}); len(ended) != 1 || ended[0].Err != nil {
			t.Fatalf("it ends with %+v, want success", ended)
		}
		if diff := cmp.Diff(map[string]int{"begun orders": 1, "b": 1}, reported); diff != "" || a.count() != 0 {
			t.Errorf("a has got %d events, reported -want +got:\n%s", a.count(), diff)
		}
	})
}

// shared is the record of other monitors.
type shared struct {
	done  bool // another one has notified
	ended []bool
}

func (s *shared) Begin(context.Context, string) (mine, done bool, err error) {
	return !s.done, s.done, nil
}

func (s *shared) End(_ context.Context, _ string, done bool) error {
	s.ended = append(s.ended, done)
	return nil
}

func TestAnEventThatAnotherMonitorHasNotifiedOfIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for others, got := range map[bool]int{true: 0, false: 1} {
			a, s := &counted{name: "a"}, &shared{done: others}
			n, _ := newNotifier(s, a)
			ended := n.notify(t, &scheduler.Missed{SequenceNumber: 7})
			if len(ended) != 1 || ended[0].Err != nil || a.got != got {
				t.Errorf("another has notified = %v: it ends with %+v, and is sent %d times, want success and %d", others, ended, a.got, got)
			}
			if !others && !cmp.Equal(s.ended, []bool{true}) {
				t.Errorf("the claim ends with %v, want one success", s.ended)
			}
		}
	})
}

// busy is a record in which another monitor always has the event.
type busy struct{ shared }

func (*busy) Begin(context.Context, string) (mine, done bool, err error) { return false, false, nil }

// A record that is wrong must not keep an event from its sinks.
func TestAnEventIsSentThoughAnotherMonitorNeverEndsItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &counted{name: "a"}
		n, _ := newNotifier(&busy{}, a)
		ended := n.notify(t, &scheduler.Missed{SequenceNumber: 7})
		time.Sleep(redisstore.ClaimLife - time.Second)
		if got := a.count(); got != 0 || len(ended) != 0 {
			t.Errorf("it is sent %d times while another monitor has it, and ends with %+v", got, ended)
		}
		time.Sleep(2 * time.Second)
		if got := a.count(); got != 1 {
			t.Errorf("it is sent %d times after %v, want once", got, redisstore.ClaimLife)
		}
	})
}

// asking is a sink that asks for an hour's pause.
type asking struct{ asked int }

func (*asking) Name() string { return "asking" }

func (a *asking) Alert(context.Context, alert.Event) error {
	a.asked++
	return backoff.RetryAfter(3600)
}

func TestASinkThatAsksForAPauseDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &asking{}, &counted{name: "b", refuse: true}
		n, reported := newNotifier(nil, a, b)
		for range 2 {
			ended := n.notify(t, &scheduler.Missed{SequenceNumber: 7})
			if len(ended) != 1 || !ended[0].Failed || ended[0].Wait != 0 {
				t.Fatalf("it ends with %+v, want the failure of b, which asks for no pause", ended)
			}
			time.Sleep(time.Minute) // the pause of b
		}
		b.refuse = false
		ended := n.notify(t, &scheduler.Missed{SequenceNumber: 7})
		if len(ended) != 1 || ended[0].Failed || ended[0].Wait != 58*time.Minute || a.asked != 1 {
			t.Errorf("after %d requests it ends with %+v, want one, and the rest of the hour", a.asked, ended)
		}
		if got := reported["asking failed"]; got != 3 {
			t.Errorf("that it takes nothing is reported %d times, want with each event", got)
		}
	})
}

// slow is a sink that takes long for each event.
type slow struct {
	name  string
	takes time.Duration
}

func (s slow) Name() string { return s.name }

func (s slow) Alert(context.Context, alert.Event) error {
	time.Sleep(s.takes)
	return nil
}

// Nobody waits for a sink that is slow, and for one that keeps up only for a moment.
func TestASlowSinkDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := &counted{name: "quick"}
		n, _ := newNotifier(nil, quick, slow{"slow", 5 * time.Second})
		const events = 40_000
		ended := 0
		var mu sync.Mutex
		for i := range events {
			m := scheduler.Missed{SequenceNumber: int64(i)}
			n.Notify(t.Context(), "orders", &scheduler.Reference{}, &m, func(Result) {
				mu.Lock()
				defer mu.Unlock()
				ended++
			})
		}
		time.Sleep(time.Second)
		if got := quick.count(); got != events {
			t.Errorf("the quick sink got %d events of %d after a second, want all", got, events)
		}
		time.Sleep(longestWait)
		mu.Lock()
		got := ended
		mu.Unlock()
		if got < events*9/10 {
			t.Errorf("%d of %d notifications have ended, want most put off", got, events)
		}
		time.Sleep(2 * longestWait) // for the last attempts
	})
}

// The log is single also behind filters.
func TestOnlyTheLogHasASingleLine(t *testing.T) {
	log := alert.NewLog(zap.NewNop())
	n := New(Config{Log: zap.NewNop()})
	n.SetSinks([]alert.Alerter{log, alert.Without(log, "canary"), &counted{name: "webhook"}})
	var single []bool
	for _, s := range *n.sinks.Load() {
		single = append(single, s.line.limit == 1)
	}
	if diff := cmp.Diff([]bool{true, true, false}, single); diff != "" {
		t.Errorf("single lines: -want +got:\n%s", diff)
	}
}
