// SPDX-License-Identifier: Apache-2.0

package relay

import "overdue/internal/amqp"

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
