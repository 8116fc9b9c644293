// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"overdue/internal/pace"
	"overdue/internal/servicebus/duration"
)

const (
	// collectTime is how long a notification waits for digests that are due with the first.
	collectTime = 250 * time.Millisecond
	// countTime bounds how long the dead letters of an entity are counted.
	countTime = 2 * time.Second
	// maxLate is how late a digest may become due where the namespace works. One that comes later
	// shows that nobody saw events meanwhile: no group resolves for that time.
	maxLate = 30 * time.Second
	// settleTime is how long after a digest is due a group waits for it before it resolves.
	settleTime = 5 * time.Second
)

var errUndeliverable = errors.New("alert: the sink did not accept the notification for a day")

// run sends the due digests of a group until none is left.
func (g *Groups) run(gr *group) {
	for {
		select {
		case <-time.After(collectTime):
		case <-g.ctx.Done():
		}
		g.mu.Lock()
		now := g.cfg.Outbox.Now()
		due := gr.due
		gr.due = nil
		if len(due) == 0 {
			gr.notifying = false
			if gr.idle(now) {
				delete(g.groups, key(gr.labels))
			}
			g.mu.Unlock()
			return
		}
		d := Digest{Sink: g.Name(), Labels: gr.labels}
		for _, r := range due {
			d.merge(r.Digest)
			gr.resume(r.Digest)
		}
		g.mu.Unlock()
		err := g.takeTurn(gr, d, now)
		if err != nil && !errors.Is(err, errUndeliverable) {
			if g.ctx.Err() == nil {
				g.cfg.Log.Warn("notification neither sent nor kept for later, its digest will be received again",
					zap.String("sink", g.Name()), zap.Error(err))
			}
			for _, r := range due {
				r.Release()
			}
			continue
		}
		for _, r := range due {
			r.Done(err)
		}
	}
}

// takeTurn sends d, which was due by then, together with the digests of other processes, unless one
// of them does so. It returns the errors of notify.
func (g *Groups) takeTurn(gr *group, d Digest, due time.Time) error {
	t := g.join(gr, &d)
	notified := false
	defer func() { g.publish(gr, t, notified) }()
	g.mu.Lock()
	gr.learn(t.known)
	if t.isDone {
		g.mu.Unlock()
		g.cfg.Tracker.Notified(g.Name(), key(gr.labels), due, nil)
		return nil
	}
	next := gr.earliest
	early := d.Count > 0 && next.After(g.cfg.Outbox.Now().Add(time.Second))
	g.mu.Unlock()
	if g.ctx.Err() != nil {
		return context.Cause(g.ctx)
	}
	if early {
		// Its events belong to the next notification, with others that have come since the latest.
		if err := g.keepEvents(gr, d, next); err != nil {
			return err
		}
		d = Digest{Sink: d.Sink, Labels: d.Labels}
	}
	err := g.notify(gr, d, due, early)
	notified = err == nil
	return err
}

// keepEvents keeps the events of d on the outbox for the next notification of the group.
func (g *Groups) keepEvents(gr *group, d Digest, due time.Time) error {
	g.mu.Lock()
	gr.next = duration.Later(gr.next, due)
	g.mu.Unlock()
	return g.cfg.Outbox.Keep(g.ctx, due, d)
}

// resume takes over the state that another process left in a reminder.
func (gr *group) resume(d Digest) {
	if d.Count > 0 || d.Since.IsZero() {
		return
	}
	gr.reminder = time.Time{} // this was it; a second one costs one needless check
	if gr.since.IsZero() || d.Since.Before(gr.since) {
		gr.since = d.Since
	}
	gr.total = max(gr.total, d.Total)
	if d.Last.After(gr.last) {
		gr.last = d.Last
	}
}

// notificationOf returns the notification to send now, or nil if there is nothing to say.
func (g *Groups) notificationOf(gr *group, d Digest) *Notification {
	n := &Notification{
		Key: groupKey(g.cfg.Source, g.Name(), key(gr.labels)), Source: g.cfg.Source, Labels: gr.labels,
		Count: d.Count, Total: gr.total + d.Count, Since: gr.since, Last: duration.Later(gr.last, d.Last),
		Oldest: d.Oldest, WorstLag: time.Duration(d.WorstLag) * time.Millisecond, Samples: d.Samples,
	}
	if gr.since.IsZero() {
		n.Since = d.First
	}
	switch {
	case d.Count > 0:
		return n
	case gr.since.IsZero():
		return nil // the reminder of a group that is resolved
	case !g.resolvesAt(gr).After(g.cfg.Outbox.Now()):
		n.Resolved = true
		return n
	case g.cfg.Resend > 0:
		return n
	}
	return nil
}

// resolvesAt is when the group ends unless another event comes: ResolveAfter after the latest
// event, and when all digests with events have been due. A process that has just begun to see what
// is due may not know the latest events.
func (g *Groups) resolvesAt(gr *group) time.Time {
	seen := duration.Later(g.sees, g.cfg.Sight.from(g.cfg.Outbox.Now()))
	at := duration.Later(duration.Later(gr.arrived, gr.last), seen).Add(g.cfg.ResolveAfter)
	if g.cfg.Pool != nil { // the others keep digests until then
		at = duration.Later(at, gr.earliest.Add(settleTime))
	}
	return duration.Later(at, gr.next.Add(settleTime))
}

// notify sends the notification that is due now, with the events of d, which were due by then, and
// keeps a reminder on the outbox. After errUndeliverable the digest is done with; after any other
// error nothing has changed.
func (g *Groups) notify(gr *group, d Digest, dueBy time.Time, early bool) error {
	g.mu.Lock()
	n := g.notificationOf(gr, d)
	if early && gr.reminder.After(g.cfg.Outbox.Now()) {
		n = nil // its reminder is still to come
	}
	g.mu.Unlock()
	if n != nil {
		g.countDeadLetters(n)
		var err error
		if !n.Resolved || n.Labels["type"] != TypeBlind || g.keepsIncidents() {
			err = g.send(n)
		} // otherwise people have heard that it is over
		if g.ctx.Err() != nil && err != nil {
			return err
		}
		if d.Count > 0 && !pace.IsRetryAfter(err) { // then the events only wait
			g.cfg.Tracker.Notified(g.Name(), key(gr.labels), dueBy, err)
		}
		switch {
		case err == nil:
			g.conclude(gr, d, n)
		case n.Resolved || d.Count > 0:
			if err := g.keepAgain(gr, d, n, err); err != nil {
				return err
			}
		default: // the next reminder repeats it
		}
	}
	return g.remind(gr)
}

// keepsIncidents reports whether the sink has to hear that a group is over.
func (g *Groups) keepsIncidents() bool {
	switch g.cfg.Sink.(type) {
	case *alertmanager, *pagerDuty, *webhookNotifier:
		return true
	}
	return false
}

// conclude takes over what the sink knows now.
func (g *Groups) conclude(gr *group, d Digest, n *Notification) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case n.Resolved:
		gr.since, gr.last, gr.total, gr.earliest = time.Time{}, time.Time{}, 0, time.Time{}
	case d.Count > 0:
		gr.since, gr.last, gr.total = n.Since, n.Last, n.Total
		gr.earliest = g.cfg.Outbox.Now().Add(g.cfg.Interval)
	}
}

// countDeadLetters completes the notification that a group is resolved. Without a count it is sent
// all the same.
func (g *Groups) countDeadLetters(n *Notification) {
	entity := n.Labels["entity"]
	if !n.Resolved || n.Labels["type"] != TypeMissed || entity == "" || g.cfg.DeadLetters == nil {
		return
	}
	ctx, cancel := context.WithTimeout(g.ctx, countTime)
	defer cancel()
	d, err := g.cfg.DeadLetters(ctx, entity, n.Labels["subscription"])
	switch {
	case err == nil:
		n.DeadLetters = &d
	case g.ctx.Err() == nil:
		g.cfg.Log.Warn("dead letters not counted for a notification", zap.String("sink", g.Name()), zap.String("work_queue", n.Where()), zap.Error(err))
	}
}

// remind keeps a reminder on the outbox for a group that fires, unless there is one.
func (g *Groups) remind(gr *group) error {
	g.mu.Lock()
	now := g.cfg.Outbox.Now()
	if gr.since.IsZero() || gr.reminder.After(now) {
		g.mu.Unlock()
		return nil
	}
	due := g.resolvesAt(gr)
	if g.cfg.Resend > 0 && now.Add(g.cfg.Resend).Before(due) {
		due = now.Add(g.cfg.Resend)
	}
	gr.reminder = due
	d := gr.reminderDigest(g.Name())
	g.mu.Unlock()
	err := g.cfg.Outbox.Keep(g.ctx, due, d)
	if err != nil {
		g.mu.Lock()
		gr.reminder = time.Time{}
		g.mu.Unlock()
	}
	return err
}

// reminderDigest returns a digest without events, of what the sink knows.
func (gr *group) reminderDigest(sink string) Digest {
	return Digest{Sink: sink, Labels: gr.labels, First: gr.since, Last: gr.last, Since: gr.since, Total: gr.total}
}

// keepAgain keeps d on the outbox for a later attempt. Events that come until then wait for it,
// too, so that one notification has all of them.
func (g *Groups) keepAgain(gr *group, d Digest, n *Notification, cause error) error {
	attempt := d.Attempt
	if !pace.IsRetryAfter(cause) {
		attempt++
	}
	log := g.cfg.Log.With(zap.String("sink", g.Name()), zap.Int("attempt", attempt), zap.Int("events", d.Count), zap.Error(cause))
	if attempt > pace.MaxAttempts {
		log.Error("notification undeliverable", zap.String("next", "repair the sink; the dead-letter queue of the monitor queue has the digest, reason AlertUndeliverable"))
		return errUndeliverable
	}
	g.mu.Lock()
	wait, _ := g.sinkPace.Remaining()
	wait = max(wait, pace.Delay(attempt))
	due := g.cfg.Outbox.Now().Add(wait)
	if n.Resolved {
		d, gr.reminder = gr.reminderDigest(g.Name()), due
	} else {
		gr.earliest = due
	}
	g.mu.Unlock()
	d.Attempt = attempt
	log.Warn("notification not accepted", zap.Duration("retry_in", wait))
	if n.Resolved {
		return g.cfg.Outbox.Keep(g.ctx, due, d)
	}
	return g.keepEvents(gr, d, due)
}

// send sends n, unless another group has just found that the sink fails.
func (g *Groups) send(n *Notification) error {
	g.mu.Lock()
	wait, cause := g.sinkPace.Try()
	g.mu.Unlock()
	if wait > 0 {
		return cause
	}
	began := time.Now()
	err := g.cfg.Sink.Notify(g.ctx, *n)
	if err != nil && g.ctx.Err() != nil {
		return context.Cause(g.ctx)
	}
	g.mu.Lock()
	g.sinkPace.Note(began, err)
	g.mu.Unlock()
	if g.notified != nil {
		g.notified(err)
	}
	return err
}
