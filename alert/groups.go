// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

const (
	// gather is how long a page waits for digests that are due with the first.
	gather = 250 * time.Millisecond
	// pageTime bounds the tries to send one page before its digests are written anew.
	pageTime = 10 * time.Second
	// maxGroups bounds the groups in memory; events of more are one group together.
	maxGroups = 10_000
	// maxAttempts is how often a digest is written anew because the sink did not take it. With attemptDelay that is
	// about a day.
	maxAttempts = 300
)

// Labels that events can be grouped by.
var labelOf = map[string]func(*Event) string{
	"type":         func(e *Event) string { return e.Type },
	"entity":       func(e *Event) string { return e.Data.Entity },
	"subscription": func(e *Event) string { return e.Data.Subscription },
	"strategy":     func(e *Event) string { return e.Data.Strategy },
	"reason":       func(e *Event) string { return e.Data.DeadLetterReason },
}

// An Outbox keeps digests until they are due, whatever becomes of this process. Keep returns when d is durable, or after a
// bounded time with an error.
type Outbox interface {
	Keep(ctx context.Context, due time.Time, d Digest) error
	// Now is the time by the clock that due is reckoned on.
	Now() time.Time
}

// GroupsConfig says how events become pages. Sink, Outbox and Source are needed.
type GroupsConfig struct {
	Sink   Notifier
	Outbox Outbox
	Source string // of the pages: sb://<namespace>

	By           []string      // labels, to which the type always belongs; nil = type, entity and subscription
	Wait         time.Duration // how long the first event of a group waits for others
	Interval     time.Duration // between pages of a group that goes on; at least a second
	ResolveAfter time.Duration // without events, until a group is told to be over; at least a second
	Resend       time.Duration // how often a sink is told again though nothing is new; 0 = never

	Pool Pool        // nil: each process pages for itself
	Log  *zap.Logger // nil: none
}

// Groups is an [Alerter] that gathers events and tells its sink of them by group: of the first after Wait, of more
// every Interval, and when there was none for ResolveAfter, that it is over.
//
// An event is taken when it is in a digest on the outbox. What is in memory only spares operations: a process that
// takes over finds digests and reminders there, and goes on.
type Groups struct {
	cfg   GroupsConfig
	told  func(err error)
	began time.Time

	mu      sync.Mutex
	groups  map[string]*group
	closed  bool
	stop    context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup
}

// group is what this process knows of one group. It is guarded by the mutex of Groups.
type group struct {
	labels map[string]string

	incoming []incoming // events that wait to be kept
	keeping  bool
	next     time.Time // when the next page is due, by the outbox's clock

	rung   []DueDigest // digests that have become due
	paging bool

	since, last time.Time // of what was told; since is zero when the group does not fire
	total       int
	reminder    time.Time // when the reminder on the outbox is due; zero: there is none
}

type incoming struct {
	event Event
	kept  chan error
}

// DueDigest is a digest that has become due. Done is called once, with nil when it is no longer needed; with an error it
// can never be of use; Back gives it to whichever process is next.
type DueDigest struct {
	Digest Digest
	Done   func(refused error)
	Back   func()
}

// NewGroups makes the Groups of one sink. Close ends them.
func NewGroups(cfg GroupsConfig) (*Groups, error) {
	if cfg.Sink == nil || cfg.Outbox == nil || cfg.Source == "" {
		return nil, errors.New("alert: groups need a sink, an outbox and a source")
	}
	if cfg.By == nil {
		cfg.By = []string{"type", "entity", "subscription"}
	}
	for _, name := range cfg.By {
		if labelOf[name] == nil {
			return nil, fmt.Errorf("alert: events have no label %q to group by", name)
		}
	}
	if !slices.Contains(cfg.By, "type") {
		cfg.By = append([]string{"type"}, cfg.By...) // a deadline that is near is not one that was missed
	}
	if cfg.Interval < time.Second || cfg.ResolveAfter < time.Second {
		return nil, errors.New("alert: groups need an interval and a time to resolve of at least a second")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	g := &Groups{cfg: cfg, groups: map[string]*group{}, began: cfg.Outbox.Now()}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g, nil
}

// OnNotify has f called with the outcome of every page, nil for one that was taken. It is set before the first event comes.
func (g *Groups) OnNotify(f func(err error)) { g.told = f }

// Name is that of the sink.
func (g *Groups) Name() string { return g.cfg.Sink.Name() }

// Alert returns when e is kept for the next page of its group.
func (g *Groups) Alert(ctx context.Context, e Event) error {
	in := incoming{e, make(chan error, 1)}
	g.mu.Lock()
	gr := g.of(g.labelsOf(&e))
	gr.incoming = append(gr.incoming, in)
	if !gr.keeping {
		gr.keeping = true
		go g.keep(gr)
	}
	g.mu.Unlock()
	select {
	case err := <-in.kept:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errSpent = errors.New("alert: the page found no taker for a day")

func (g *Groups) labelsOf(e *Event) map[string]string {
	labels := make(map[string]string, len(g.cfg.By))
	for _, name := range g.cfg.By {
		if value := labelOf[name](e); value != "" {
			labels[name] = value
		}
	}
	return labels
}

// of is the group with these labels.
func (g *Groups) of(labels map[string]string) *group {
	k := key(labels)
	if gr := g.groups[k]; gr != nil {
		return gr
	}
	if len(g.groups) >= maxGroups {
		g.forget()
	}
	if len(g.groups) >= maxGroups {
		labels = map[string]string{"overflow": "true"}
		k = key(labels)
		if gr := g.groups[k]; gr != nil {
			return gr
		}
	}
	gr := &group{labels: labels}
	g.groups[k] = gr
	return gr
}

// forget drops the groups that nothing is known of.
func (g *Groups) forget() {
	for k, gr := range g.groups {
		if gr.idle() {
			delete(g.groups, k)
		}
	}
}

func (gr *group) idle() bool {
	return !gr.keeping && !gr.paging && gr.since.IsZero() && gr.reminder.IsZero()
}

// keep writes digests of what has come in until there is nothing more. What comes while one is written shares the next.
func (g *Groups) keep(gr *group) {
	for {
		g.mu.Lock()
		ins := gr.incoming
		gr.incoming = nil
		if len(ins) == 0 {
			gr.keeping = false
			g.mu.Unlock()
			return
		}
		now := g.cfg.Outbox.Now()
		if gr.next.Before(now) {
			wait := g.cfg.Wait
			if !gr.since.IsZero() && g.over(gr).After(now) { // or another process has told its end
				wait = g.cfg.Interval
			}
			gr.next = now.Add(wait)
		}
		due := gr.next
		g.mu.Unlock()
		d := Digest{Sink: g.Name(), Labels: gr.labels}
		for _, in := range ins {
			d.add(in.event)
		}
		err := g.cfg.Outbox.Keep(context.Background(), due, d) // whose time it bounds itself
		for _, in := range ins {
			in.kept <- err
		}
	}
}

// Due is told of a digest for this sink that has become due.
func (g *Groups) Due(r DueDigest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		go r.Back()
		return
	}
	gr := g.of(r.Digest.Labels)
	gr.rung = append(gr.rung, r)
	if !gr.paging {
		gr.paging = true
		g.running.Go(func() { g.page(gr) })
	}
}

// page sends what has rung until there is nothing more.
func (g *Groups) page(gr *group) {
	for {
		select {
		case <-time.After(gather):
		case <-g.ctx.Done():
		}
		g.mu.Lock()
		rung := gr.rung
		gr.rung = nil
		if len(rung) == 0 {
			gr.paging = false
			if gr.idle() {
				delete(g.groups, key(gr.labels))
			}
			g.mu.Unlock()
			return
		}
		d := Digest{Sink: g.Name(), Labels: gr.labels}
		for _, r := range rung {
			d.merge(r.Digest)
			gr.adopt(r.Digest)
		}
		g.mu.Unlock()
		err := g.pooled(gr, d)
		if err != nil && !errors.Is(err, errSpent) {
			if g.ctx.Err() == nil {
				g.cfg.Log.Warn("digest not written anew, it will come back", zap.String("sink", g.Name()), zap.Error(err))
			}
			backAll(rung)
			continue
		}
		for _, r := range rung {
			r.Done(err)
		}
	}
}

// pooled sends what is in d, with what other processes have, unless one of them does. Its errors are those of tell.
func (g *Groups) pooled(gr *group, d Digest) error {
	t := g.join(gr, &d)
	if t.done {
		return nil
	}
	told := false
	defer func() { g.leave(gr, t, told) }()
	g.mu.Lock()
	gr.learn(t.known)
	next, early := g.early(gr, &d, t)
	p := g.pageOf(gr, d)
	g.mu.Unlock()
	if g.ctx.Err() != nil {
		return context.Cause(g.ctx)
	}
	var err error
	if early {
		err = g.cfg.Outbox.Keep(g.ctx, next, d)
	} else {
		err = g.tell(gr, d, p)
	}
	told = err == nil
	return err
}

func backAll(rung []DueDigest) {
	for _, r := range rung {
		r.Back()
	}
}

// adopt takes over what a reminder knows and this process does not.
func (gr *group) adopt(d Digest) {
	if d.Count > 0 || d.Since.IsZero() {
		return
	}
	gr.reminder = time.Time{} // it has rung; where there are two, the other is one look for nothing
	if gr.since.IsZero() || d.Since.Before(gr.since) {
		gr.since = d.Since
	}
	gr.total = max(gr.total, d.Total)
	if d.Last.After(gr.last) {
		gr.last = d.Last
	}
}

// pageOf is the page to be sent now; nil when there is nothing to tell yet.
func (g *Groups) pageOf(gr *group, d Digest) *Notification {
	p := &Notification{
		Key: pageKey(g.cfg.Source, g.Name(), key(gr.labels)), Source: g.cfg.Source, Labels: gr.labels,
		Count: d.Count, Total: gr.total + d.Count, Since: since(gr, d), Last: latest(gr.last, d.Last),
		Oldest: d.Oldest, WorstLag: time.Duration(d.WorstLag) * time.Millisecond, Samples: d.Samples,
	}
	switch {
	case d.Count > 0:
		return p
	case gr.since.IsZero():
		return nil // a reminder of what was resolved meanwhile
	case !g.over(gr).After(g.cfg.Outbox.Now()):
		p.Resolved = true
		return p
	case g.cfg.Resend > 0:
		return p
	}
	return nil
}

// since is when the first event of the group happened.
func since(gr *group, d Digest) time.Time {
	if gr.since.IsZero() {
		return d.First
	}
	return gr.since
}

// over is when the group is to be told over. A process that has not been there for so long knows nothing of the events
// that another has told of shortly before.
func (g *Groups) over(gr *group) time.Time {
	return latest(gr.last, g.began).Add(g.cfg.ResolveAfter)
}

// tell sends the page, and writes down what follows from how that went. errSpent ends the digests for good; with any
// other error nothing has changed.
func (g *Groups) tell(gr *group, d Digest, p *Notification) error {
	if p != nil {
		err := g.send(p)
		switch {
		case err == nil:
		case g.ctx.Err() != nil:
			return err
		case d.Count == 0 && !p.Resolved: // the next reminder comes anyway
		default:
			return g.again(gr, d, p, err)
		}
	}
	g.mu.Lock()
	now := g.cfg.Outbox.Now()
	switch {
	case p == nil:
	case p.Resolved:
		gr.since, gr.last, gr.total = time.Time{}, time.Time{}, 0
	case d.Count > 0:
		gr.since, gr.last, gr.total = p.Since, p.Last, p.Total
		gr.next = latest(gr.next, now.Add(g.cfg.Interval))
	}
	d, due, needed := g.reminder(gr, now)
	g.mu.Unlock()
	if !needed {
		return nil
	}
	err := g.cfg.Outbox.Keep(g.ctx, due, d)
	if err != nil && d.Count == 0 {
		g.mu.Lock()
		gr.reminder = time.Time{}
		g.mu.Unlock()
	}
	return err
}

// reminder is what has to lie on the outbox for a group that fires, unless it does already.
func (g *Groups) reminder(gr *group, now time.Time) (d Digest, due time.Time, needed bool) {
	if gr.since.IsZero() || gr.reminder.After(now) {
		return Digest{}, time.Time{}, false
	}
	due = g.over(gr)
	if g.cfg.Resend > 0 && now.Add(g.cfg.Resend).Before(due) {
		due = now.Add(g.cfg.Resend)
	}
	gr.reminder = due
	return Digest{Sink: g.Name(), Labels: gr.labels, First: gr.since, Last: gr.last, Since: gr.since, Total: gr.total}, due, true
}

// again has the page sent later: what it tells of is kept anew.
func (g *Groups) again(gr *group, d Digest, p *Notification, cause error) error {
	d.Attempt++
	if p.Resolved {
		d.Since, d.Total, d.First, d.Last = gr.since, gr.total, gr.since, gr.last
	}
	log := g.cfg.Log.With(zap.String("sink", g.Name()), zap.Int("attempt", d.Attempt), zap.Int("events", d.Count), zap.Error(cause))
	if d.Attempt > maxAttempts {
		log.Error("page undeliverable")
		return errSpent
	}
	wait := attemptDelay(d.Attempt)
	log.Warn("page not taken", zap.Duration("retry_in", wait))
	return g.cfg.Outbox.Keep(g.ctx, g.cfg.Outbox.Now().Add(wait), d)
}

// send tries for a while.
func (g *Groups) send(p *Notification) error {
	_, err := backoff.Retry(g.ctx, func() (struct{}, error) { return struct{}{}, g.cfg.Sink.Notify(g.ctx, *p) },
		backoff.WithMaxElapsedTime(pageTime), backoff.WithBackOff(backoff.NewExponentialBackOff()))
	if g.told != nil {
		g.told(err)
	}
	return err
}

// Close ends the pages: what is in hand is given back, and what rings from now on. Alert goes on, since what happens last
// has to be kept as well.
func (g *Groups) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	g.running.Wait()
}

// attemptDelay is how long a page that was not taken rests before attempt n, n ≥ 1.
func attemptDelay(n int) time.Duration { return min(time.Second<<min(n-1, 9), 5*time.Minute) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
