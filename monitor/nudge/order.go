// SPDX-License-Identifier: Apache-2.0

package nudge

import "time"

// Order says whether a check or a nudge comes first on an entity:
//
//	             letters stayed, many missed, fell behind           nothing found
//	CheckFirst ─────────────────────────────────────▶ NudgeFirst ─────────────▶ CheckOnly
//	     ▲                 letters taken, or until           │    letters stayed     │
//	     ├───────────────────────────────────────────────────┘ ◀─────────────────────┤
//	     └─────────────────────────────────────────────────────────────────── until ─┘
type Order struct {
	state OrderState
	until time.Time // by our clock: CheckFirst from then on
	read  time.Time // by our clock: when dead letters were last read behind nudges that came first
	many  time.Time // by our clock: when there were last so many that checks do not keep up
}

// OrderState is what comes first.
type OrderState int

const (
	CheckFirst OrderState = iota // the check is the evidence, and where deadlines are met it is all there is to do
	NudgeFirst                   // deadlines are being missed, and that can be seen after the nudge
	CheckOnly                    // nudges have left nothing that shows missed deadlines
)

// OrderEvent is what a check shows about the order.
type OrderEvent int

const (
	LettersStayed OrderEvent = iota // deadlines were missed, and dead letters stay on the entity
	LettersTaken                    // dead letters are taken away, although they seemed to stay
	ManyMissed                      // so many dead letters were read that checks would not keep up
	LettersRead                     // nudges that came first left dead letters to read, most of the time
	FellBehind                      // checks do not keep up, or take too many peeks
	NothingFound                    // a nudge that came first left no dead letter to read
)

const (
	// stayedFor is how long the nudge comes first after a missed deadline where dead letters stay,
	// and manyFor where there were many deadlines, which are expected to go on so long.
	stayedFor = 30 * time.Second
	manyFor   = 5 * time.Second
	// checkOnlyFor is how long the check comes first after nudges that left nothing.
	checkOnlyFor = time.Minute
)

// Current returns the state at an instant of our clock.
func (o Order) Current(now time.Time) OrderState {
	if !now.Before(o.until) {
		return CheckFirst
	}
	return o.state
}

// Many reports whether there were so many deadlines a moment ago that checks do not keep up.
func (o Order) Many(now time.Time) bool { return now.Sub(o.many) < manyFor }

// Observe moves the state on.
func (o *Order) Observe(event OrderEvent, now time.Time) {
	state, until := o.Current(now), o.until
	move := func(to OrderState, d time.Duration) {
		o.state, o.until = to, now.Add(d)
		if to == state && until.After(o.until) {
			o.until = until
		}
	}
	if event == ManyMissed || event == FellBehind {
		o.many = now
	}
	if event == ManyMissed || event == LettersRead {
		o.read = now
	}
	switch {
	case event == LettersStayed:
		move(NudgeFirst, stayedFor)
	case event == LettersTaken && state == NudgeFirst:
		move(CheckFirst, 0)
	case (event == ManyMissed || event == FellBehind) && state != CheckOnly:
		move(NudgeFirst, manyFor)
	case event == NothingFound && now.Sub(o.read) > manyFor: // a single nudge may lose the race
		move(CheckOnly, checkOnlyFor)
	}
}
