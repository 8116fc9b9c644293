// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"math/rand/v2"
	"time"

	"overdue/internal/servicebus/link"
)

// attempt is the last attempt to expire a message.
type attempt struct {
	deliveryCount uint32    // of the message at that time
	next          time.Time // by our clock: the next attempt; zero: there was none yet
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

// noteAttempts records the attempts that left messages in place. Such a message is tried again at
// once when its delivery count shows that it came back. Otherwise an attempt waits: it may affect
// live messages for an instant. Two monitors that scan the same queue obstruct each other, hence a
// random quarter either way. An attempt that affects no other message follows soon: no delivery
// count shows that a consumer released a session, or the lock of a deferred message.
func (s *scope) noteAttempts(now time.Time) {
	for _, wt := range s.watches {
		if wt.state != stateInFlight || !wt.there {
			continue
		}
		a := &wt.attempt
		if a.cut {
			a.cut = false
			continue
		}
		delay := checkMax
		if !wt.judgement.Deferred && s.receiver != nil {
			delay = max(delay, growing(now.Sub(wt.due), waitMax))
		}
		a.deliveryCount = wt.seen.DeliveryCount
		a.next = time.Now().Add(delay*3/4 + rand.N(delay/2))
	}
}
