// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
)

const (
	// collectTime is how long a notification waits for digests that are due with the first.
	collectTime = 250 * time.Millisecond
	// countTime bounds how long the dead letters of an entity are counted. Other processes wait that
	// much longer than notifyTime, see poolWait.
	countTime = 2 * time.Second
	// notifyTime bounds the tries to send one notification before its digest is kept again.
	notifyTime = 10 * time.Second
	// maxAttempts bounds how often a digest is kept again because the sink did not take it. With
	// attemptDelay, that is about a day.
	maxAttempts = 300
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
		due := gr.due
		gr.due = nil
		if len(due) == 0 {
			gr.notifying = false
			if gr.idle() {
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
		err := g.takeTurn(gr, d)
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

// takeTurn sends d together with the digests of other processes, unless one of them does so. It
// returns the errors of notify.
func (g *Groups) takeTurn(gr *group, d Digest) error {
	t := g.join(gr, &d)
	if t.done {
		return nil
	}
	notified := false
	defer func() { g.publish(gr, t, notified) }()
	g.mu.Lock()
	gr.learn(t.known)
	next, early := g.early(gr, &d, t)
	n := g.notificationOf(gr, d)
	g.mu.Unlock()
	if g.ctx.Err() != nil {
		return context.Cause(g.ctx)
	}
	var err error
	if early {
		err = g.cfg.Outbox.Keep(g.ctx, next, d)
	} else {
		err = g.notify(gr, d, n)
	}
	notified = err == nil
	return err
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
		Count: d.Count, Total: gr.total + d.Count, Since: gr.since, Last: latest(gr.last, d.Last),
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

// resolvesAt is when the group ends unless another event comes. A process that started less than
// ResolveAfter ago may not know the latest events, which another process had.
func (g *Groups) resolvesAt(gr *group) time.Time {
	return latest(gr.last, g.began).Add(g.cfg.ResolveAfter)
}

// notify sends n and records the result. After errUndeliverable the digest is done with; after any
// other error nothing has changed.
func (g *Groups) notify(gr *group, d Digest, n *Notification) error {
	if n != nil {
		g.countDeadLetters(n)
		err := g.send(n)
		switch {
		case err == nil:
		case g.ctx.Err() != nil:
			return err
		case d.Count == 0 && !n.Resolved: // the next reminder repeats it
		default:
			return g.keepAgain(gr, d, n, err)
		}
	}
	g.mu.Lock()
	now := g.cfg.Outbox.Now()
	switch {
	case n == nil:
	case n.Resolved:
		gr.since, gr.last, gr.total = time.Time{}, time.Time{}, 0
	case d.Count > 0:
		gr.since, gr.last, gr.total = n.Since, n.Last, n.Total
		gr.next = latest(gr.next, now.Add(g.cfg.Interval))
	}
	d, due, needed := g.reminderLocked(gr, now)
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

// reminderLocked returns the reminder that a firing group needs on the outbox, unless it has one.
func (g *Groups) reminderLocked(gr *group, now time.Time) (d Digest, due time.Time, needed bool) {
	if gr.since.IsZero() || gr.reminder.After(now) {
		return Digest{}, time.Time{}, false
	}
	due = g.resolvesAt(gr)
	if g.cfg.Resend > 0 && now.Add(g.cfg.Resend).Before(due) {
		due = now.Add(g.cfg.Resend)
	}
	gr.reminder = due
	return Digest{
		Sink: g.Name(), Labels: gr.labels, First: gr.since, Last: gr.last, Since: gr.since, Total: gr.total,
	}, due, true
}

// keepAgain keeps d on the outbox for a later attempt.
func (g *Groups) keepAgain(gr *group, d Digest, n *Notification, cause error) error {
	d.Attempt++
	if n.Resolved {
		d.Since, d.Total, d.First, d.Last = gr.since, gr.total, gr.since, gr.last
	}
	log := g.cfg.Log.With(zap.String("sink", g.Name()), zap.Int("attempt", d.Attempt), zap.Int("events", d.Count), zap.Error(cause))
	if d.Attempt > maxAttempts {
		log.Error("notification undeliverable", zap.String("next", "repair the sink; the dead-letter queue of the monitor queue has the digest, reason AlertUndeliverable"))
		return errUndeliverable
	}
	wait := attemptDelay(d.Attempt)
	log.Warn("notification not accepted", zap.Duration("retry_in", wait))
	return g.cfg.Outbox.Keep(g.ctx, g.cfg.Outbox.Now().Add(wait), d)
}

// send tries for notifyTime.
func (g *Groups) send(n *Notification) error {
	_, err := backoff.Retry(g.ctx, func() (struct{}, error) { return struct{}{}, g.cfg.Sink.Notify(g.ctx, *n) },
		backoff.WithMaxElapsedTime(notifyTime), backoff.WithBackOff(backoff.NewExponentialBackOff()))
	if g.notified != nil {
		g.notified(err)
	}
	return err
}

// attemptDelay is the delay before attempt n, n ≥ 1, of a notification that was not accepted.
func attemptDelay(n int) time.Duration { return min(time.Second<<min(n-1, 9), 5*time.Minute) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
