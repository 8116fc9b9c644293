// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"math/rand/v2"
	"time"

	"overdue/internal/servicebus/link"
)

const (
	// A message that an attempt left in place is tried again at once when its delivery count shows
	// that it came back, otherwise after attemptMin, doubling up to attemptMax: each attempt may
	// affect live messages for an instant. Two monitors that scan the same queue obstruct each other,
	// hence a random quarter either way.
	attemptMin = time.Second
	attemptMax = time.Minute
	// An attempt that affects no other message follows sooner: no delivery count shows that a
	// consumer released a session, or the lock of a deferred message.
	attemptHarmless = 500 * time.Millisecond
)

// attempt is the last attempt to expire a message.
type attempt struct {
	deliveryCount uint32 // of the message at that time
	delay         time.Duration
	next          time.Time // by our clock: the next attempt; zero: there was none yet
	checks        int       // since it is in flight
	cut           bool      // the scan ended before it: it is the turn of the next one
}

// isMade reports whether there was an attempt.
func (a *attempt) isMade() bool { return !a.next.IsZero() }

// isFree reports whether no consumer holds m, as far as its delivery count shows. A message that an
// attempt to expire it left in place is locked. It is free again when its count has risen: the lock
// has lapsed, or was abandoned. A settlement does not raise it
// (learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement).
func (a *attempt) isFree(m *link.Message) bool {
	return !a.isMade() || m.DeliveryCount != a.deliveryCount
}

// noteAttempts records the attempts that left messages in place.
func (s *scope) noteAttempts() {
	for _, wt := range s.watches {
		if wt.state != stateInFlight || !wt.there {
			continue
		}
		a := &wt.attempt
		if a.cut {
			a.cut = false
			continue
		}
		switch {
		case wt.judgement.Deferred || s.receiver == nil:
			a.delay = attemptHarmless
		case a.isFree(wt.seen):
			a.delay = attemptMin
		default:
			a.delay = min(max(a.delay*2, attemptMin), attemptMax)
		}
		a.deliveryCount = wt.seen.DeliveryCount
		a.next = time.Now().Add(a.delay*3/4 + rand.N(a.delay/2))
	}
}
