// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"

	"overdue/internal/amqp"
)

// onTransfer takes one frame of a delivery, and after the last one passes the delivery to its sink.
func (s *Session) onTransfer(t *amqp.Transfer, payload []byte) error {
	c := s.c
	c.mu.Lock()
	d, sink := s.takeTransferLocked(t, payload)
	c.mu.Unlock()
	if d != nil {
		sink.Deliver(d)
	}
	return nil
}

// takeTransferLocked returns the delivery that t completes, if it does.
func (s *Session) takeTransferLocked(t *amqp.Transfer, payload []byte) (*Delivery, Sink) {
	if s.state != sessionOpen {
		return nil, nil
	}
	if !s.usedWindowLocked() {
		s.endLocked(&amqp.Error{Condition: amqp.ErrCondSessionWindowViolation, Description: "A transfer came while the incoming window was closed."})
		return nil, nil
	}
	link := s.links[t.Handle]
	if link == nil {
		s.endLocked(amqp.Errorf(amqp.ErrCondSessionUnattachedHandle, "Transfer names handle %d, which is not attached.", t.Handle))
		return nil, nil
	}
	if link.state == linkAttaching {
		link.refuseLocked(amqp.Errorf(amqp.ErrCondLinkTransferLimitExceeded, "Delivery %d came before credit was granted.", t.DeliveryID))
	}
	if link.state != linkAttached {
		return nil, nil // it crossed our detach
	}
	if link.sink == nil {
		link.detachLocked(&amqp.Error{Condition: amqp.ErrCondNotAllowed, Description: "A transfer came from the link's receiver."})
		return nil, nil
	}
	l := link.sink
	d := l.current
	if d == nil {
		if d = l.firstLocked(t); d == nil {
			return nil, nil
		}
	} else if e := d.continues(t); e != nil {
		l.detachLocked(e)
		return nil, nil
	}
	d.Settled = d.Settled || t.Settled
	if t.State != nil {
		d.State = t.State
	}
	switch {
	case t.Aborted:
		l.dropPartialLocked() // an aborted delivery counts as settled
		l.topUpLocked()
		return nil, nil
	case !l.roomLocked(d, len(payload)):
		return nil, nil
	case t.More:
		if l.current = d; l.partial == nil {
			l.partial, s.c.assembly = s.c.assembly, nil
		}
		l.partial = append(l.partial, payload...)
		return nil, nil
	}
	l.finishLocked(d, payload)
	return d, l.handler
}

// firstLocked begins a delivery. An invalid one ends the link or the session, and the result is
// nil.
func (l *SinkLink) firstLocked(t *amqp.Transfer) *Delivery {
	s := l.s
	l.touchLocked()
	var e *amqp.Error
	switch {
	case !t.HasDeliveryID:
		e = amqp.Errorf(amqp.ErrCondInvalidField, "The first transfer of a delivery has no delivery-id.")
	case t.DeliveryTag == nil:
		e = amqp.Errorf(amqp.ErrCondInvalidField, "The first transfer of delivery %d has no delivery-tag.", t.DeliveryID)
	case t.Resume:
		e = amqp.Errorf(amqp.ErrCondNotImplemented, "Delivery %d cannot be resumed: nothing is kept of a link that was detached.", t.DeliveryID)
	case l.credit == 0:
		e = amqp.Errorf(amqp.ErrCondLinkTransferLimitExceeded, "Delivery %d came without credit.", t.DeliveryID)
	}
	if e != nil {
		l.detachLocked(e)
		return nil
	}
	if !s.takeIDLocked(t.DeliveryID) {
		return nil
	}
	l.deliveryCount++
	l.credit--
	d := &Delivery{Format: t.MessageFormat, link: l, id: t.DeliveryID}
	d.second = !l.Reply.SettleFirst && l.attach.RcvSettleMode == amqp.RcvSecond && (!t.HasRcvSettleMode || t.RcvSettleMode == amqp.RcvSecond)
	d.Tag = append(d.tag[:0], t.DeliveryTag...)
	return d
}

// continues checks t as a further transfer of d.
func (d *Delivery) continues(t *amqp.Transfer) *amqp.Error {
	switch {
	case t.HasDeliveryID && t.DeliveryID != d.id:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "Delivery %d began before delivery %d of the same link was complete.", t.DeliveryID, d.id)
	case t.DeliveryTag != nil && !bytes.Equal(t.DeliveryTag, d.Tag):
		return amqp.Errorf(amqp.ErrCondNotAllowed, "The delivery-tag changes within delivery %d.", d.id)
	case t.HasMessageFormat && t.MessageFormat != d.Format:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "The message-format changes within delivery %d.", d.id)
	}
	return nil
}

// roomLocked reports whether n more bytes of d may be taken. Otherwise it rejects d and detaches
// the link. The detach alone would not be enough: senders wait for the outcome of the delivery,
// rhea's until its timeout.
func (l *SinkLink) roomLocked(d *Delivery, n int) bool {
	limit := l.Reply.MaxMessageSize
	if limit == noLimit {
		limit = l.s.c.cfg.MaxMessageSize
	}
	if uint64(len(l.partial))+uint64(n) <= limit {
		return true
	}
	e := amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "The message has more than %d bytes, which is max-message-size.", limit)
	if !d.Settled {
		l.s.ackLocked(amqp.RoleReceiver, d.id, true, &amqp.Rejected{Error: e})
	}
	l.detachLocked(e)
	return false
}

// finishLocked completes d. The payload of several frames is copied into a buffer of exact size,
// since it may be kept for long. The assembly buffer serves the next delivery.
func (l *SinkLink) finishLocked(d *Delivery, last []byte) {
	d.Payload = make([]byte, len(l.partial)+len(last))
	copy(d.Payload[copy(d.Payload, l.partial):], last)
	l.dropPartialLocked()
	if d.Settled {
		l.topUpLocked()
		return
	}
	l.unsettled++
	l.s.shareLocked(d)
	l.s.received.Add(d.id, d)
	if l.s.received.Len() > l.s.c.cfg.MaxUnsettled {
		l.s.endLocked(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The session has more than %d unsettled deliveries.", l.s.c.cfg.MaxUnsettled))
	}
}

// dropPartialLocked drops an incomplete delivery. One assembly buffer per connection is kept: there
// are many links, and most messages come in one frame.
func (l *SinkLink) dropPartialLocked() {
	l.current = nil
	if l.partial == nil {
		return
	}
	if cap(l.partial) <= assemblyKeep {
		l.s.c.assembly = l.partial[:0]
	}
	l.partial = nil
}
