// SPDX-License-Identifier: Apache-2.0

package server

import "overdue/internal/amqp"

// A delivery-id names a delivery in dispositions, and rises from one to the next (part 2 section
// 2.6.12). The Python SDK breaks that: its Session._outgoing_transfer
// (azure/servicebus/_pyamqp/session.py) reads the number, writes the frame and increments it,
// without a lock. So requests from several threads may share an id, and a delayed one may follow a
// higher one. The service answers all of them, and the SDK's own tests depend on that. This server
// does the same: only dispositions use ids.

// takeIDLocked records the id of a new delivery. It accepts an id that is not above the last one if
// the two may have been in flight together. An id further behind ends the session.
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

// shareLocked is called before d is added to s.received. The peer applies a disposition to all
// deliveries with its id: pyamqp gives each of them the first outcome that arrives. So the server
// waits until all have an outcome, and states the worst one: after a failure the peer sends again,
// but a wrong accepted would lose a message.
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

// outcomeLocked sends the outcome of d, or keeps it until the others with its id have theirs.
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

// settleSharedLocked follows the removal of deliveries that others with their id may wait for.
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

// waitsLocked reports whether a delivery with that id has no outcome yet.
func (s *Session) waitsLocked(id uint32) (waits bool) {
	s.received.Each(id, id, func(d **Delivery) bool {
		waits = waits || !(*d).done
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
