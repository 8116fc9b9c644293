// SPDX-License-Identifier: Apache-2.0

package proxy

// A state is how far a send has come. doc.go has the picture.
type state uint8

const (
	waiting     state = iota // for the entity's settings, or for a place
	scheduling               // the companions are in flight; the messages are held back
	together                 // messages and companions are in flight
	sending                  // the messages are in flight; the companions are accepted, or there are none
	unscheduled              // the messages are in flight; the companions have failed
	proving                  // the messages are in flight; the companions follow them
	sent                     // the messages are accepted; the companions are in flight
	widening                 // both are accepted; second companions may be in flight
	done
)

// An input is what can happen to a send.
type input uint8

const (
	// The send is prepared, has its place, and begins: without companions, or in one of three orders.
	beginAlone input = iota
	beginCompanionFirst
	beginTogether
	beginCompanionLast

	refused            // the send got no settings or no place, or it is not a good one
	brokerSettled      // the broker has come to an outcome
	companionScheduled // the monitor queue has
	timeout            // nobody waits for either any longer
	connectionEnded    // of the app; nobody hears the result
)

// An action is what follows a step.
type action uint8

const (
	ignore  action = iota // the input comes too late, or has no meaning in the state
	nothing               // but the new state
	transmit
	schedule
	scheduleAndTransmit
	scheduleAgain // what the broker may have stamped too late for the first companions
	finish
)

// next is the table of a send. failed says that the input is an error.
//
// It never transmits before the companions are on their way, with one exception: behind
// beginCompanionLast the sender has yet to prove that it may send.
func next(from state, in input, failed bool) (state, action) {
	if from == done {
		return done, ignore
	}
	switch in {
	case timeout, connectionEnded:
		return done, finish
	case refused:
		if from == waiting {
			return done, finish
		}
	case brokerSettled:
		return nextSettled(from, failed)
	case companionScheduled:
		return nextScheduled(from, failed)
	default:
		if from == waiting {
			return nextBegun(in)
		}
	}
	return from, ignore
}

func nextBegun(in input) (state, action) {
	switch in {
	case beginCompanionFirst:
		return scheduling, schedule
	case beginTogether:
		return together, scheduleAndTransmit
	case beginCompanionLast:
		return proving, transmit
	}
	return sending, transmit
}

// nextSettled follows the broker's outcome. Messages that the broker does not take need no
// companions.
func nextSettled(from state, failed bool) (state, action) {
	switch from {
	case together, sending, unscheduled, proving:
	default:
		return from, ignore
	}
	if failed {
		return done, finish
	}
	switch from {
	case together:
		return sent, nothing
	case proving:
		return sent, schedule
	case sending:
		return widening, scheduleAgain
	}
	return done, finish
}

// nextScheduled follows the monitor queue's outcome.
func nextScheduled(from state, failed bool) (state, action) {
	switch from {
	case scheduling:
		if failed {
			return done, finish
		}
		return sending, transmit
	case together:
		if failed {
			return unscheduled, nothing
		}
		return sending, nothing
	case sent:
		if failed {
			return done, finish
		}
		return widening, scheduleAgain
	case widening:
		return done, finish
	}
	return from, ignore
}

// awaitsCompanions reports whether companions are all that the send waits for.
func (st state) awaitsCompanions() bool {
	return st == scheduling || st == sent || st == widening
}
