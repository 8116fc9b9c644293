// SPDX-License-Identifier: Apache-2.0

package monitor

import "time"

// order says whether a check or a nudge comes first on an entity:
//
//	             letters stayed, many missed, fell behind           nothing found
//	checkFirst ─────────────────────────────────────▶ nudgeFirst ─────────────▶ checkOnly
//	     ▲                 letters taken, or until           │    letters stayed     │
//	     ├───────────────────────────────────────────────────┘ ◀─────────────────────┤
//	     └─────────────────────────────────────────────────────────────────── until ─┘
type order struct {
	state orderState
	until time.Time // by our clock: checkFirst from then on
	found time.Time // by our clock: when many missed deadlines were last found
}

type orderState int

const (
	checkFirst orderState = iota // the check is the evidence, and where deadlines are met it is all there is to do
	nudgeFirst                   // deadlines are being missed, and that can be seen after the nudge
	checkOnly                    // nudges have left nothing that shows missed deadlines
)

// orderEvent is what a check shows about the order.
type orderEvent int

const (
	lettersStayed orderEvent = iota // deadlines were missed, and dead letters stay on the entity
	lettersTaken                    // dead letters are taken away, although they seemed to stay
	manyMissed                      // so many dead letters were read that checks would not keep up
	fellBehind                      // checks do not keep up, or take too many peeks
	nothingFound                    // a nudge that came first left no dead letter to read
)

const (
	// stayedFor is how long the nudge comes first after a missed deadline where dead letters stay,
	// and busyFor where they may be taken away.
	stayedFor = 30 * time.Second
	busyFor   = 2 * time.Second
	// manyFor is how long many deadlines are expected to be missed after the last time.
	manyFor = 5 * time.Second
	// checkOnlyFor is how long the check comes first after nudges that left nothing.
	checkOnlyFor = time.Minute
)

// current returns the state at an instant of our clock.
func (o *order) current(now time.Time) orderState {
	if !now.Before(o.until) {
		return checkFirst
	}
	return o.state
}

// observe moves the state on.
func (o *order) observe(event orderEvent, now time.Time) {
	state, until := o.current(now), o.until
	move := func(to orderState, d time.Duration) {
		o.state, o.until = to, now.Add(d)
		if to == state && until.After(o.until) {
			o.until = until
		}
	}
	switch {
	case event == lettersStayed:
		move(nudgeFirst, stayedFor)
	case event == lettersTaken && state == nudgeFirst:
		move(checkFirst, 0)
	case event == manyMissed:
		o.found = now
		if state != checkOnly {
			move(nudgeFirst, busyFor)
		}
	case event == fellBehind && state != checkOnly:
		move(nudgeFirst, busyFor)
	case event == nothingFound && now.Sub(o.found) > busyFor: // a single nudge may lose the race
		move(checkOnly, checkOnlyFor)
	}
}
