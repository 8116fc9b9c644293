// SPDX-License-Identifier: Apache-2.0

package search

import (
	"slices"
	"time"

	"overdue/internal/servicebus/link"
)

// LetterState says whether dead letters stay on the dead-letter queue of an entity.
type LetterState int

const (
	LettersUnknown LetterState = iota // none was seen for long enough
	LettersStay                       // those that were seen are still there
	LettersTaken                      // one that was seen is gone: somebody empties the queue
)

const (
	// A dead letter is a witness when it was seen witnessAge ago or longer: who empties the queue
	// as it fills would have taken it. Witnesses are witnessEvery apart, so that they span some
	// time.
	witnessAge   = 300 * time.Millisecond
	witnessEvery = 100 * time.Millisecond
	maxWitnesses = 8
	// How long a state holds that nothing confirms: a consumer may start, or stop, at any time.
	stayHolds  = 30 * time.Second
	takenHolds = 2 * time.Minute
)

// witness is a dead letter that was seen, by our clock.
type witness struct {
	Identity
	seen time.Time
}

// Letters says whether dead letters stay on an entity, by those that were seen before and read
// again:
//
//	                 some are still there
//	LettersUnknown ───────────────────────▶ LettersStay
//	  ▲    ▲    └───── one is gone ─────┐         │ one is gone
//	  │    └── nothing seen: stayHolds ─│─────────┤
//	  └────────────────────────────┐    ▼         ▼
//	                               └─ LettersTaken, takenHolds long
type Letters struct {
	state     LetterState
	Confirmed time.Time // by our clock: when the state was last observed
	witnesses [maxWitnesses]witness
	// recognized: one had the number and the stamp of its message. differ: one had not.
	recognized, differ bool
}

// Recognize records that a dead letter has the number and the stamp that its message had. Before,
// none is a witness: where they change, none can be found again.
func (q *Letters) Recognize() { q.recognized = !q.differ }

// Contradict records that a dead letter has another number or stamp than its message had.
func (q *Letters) Contradict() { *q = Letters{differ: true} }

// Recognized reports whether Recognize was called.
func (q Letters) Recognized() bool { return q.recognized }

// Current returns the state, unless it is too old to count.
func (q Letters) Current(now time.Time) LetterState {
	holds := stayHolds
	if q.state == LettersTaken {
		holds = takenHolds
	}
	if now.Sub(q.Confirmed) > holds {
		return LettersUnknown
	}
	return q.state
}

// Observe moves the state on after witnesses were read again: kept of them are still there, and
// lost are gone.
func (q *Letters) Observe(now time.Time, kept, lost int) {
	switch state := q.Current(now); {
	case lost > 0:
		*q = Letters{state: LettersTaken, Confirmed: now, recognized: q.recognized, differ: q.differ}
	case kept > 0 && state != LettersTaken:
		q.state, q.Confirmed = LettersStay, now
	}
}

// ObservePage observes the witnesses on a page of the dead-letter queue, and makes witnesses of the
// first letter, which a consumer takes soonest, and of the last. recognized: see Recognize. Where a
// witness is missing, a search for it has to show that it is gone.
func (q *Letters) ObservePage(page []*link.Message, recognized bool, now time.Time) {
	if recognized {
		q.Recognize()
	}
	q.Add(IdentityOf(page[0]), now)
	q.Add(IdentityOf(page[len(page)-1]), now)
	kept := 0
	for _, w := range q.Witnesses(now) {
		if slices.ContainsFunc(page, func(m *link.Message) bool { return IdentityOf(m) == w.Identity }) {
			kept++
		} else if w.Number <= page[len(page)-1].SequenceNumber {
			return
		}
	}
	q.Observe(now, kept, 0)
}

// Add makes a dead letter a witness, in the place of the oldest, unless one was made a moment ago.
func (q *Letters) Add(at Identity, now time.Time) {
	if !q.recognized {
		return
	}
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

// SeenSince reports whether a witness was seen at an instant or later.
func (q Letters) SeenSince(at time.Time) bool {
	return slices.ContainsFunc(q.witnesses[:], func(w witness) bool { return !w.seen.Before(at) })
}

// Witnesses returns the witnesses that count.
func (q *Letters) Witnesses(now time.Time) (wants []*Want) {
	for _, w := range q.witnesses {
		if w.Number != 0 && now.Sub(w.seen) >= witnessAge {
			wants = append(wants, &Want{Identity: w.Identity})
		}
	}
	return wants
}
