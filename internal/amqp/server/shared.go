// SPDX-License-Identifier: Apache-2.0

package server

import "overdue/internal/amqp"

// A delivery-id names a delivery in dispositions, and rises from one to the next (part 2 section
// 2.6.12). The Python SDK breaks that: its Session._outgoing_transfer
// (azure/servicebus/_pyamqp/session.py) reads the number, writes the frame and counts on, without a
// lock, so requests from several threads share an id, and one that was held up comes behind a
// higher one. The service answers all of them; the SDK's own tests depend on it. So does this
// server: nothing but dispositions looks at ids.

// takeIDLocked notes the id of a delivery that begins. One that is not above the last is taken as
// long as the two may have been under way together; further behind, it says nothing any more and
// ends the session.
func (s *Session) takeIDLocked(id uint32) bool {
	if s.hasDelivery && int32(id-s.lastDelivery) <= 0 {
		if s.lastDelivery-id < s.c.cfg.IncomingWindow {
			s.repeats = true
			return true
		}
		s.endLocked(amqp.Errorf(amqp.ErrCondInvalidField, "Delivery-id %d follows %d and must be higher.", id, s.lastDelivery))
		return false
	}
	s.lastDelivery, s.hasDelivery = id, true
	return true
}

// shareLocked is called before d is added to s.received. A disposition for an id that it shares is
// one for all that have it, as the peer reads it: pyamqp gives every delivery of that id the
// outcome that it hears first. So nothing is said until all have theirs, and then what is worst: a
// peer that is told of a failure sends again, one that is told accepted in error has lost a
// message.
func (s *Session) shareLocked(d *Delivery) {
	if !s.repeats || !s.waitsLocked(d.id) {
		return
	}
	if s.shared == nil {
		s.shared = make(map[uint32]amqp.DeliveryState)
	}
	if _, known := s.shared[d.id]; !known {
		s.shared[d.id] = nil
	}
}

// outcomeLocked says how d fared, or notes it until the others of its id have fared, too.
func (s *Session) outcomeLocked(d *Delivery, st amqp.DeliveryState) {
	noted, isShared := s.shared[d.id]
	if !isShared {
		s.ackLocked(amqp.RoleReceiver, d.id, !d.second, st)
		return
	}
	if noted == nil || isAccepted(noted) {
		s.shared[d.id] = st
	}
	if !s.waitsLocked(d.id) {
		s.ackLocked(amqp.RoleReceiver, d.id, !d.second, s.shared[d.id])
		delete(s.shared, d.id)
	}
}

// settleSharedLocked is for when deliveries have gone that others of their id may have waited for.
func (s *Session) settleSharedLocked() {
	for id, st := range s.shared {
		if s.waitsLocked(id) {
			continue
		}
		if delete(s.shared, id); st != nil {
			s.ackLocked(amqp.RoleReceiver, id, true, st)
		}
	}
}

// waitsLocked reports whether a delivery of that id has no outcome yet.
func (s *Session) waitsLocked(id uint32) (waits bool) {
	s.received.each(id, id, func(d *Delivery) bool {
		waits = waits || !d.done
		return false
	})
	return waits
}

func isAccepted(st amqp.DeliveryState) bool {
	if in, ok := st.(*amqp.TransactionalState); ok {
		st = in.Outcome
	}
	_, accepted := st.(amqp.Accepted)
	return accepted
}
