// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"strings"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/scheduler"

	"go.uber.org/zap"
)

const (
	// reasonDropped stands for a dead-letter reason in events about messages that the broker has dropped: there is no
	// dead letter.
	reasonDropped = "Dropped"

	// vanishings is in how many passes messages have to vanish that this worker's nudges have moved, before it believes that
	// somebody takes the dead letters away at once; a pass whose dead letters are there takes one off, one that lies there since an
	// earlier such pass takes all, and no more than maxVanishings are remembered. A consumer that settles an overdue message in the very milliseconds of a nudge looks the
	// same, once.
	vanishings    = 3
	maxVanishings = 6
	// vanishHold is for how long one that has vanished waits for that.
	vanishHold  = 20 * time.Second
	vanishAgain = 2 * time.Second
)

// unburied decides about messages that are gone and in no dead-letter queue of the entity.
func (e *entity) unburied(ctx context.Context, watches []*watch) error {
	if len(watches) == 0 {
		return nil
	}
	if e.traits.forwardTo != "" {
		if err := e.stranded(ctx, watches); err != nil {
			return err
		}
		watches = unaccounted(watches)
	}
	if e.traits.forwardDead != "" {
		if err := e.followDead(ctx, watches); err != nil {
			return err
		}
		watches = unaccounted(watches)
	}
	news := false
	for _, wt := range watches {
		if wt.swept != nil && wt.vanished.IsZero() {
			news, wt.vanished = true, time.Now()
		}
	}
	taken := e.w.facts.of(e.key).vanished >= vanishings
	if news {
		first := e.firstLetter(ctx)
		e.w.facts.learn(e.key, func(f *fact) {
			f.vanished = min(f.vanished+1, maxVanishings)
			switch {
			case first == seat{} || first != f.lies:
				f.lies, f.liesSince = first, time.Now()
			case time.Since(f.liesSince) >= vanishAgain:
				f.vanished = 0 // whoever takes dead letters away at once would have taken that one
			}
			taken = f.vanished >= vanishings
		})
	}
	for _, wt := range watches {
		switch {
		case wt.swept == nil:
			// Nobody knows more than that it is gone.
		case e.traits.drops:
			wt.missed = e.missed(wt, wt.swept)
			wt.missed.DeadLetterReason = reasonDropped
		case taken:
			wt.missed = e.missed(wt, wt.swept)
			wt.missed.DeadLetterReason = reasonExpired
		case time.Since(wt.vanished) < vanishHold && time.Now().Add(vanishAgain).Before(wt.held.until):
			wt.judgement.verdict = InFlight // the broker may take its time to move it, too
		}
	}
	return nil
}

// firstLetter is the first dead letter, zero if there is none or nobody can tell.
func (e *entity) firstLetter(ctx context.Context) seat {
	page, err := e.dead.peek(ctx, 0, 1)
	if err != nil {
		e.log.Debug("no look at the first dead letter", zap.Error(err)) // the next one at any will tell whether that lasts
		return seat{}
	}
	if len(page) == 0 {
		return seat{}
	}
	return seatOf(page[0])
}

// stranded finds those of the watches whose messages could not be forwarded. Nobody has received them, whatever the
// reason with which they lie in the transfer dead-letter queue.
func (e *entity) stranded(ctx context.Context, watches []*watch) error {
	e.transfer.cursor = e.traits.partitioned
	wants := make([]*want, len(watches))
	for i, wt := range watches {
		w := &want{seat: wt.want.seat}
		w.sought(&wt.ref)
		wants[i] = w
	}
	if err := e.transfer.find(ctx, wants, e.chooser(nil)); err != nil {
		return err
	}
	for i, wt := range watches {
		if m := wants[i].found; m != nil {
			wt.missed = e.missed(wt, m)
		}
	}
	return nil
}

// followDead looks for messages among the dead letters that e forwards: by their ids, and by what the broker has
// written on them of where they come from. Where nobody can look, none of them is found.
func (e *entity) followDead(ctx context.Context, watches []*watch) error {
	// The numbers there are others, and enqueued-times those of the forwarding, or still the old ones.
	wants := make([]*want, len(watches))
	for i, wt := range watches {
		w := &want{ref: &wt.ref, messageID: wt.ref.MessageID, until: farAhead}
		if !wt.ref.From.IsZero() {
			w.from, w.likely = wt.ref.From.Add(-windowMargin), wt.ref.DeadlineAt(wt.ref.From).Add(-windowMargin)
		}
		wants[i] = w
	}
	taken := map[int64]bool{}
	err := e.openHeir(ctx).findNamed(ctx, wants, func(_ *want, m *link.Message) bool {
		if taken[m.SequenceNumber] || !expired(m) || !strings.EqualFold(m.DeadLetterSource, e.name) {
			return false
		}
		taken[m.SequenceNumber] = true
		return true
	})
	if err = e.inHeir(ctx, err); err != nil {
		return err
	}
	for i, wt := range watches {
		if m := wants[i].found; m != nil {
			wt.missed = e.missedElsewhere(wt, m)
		}
	}
	return nil
}

// openHeir is the view of what the dead letters of e are forwarded to.
func (e *entity) openHeir(ctx context.Context) *view {
	if e.heir.path != e.traits.forwardDead {
		e.heir.close(ctx)
		e.heir = view{links: e.w.cfg.Links, path: e.traits.forwardDead, metrics: e.w.metrics, memory: &memory{}}
	}
	return &e.heir
}

// inHeir is what is left of an error of a look there: what may not be looked at has nothing to find.
func (e *entity) inHeir(ctx context.Context, err error) error {
	if link.Condition(err) == "" {
		return err
	}
	e.log.Debug("no look at the dead letters that are forwarded", zap.String("forwarded_to", e.heir.path), zap.Error(err))
	e.heir.close(ctx)
	return nil
}

// forwardedID stands for a dead letter that was forwarded, among the events that are told: where it is now its number is another.
func (e *entity) forwardedID(messageID string) string {
	return strings.ToLower(e.name) + "\x00" + messageID
}

// missedElsewhere is missed for a dead letter that was forwarded: what can be known of the message before that.
func (e *entity) missedElsewhere(wt *watch, m *link.Message) *scheduler.Missed {
	missed := e.missed(wt, m)
	if seen := wt.swept; seen != nil {
		missed.SequenceNumber, missed.EnqueuedTime = seen.SequenceNumber, seen.EnqueuedTime
		missed.Deadline = deadlineOf(&wt.ref, seen, e.traits.Settings)
	} else {
		missed.Deadline = wt.ref.Deadline
	}
	return missed
}
