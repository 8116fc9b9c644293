// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// passing is the delivery that a link is passing on.
type passing struct {
	more    bool // its last frame has not
	out     uint32
	settled bool
}

// onTransferLocked passes one frame of a delivery on.
func (h *half) onTransferLocked(t *amqp.Transfer, payload []byte) {
	if !h.windows.Receive() {
		h.s.failLocked(&amqp.Error{Condition: amqp.ErrCondSessionWindowViolation, Description: "A transfer came while the incoming window was closed."})
		return
	}
	l := h.links[t.Handle]
	if l == nil {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondSessionUnattachedHandle, "Transfer names handle %d, which is not attached.", t.Handle))
		return
	}
	if l.sender != h.side.at {
		l.breakLocked(&amqp.Error{Condition: amqp.ErrCondNotAllowed, Description: "A transfer came from the link's receiver."})
		return
	}
	if l.watcher != nil && h.side.at == client && !l.credited {
		// Upstream has not accepted the link yet, and may refuse it. A watcher must not act on
		// transfers from a client without the right to send.
		h.s.failLocked(&amqp.Error{Condition: amqp.ErrCondLinkTransferLimitExceeded, Description: "A transfer came before any credit was given."})
		return
	}
	if !l.came.more && !t.HasDeliveryID {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondInvalidField, "The first transfer of a delivery has no delivery-id."))
		return
	}
	first := !l.came.more
	if first {
		l.came = coming{id: t.DeliveryID}
		// A client sends a delivery again, elsewhere, unless it has seen it accepted.
		l.came.dropped = h.s.c.draining && h.side.at == client && !t.Settled
	} else if t.HasDeliveryID && t.DeliveryID != l.came.id {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondNotAllowed, "Delivery %d began before delivery %d of the same link was complete.", t.DeliveryID, l.came.id))
		return
	}
	l.came.more = t.More && !t.Aborted
	l.came.settled = l.came.settled || t.Settled
	switch {
	case l.came.dropped, l.ends[h.side.at].sentDetach && (l.sender != upstream || !l.came.settled):
		// It crosses our close or our detach.
	case l.node != nil:
		l.node.onTransferLocked(h, l, t, payload)
	case l.watcher != nil, l.watch.begun, l.reply != nil && first && len(h.s.c.requests) > 0:
		l.onWatchedLocked(h, t, payload)
	default:
		if l.reply != nil && first && !t.More {
			payload = h.s.c.names.response(payload)
		}
		if l.observed != nil {
			h.observed.observe(l, t, payload, first)
		}
		h.passLocked(&entry{link: l, transfer: *t, payload: payload, borrowed: true, counted: true})
	}
	h.topUpLocked()
}

// coming is the delivery that is arriving on a link.
type coming struct {
	more    bool // its last frame has not come
	settled bool // by its sender
	id      uint32
	dropped bool // it does not go on
}

// topUpLocked notes that the peer may be due a wider window, because transfers have left or are
// dropped.
func (h *half) topUpLocked() {
	w := h.s.c.cfg.IncomingWindow
	if !h.isDirty && h.windows.Incoming < (w+1)/2 && w > h.queued+h.windows.Incoming {
		h.oweFlowLocked()
	}
}

// oweFlowLocked marks the peer for a flow with the session's state.
func (h *half) oweFlowLocked() {
	if !h.isDirty && h.begun && !h.sentEnd {
		h.isDirty = true
		h.side.dirty = append(h.side.dirty, h)
	}
}

// emitTransferLocked sends as much of a frame as the other peer's window and output allow, cut to
// the peer's frame size.
func (h *half) emitTransferLocked(e *entry) bool {
	o, l := h.other(), e.link
	end := &l.ends[o.side.at]
	// A delivery that upstream has settled exists only here. A client that has detached gets it
	// before the detach that it waits for, like a delivery on the wire.
	gone := l.left && l.sender == upstream
	if end.sentDetach || gone && !e.transfer.Settled && !l.pass.settled {
		return true
	}
	if e.transfer.Aborted {
		e.payload = nil // an aborted delivery's payload does not matter and need not fit
	}
	if l.reply != nil && !l.pass.more && !l.reply.mayGoLocked() {
		return gone
	}
	if goes, over := e.askLocked(); !goes {
		return over
	}
	t := &o.side.transfer
	for {
		if gone && o.windows.Outgoing == 0 {
			return true // the window may never open again, and the detach must not wait for it
		}
		if !o.takesLocked() {
			return false
		}
		if !l.pass.more {
			h.beginDeliveryLocked(e)
		}
		l.pass.settled = l.pass.settled || e.transfer.Settled
		*t = e.transfer
		t.Handle, t.DeliveryID = end.out, l.pass.out
		o.windows.Send()
		n := o.side.PutTransfer(o.out, t, e.payload)
		t.DeliveryTag, t.State = nil, nil
		if n == len(e.payload) {
			e.payload = nil
			break
		}
		e.payload = e.payload[n:]
		// The remaining frames repeat no fields of the first; those still apply.
		e.transfer = amqp.Transfer{More: e.transfer.More, Batchable: e.transfer.Batchable}
	}
	if !e.transfer.More || e.transfer.Aborted {
		h.endDeliveryLocked(e)
	}
	return true
}

// askLocked asks the handler of a delivery, before its first frame, whether that may go on. If it
// does not go, over says that it never will.
func (e *entry) askLocked() (goes, over bool) {
	k := e.pending
	if k == nil || e.link.pass.more {
		return true, false
	}
	ok, refusal := k.mayGoLocked()
	switch {
	case !ok:
		return false, false
	case refusal != nil:
		e.link.skipLocked(k.in, k.delivery, refusal)
		return false, true
	}
	e.payload = k.delivery.Payload
	return true, false
}

// takesLocked reports whether the peer of o takes a frame now.
func (o *half) takesLocked() bool {
	if o.windows.Outgoing == 0 || !o.begun {
		return false
	}
	if o.side.Full() && o.side.State == transport.Open {
		if !o.isBlocked {
			o.isBlocked = true
			o.side.blocked = append(o.side.blocked, o) // resumed when the output is shorter
		}
		o.side.Signal()
		return false
	}
	return true
}

// beginDeliveryLocked numbers a delivery for the other peer, before its first frame.
func (h *half) beginDeliveryLocked(e *entry) {
	o, l := h.other(), e.link
	l.pass = passing{more: true, out: o.nextDelivery}
	o.nextDelivery++
	if !e.local {
		h.ids.add(e.transfer.DeliveryID, l.pass.out)
	}
	if l.reply != nil {
		l.goesLocked(e.local)
	}
	if e.isHandled() {
		h.addPendingLocked(e.pending, l.pass.out)
	}
}

// endDeliveryLocked follows the last frame of a delivery.
func (h *half) endDeliveryLocked(e *entry) {
	l := e.link
	l.pass.more = false
	if !l.pass.settled && !e.transfer.Aborted {
		h.unsettled++
	}
	if e.isHandled() && l.pass.settled && !e.pending.responds {
		e.pending.goneOnLocked()
	}
}

// isHandled reports whether a handler awaits the outcome of the delivery.
func (e *entry) isHandled() bool { return e.pending != nil && e.pending.handler != nil }

// releaseUnsentLocked releases the complete deliveries of upstream, h, that wait here when their
// receiver goes. The client has seen nothing of them, and upstream would keep them locked.
// Without the relay they would not have left upstream, whose window to the client was closed. of
// is the link that goes; nil: all links go.
//
// A delivery that the client has in part, or may have, is not released: only the client knows its
// outcome.
func (h *half) releaseUnsentLocked(of *link) {
	type delivery struct {
		id            uint32
		more, settled bool
		begun         bool // a part of it has gone on
	}
	var unfinished map[*link]delivery
	for i := h.queue.head; i < len(h.queue.entries); i++ {
		e := &h.queue.entries[i]
		l := e.link
		if l == nil || e.p != nil || e.local || of != nil && l != of || l.sender != upstream || l.reply != nil {
			continue
		}
		d, known := unfinished[l]
		if !known {
			d = delivery{more: l.pass.more, begun: l.pass.more}
		}
		if !d.more {
			d = delivery{id: e.transfer.DeliveryID}
		}
		d.settled = d.settled || e.transfer.Settled
		d.more = e.transfer.More && !e.transfer.Aborted
		if unfinished == nil {
			unfinished = make(map[*link]delivery)
		}
		unfinished[l] = d
		if !d.more && !d.begun && !e.transfer.Aborted {
			l.settleLocked(d.id, d.settled, amqp.Released{})
		}
	}
}

// onDispositionLocked passes a disposition on. A receiver's covers only deliveries that it has; a
// sender's may cover deliveries that wait here.
func (h *half) onDispositionLocked(d *amqp.Disposition) {
	if before(d.Last, d.First) {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondInvalidField, "A disposition is about deliveries %d to %d.", d.First, d.Last))
		return
	}
	switch {
	case d.Role == amqp.RoleReceiver:
		h.emitOutcomeLocked(d)
	case h.queue.len() > 0:
		kept := *d
		h.passLocked(&entry{p: &kept})
	default:
		h.emitSettledLocked(d)
	}
}

// emitOutcomeLocked passes a receiver's disposition on, except for deliveries whose handler
// decides first.
func (h *half) emitOutcomeLocked(d *amqp.Disposition) {
	o := h.other()
	first := d.First // of those that are not passed on yet
	o.pending.Each(d.First, d.Last, func(at **pendingDelivery) (remove bool) {
		k := *at
		if k.out != first {
			o.putOutcomeLocked(d, span{first, k.out - 1})
		}
		first = k.out + 1
		decides, remove := k.outcomeLocked(d)
		if !decides {
			o.putOutcomeLocked(d, span{k.out, k.out})
		}
		return remove
	})
	if first != d.Last+1 {
		o.putOutcomeLocked(d, span{first, d.Last})
	}
}

// putOutcomeLocked sends a receiver's disposition to the sender of the deliveries r, which are
// the receiver's ids.
func (h *half) putOutcomeLocked(d *amqp.Disposition, r span) {
	h.ids.ins(r, func(in span) {
		h.observed.stated(d, in)
		if d.Settled {
			h.unsettled = max(h.unsettled-int(in.last-in.first+1), 0)
		}
		h.putDispositionLocked(d, in)
	})
	if d.Settled {
		h.s.c.drainedLocked()
	}
}

// emitSettledLocked passes a sender's disposition on.
func (h *half) emitSettledLocked(d *amqp.Disposition) {
	o := h.other()
	h.observed.confirmed(d)
	h.ids.outs(span{d.First, d.Last}, func(out span) {
		if d.Settled {
			h.pending.Each(out.first, out.last, func(k **pendingDelivery) bool {
				(*k).abandonLocked()
				return true
			})
		}
		o.putDispositionLocked(d, out)
	})
}

// putDispositionLocked sends d for the deliveries r.
func (h *half) putDispositionLocked(d *amqp.Disposition, r span) {
	if h.sentEnd {
		return
	}
	ack := &h.side.ack
	*ack = *d
	ack.First, ack.Last = r.first, r.last
	h.side.putLocked(h.out, ack)
	ack.State = nil
}
