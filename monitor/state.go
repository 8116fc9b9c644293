// SPDX-License-Identifier: Apache-2.0

package monitor

import "overdue/scheduler"

// state is where a watched deadline stands. The picture is in doc.go.
type state int

const (
	stateWaiting  state = iota // its deadline, or a reminder, is still to come
	stateOverdue               // it is on the work queue, and its deadline has passed
	stateExpiring              // overdue, and its time to live ends within a moment
	stateInFlight              // an attempt to expire it left it in place: a consumer probably holds it
	stateGone                  // it is not on the work queue any more, and nothing shows why
	stateMissed                // it has expired; only the notification is left
)

// sight is what the monitor has just seen of a message.
type sight int

const (
	foundEarly   sight = iota // it is on the work queue, before its deadline
	foundOverdue              // it is there after its deadline
	expiresSoon               // its time to live ends within expiryWait
	leftInPlace               // an attempt to expire it left it there
	notFound                  // it is not on the work queue
	foundExpired              // it has expired, by its dead letter or by other evidence
)

// after is the state that follows s. Only an overdue message is expired or waits for its expiry,
// and what has expired stays so. Anything else may come and go: a peek does not show a message
// whose send is late, and a repeated message-id may be another message.
func (s state) after(seen sight) state {
	switch {
	case s == stateMissed || seen == foundExpired:
		return stateMissed
	case seen == notFound:
		return stateGone
	case seen == foundEarly:
		return stateWaiting
	case seen == foundOverdue:
		return stateOverdue
	case s == stateOverdue && seen == expiresSoon:
		return stateExpiring
	case s == stateOverdue && seen == leftInPlace:
		return stateInFlight
	}
	return s
}

// see moves wt on.
func (wt *watch) see(seen sight) { wt.state = wt.state.after(seen) }

// expired moves wt on to its notification.
func (wt *watch) expired(m *scheduler.Missed) {
	wt.missed = m
	wt.see(foundExpired)
}
