// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// ack is a pending disposition: deliveries of consecutive ids in one state.
type ack struct {
	first, last uint32
	settled     bool
	state       amqp.DeliveryState
}

func roleIndex(r amqp.Role) int {
	if r == amqp.RoleSender {
		return 1
	}
	return 0
}

// Settle sends the outcome of d to the peer and settles it. It may be called from any goroutine;
// settlements before the next write share frames. With rcv-settle-mode second the peer gets the
// outcome first, and d is settled when it has answered. Settle has no effect on a settled delivery,
// or after the end of its link.
func (l *SinkLink) Settle(d *Delivery, st amqp.DeliveryState) {
	s := l.s
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if d.done || d.Settled || d.link != l || l.state != linkAttached {
		return
	}
	d.done = true
	if !d.second {
		l.forgetLocked(d)
	}
	s.outcomeLocked(d, st)
	if l.Reply.SettleNow {
		s.flushAcksLocked(amqp.RoleReceiver)
	}
}

// forgetLocked removes d from the session and makes room for another.
func (l *SinkLink) forgetLocked(d *Delivery) {
	if transport.Remove(&l.s.received, d.id, d) {
		l.unsettled--
		l.topUpLocked()
	}
}

// Settle settles ds with the peer, in answer to Source.Disposition, or when the source gives up
// waiting for an outcome. It may be called from any goroutine. It skips settled deliveries. Avoid
// to give up with go-amqp: a receiver that states an outcome afterwards waits for an answer in
// vain.
func (l *SourceLink) Settle(ds []*Outgone, st amqp.DeliveryState) {
	s := l.s
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, o := range ds {
		if o.link == l && !o.settled && transport.Remove(&s.sent, o.id, o) {
			o.settled = true
			s.ackLocked(amqp.RoleSender, o.id, true, st)
		}
	}
}

// Answer is Settle for an outcome that holds only if a transaction does: the deliveries stay
// unsettled, and the peer may state another outcome.
func (l *SourceLink) Answer(ds []*Outgone, st amqp.DeliveryState) {
	s := l.s
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, o := range ds {
		if o.link == l && !o.settled {
			s.ackLocked(amqp.RoleSender, o.id, false, st)
		}
	}
}

// ackLocked queues a disposition.
func (s *Session) ackLocked(role amqp.Role, id uint32, settled bool, st amqp.DeliveryState) {
	acks := &s.acks[roleIndex(role)]
	next := ack{id, id, settled, st}
	if n := len(*acks); n == 0 || !(*acks)[n-1].join(next) {
		*acks = append(*acks, next)
	}
	s.c.touchLocked(s)
}

// join extends a by b if both form one range in one state.
func (a *ack) join(b ack) bool {
	if a.last+1 != b.first || a.last == math.MaxUint32 || a.settled != b.settled || !sameState(a.state, b.state) {
		return false
	}
	a.last = b.last
	return true
}

// flushAcksLocked writes the pending dispositions, in few frames. Like the service, it states the
// outcomes of a few deliveries to their sender one by one; a range of many costs both sides less.
//
// Ranges to a receiver are short: go-amqp processes the whole frame once for each delivery in it,
// so a range of n costs it n² steps.
func (s *Session) flushAcksLocked(role amqp.Role) {
	acks := s.acks[roleIndex(role)]
	if len(acks) == 0 {
		return
	}
	byID := func(a, b ack) int { return int(int32(a.first - b.first)) }
	if !slices.IsSortedFunc(acks, byID) {
		slices.SortFunc(acks, byID)
	}
	for i := 0; i < len(acks); {
		a := acks[i]
		for i++; i < len(acks) && a.join(acks[i]); i++ {
		}
		for role == amqp.RoleSender && a.last-a.first >= maxSenderRange {
			s.putAckLocked(role, ack{a.first, a.first + maxSenderRange - 1, a.settled, a.state})
			a.first += maxSenderRange
		}
		for role == amqp.RoleReceiver && a.first != a.last && a.last-a.first < maxSingleAcks {
			s.putAckLocked(role, ack{a.first, a.first, a.settled, a.state})
			a.first++
		}
		s.putAckLocked(role, a)
	}
	clear(acks)
	s.acks[roleIndex(role)] = acks[:0]
}

func (s *Session) putAckLocked(role amqp.Role, a ack) {
	d := &s.c.ack
	*d = amqp.Disposition{Role: role, First: a.first, Last: a.last, Settled: a.settled, State: a.state}
	s.c.wire.Put(s.out, d)
	d.State = nil
}

// sameState reports whether a and b are equal. It may report false for equal states that are rare
// and expensive to compare.
func sameState(a, b amqp.DeliveryState) bool {
	if a == b {
		return true
	}
	switch a := a.(type) {
	case *amqp.Rejected:
		b, ok := b.(*amqp.Rejected)
		return ok && a.Error == nil && b.Error == nil
	case *amqp.Modified:
		b, ok := b.(*amqp.Modified)
		return ok && a.DeliveryFailed == b.DeliveryFailed && a.UndeliverableHere == b.UndeliverableHere &&
			len(a.MessageAnnotations) == 0 && len(b.MessageAnnotations) == 0
	case *amqp.TransactionalState:
		b, ok := b.(*amqp.TransactionalState)
		return ok && bytes.Equal(a.TxnID, b.TxnID) && sameState(a.Outcome, b.Outcome)
	}
	return false
}

// onDisposition handles the peer's states of deliveries in either direction.
func (s *Session) onDisposition(d *amqp.Disposition) {
	c := s.c
	c.mu.Lock()
	if s.state != sessionOpen {
		c.mu.Unlock()
		return
	}
	if d.Role == amqp.RoleSender {
		if d.Settled {
			s.received.Each(d.First, d.Last, func(at **Delivery) bool {
				v := *at
				v.done = true // its sender has settled it; Settle would come too late
				v.link.unsettled--
				v.link.topUpLocked()
				return true
			})
			s.settleSharedLocked()
		}
		c.mu.Unlock()
		return
	}
	stated := c.stated[:0]
	_, partly := d.State.(*amqp.Received)
	_, provisional := d.State.(*amqp.TransactionalState)
	s.sent.Each(d.First, d.Last, func(at **Outgone) bool {
		o := *at
		if !o.stated && (d.Settled || !partly) {
			stated = append(stated, o)
		}
		o.stated = o.stated || !partly && !provisional
		o.settled = d.Settled
		return d.Settled
	})
	if len(stated) > 0 {
		stated[0].link.touchLocked() // others, if any, belong to the same client
	}
	c.mu.Unlock()
	callStated(stated, d.State, d.Settled)
	clear(stated)
	c.stated = stated[:0]
}

// callStated calls each link's source with its deliveries.
func callStated(ds []*Outgone, st amqp.DeliveryState, settled bool) {
	if len(ds) == 0 {
		return
	}
	if slices.ContainsFunc(ds, func(o *Outgone) bool { return o.link != ds[0].link }) {
		slices.SortStableFunc(ds, func(a, b *Outgone) int { return cmp.Compare(a.link.number, b.link.number) })
	}
	for len(ds) > 0 {
		l := ds[0].link
		n := slices.IndexFunc(ds, func(o *Outgone) bool { return o.link != l })
		if n < 0 {
			n = len(ds)
		}
		l.handler.Disposition(ds[:n:n], st, settled)
		ds = ds[n:]
	}
}

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
