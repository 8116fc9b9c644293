// SPDX-License-Identifier: Apache-2.0

package proxy

// A state is the stage of a send. doc.go has the picture.
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

// An input is an event that moves a send.
type input uint8

const (
	// The prepared send has its place and begins: without companions, or in one of three orders.
	beginAlone input = iota
	beginCompanionFirst
	beginTogether
	beginCompanionLast

	refused            // the send got no settings or no place, or is invalid
	brokerSettled      // the broker has accepted or refused the messages
	companionScheduled // the companions are accepted, or have failed
	timeout            // the time for both outcomes is up
	connectionEnded    // the app's connection is gone, and no one reads the result
)

// An action is the work that a step causes.
type action uint8

const (
	ignore  action = iota // the input comes too late, or is meaningless in the state
	nothing               // only the state changes
	transmit
	schedule
	scheduleAndTransmit
	scheduleAgain // second companions, for stamps later than the window of the first
	finish
)

// next is the transition table of a send. failed says that the input is an error.
//
// It never transmits before it schedules the companions, except with beginCompanionLast: there
// the sender must first prove its right to send.
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

// nextSettled handles the broker's outcome. Refused messages need no companions.
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

// nextScheduled handles the result of the companions.
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

// awaitsCompanions reports whether the send waits for companions only.
func (st state) awaitsCompanions() bool {
	return st == scheduling || st == sent || st == widening
}
