// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
)

// A message that is gone from the work queue was received, or it has expired. Its dead letter is
// the proof of the second. But a consumer that empties the dead-letter queue is a normal way to use
// Service Bus, and takes the proof away. Then the verdict rests on what the monitor saw:
//
//	dead letter read                                              ─▶ missed, evidence "deadLetter"
//	overdue right before our nudge, gone right after it
//	  ├─ dead letters stay on this entity                         ─▶ met: it was settled in that instant
//	  └─ otherwise                                                ─▶ missed, evidence "expired"
//	gone, and nobody knows how
//	  ├─ dead letters stay on this entity                         ─▶ met
//	  └─ otherwise                                                ─▶ unknown

// Evidence of a missed deadline, as events name it.
const (
	evidenceDeadLetter = "deadLetter" // its dead letter was read, or this worker dead-lettered it
	evidenceExpired    = "expired"    // it was overdue right before a nudge, and gone right after it
)

// reasonDropped replaces the dead-letter reason in events about messages that the broker dropped.
const reasonDropped = "Dropped"

// deadLetterState says whether dead letters stay on the dead-letter queue of an entity.
type deadLetterState int

const (
	deadLettersUnknown deadLetterState = iota // none was seen for long enough
	deadLettersStay                           // those that were seen are still there
	deadLettersTaken                          // one that was seen is gone: somebody empties the queue
)

const (
	// A dead letter is a witness when it was seen witnessAge ago or longer: who empties the queue as
	// it fills would have taken it. Witnesses are witnessEvery apart, so that they span some time.
	witnessAge   = 300 * time.Millisecond
	witnessEvery = 100 * time.Millisecond
	maxWitnesses = 8
	// How long a state holds that nothing confirms: a consumer may start, or stop, at any time.
	stayHolds  = 30 * time.Second
	takenHolds = 2 * time.Minute
	// confirmEvery is how often witnesses are read while nothing contradicts them.
	confirmEvery = time.Second
)

// witness is a dead letter that was seen, by our clock.
type witness struct {
	search.Identity
	seen time.Time
}

// deadLetterQueue is what is known of how dead letters fare on an entity.
type deadLetterQueue struct {
	state     deadLetterState
	confirmed time.Time // by our clock: when the state was last observed
	witnesses [maxWitnesses]witness
}

// current returns the state, unless it is too old to count.
func (q *deadLetterQueue) current(now time.Time) deadLetterState {
	holds := stayHolds
	if q.state == deadLettersTaken {
		holds = takenHolds
	}
	if now.Sub(q.confirmed) > holds {
		return deadLettersUnknown
	}
	return q.state
}

// observe moves the state on after witnesses were read again: kept of them are still there, and
// lost are gone.
func (q *deadLetterQueue) observe(now time.Time, kept, lost int) {
	switch state := q.current(now); {
	case lost > 0:
		*q = deadLetterQueue{state: deadLettersTaken, confirmed: now}
	case kept > 0 && state != deadLettersTaken:
		q.state, q.confirmed = deadLettersStay, now
	}
}

// add makes a dead letter a witness, in the place of the oldest, unless one was made a moment ago.
func (q *deadLetterQueue) add(at search.Identity, now time.Time) {
	oldest := 0
	for i, w := range q.witnesses {
		if w.Identity == at || now.Sub(w.seen) < witnessEvery {
			return
		}
		if w.seen.Before(q.witnesses[oldest].seen) {
			oldest = i
		}
	}
	q.witnesses[oldest] = witness{at, now}
}

// old returns the witnesses that count.
func (q *deadLetterQueue) old(now time.Time) (wants []*search.Want) {
	for _, w := range q.witnesses {
		if w.Number != 0 && now.Sub(w.seen) >= witnessAge {
			wants = append(wants, &search.Want{Identity: w.Identity})
		}
	}
	return wants
}

// deadLetters returns whether dead letters stay on e, as far as that is known.
func (e *entity) deadLetters() deadLetterState {
	known := e.w.states.get(e.key).deadLetters
	return known.current(time.Now())
}

// sawDeadLetter notes a dead letter that was just read.
func (e *entity) sawDeadLetter(m *link.Message) {
	e.w.states.update(e.key, func(f *entityState) { f.deadLetters.add(search.IdentityOf(m), time.Now()) })
}

// confirmDeadLetters reads the witnesses again and returns the state that follows. Without any,
// nothing speaks for letters that stay.
func (e *entity) confirmDeadLetters(ctx context.Context) (deadLetterState, error) {
	known := e.w.states.get(e.key).deadLetters
	before := known.current(time.Now())
	wants := known.old(time.Now())
	switch {
	case len(wants) == 0 && before == deadLettersTaken:
		return deadLettersTaken, nil
	case len(wants) == 0:
		return deadLettersUnknown, nil
	}
	// A kept letter proves nothing about the queue.
	if err := e.dead.WithoutKept(func() error { return e.dead.FindNumbered(ctx, wants, nil) }); err != nil {
		return deadLettersUnknown, err
	}
	kept := 0
	for _, w := range wants {
		if w.Found != nil {
			kept++
		}
	}
	e.w.states.update(e.key, func(f *entityState) {
		f.deadLetters.observe(time.Now(), kept, len(wants)-kept)
		known = f.deadLetters
	})
	after := known.current(time.Now())
	if before != after && after == deadLettersTaken {
		e.log.Info("dead letters are taken away: missed deadlines are recognized at the nudge")
	}
	return after, nil
}

// keepConfirmed reads the witnesses again when that is due, so that the state does not lapse while
// deadlines are being missed.
func (e *entity) keepConfirmed(ctx context.Context) error {
	if e.settings.forwardDead != "" || e.settings.drops {
		return nil
	}
	known := e.w.states.get(e.key).deadLetters
	if now := time.Now(); known.current(now) == deadLettersTaken || now.Sub(known.confirmed) < confirmEvery || len(known.old(now)) == 0 {
		return nil
	}
	_, err := e.confirmDeadLetters(ctx)
	return err
}

// decideUnaccounted decides about messages that are gone and in no dead-letter queue of the entity.
func (e *entity) decideUnaccounted(ctx context.Context, watches []*watch) error {
	if e.settings.forwardTo != "" {
		if err := e.findUnforwarded(ctx, watches); err != nil {
			return err
		}
		watches = unaccounted(watches)
	}
	if e.settings.forwardDead != "" {
		if err := e.findForwardedDead(ctx, watches); err != nil {
			return err
		}
		watches = unaccounted(watches)
	}
	if len(watches) == 0 {
		return nil
	}
	state, err := e.confirmDeadLetters(ctx)
	if err != nil {
		return err
	}
	for _, wt := range watches {
		seen := wt.expiredByNudge
		if seen == nil || state == deadLettersStay && !e.settings.drops {
			wt.unaccounted = state == deadLettersTaken
			continue
		}
		wt.missed = e.missed(wt, seen)
		wt.missed.Evidence, wt.missed.DeadLetterReason = evidenceExpired, search.ReasonExpired
		if e.settings.drops {
			wt.missed.DeadLetterReason = reasonDropped
		}
	}
	return nil
}
