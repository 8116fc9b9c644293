// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"math"

	"overdue/internal/amqp"
)

// onFlowLocked applies the session's part of a flow and passes the link's part on.
func (h *half) onFlowLocked(f *amqp.Flow) {
	h.windows.Flow(f, 0)
	h.other().pumpLocked()
	if !f.HasHandle {
		if f.Echo {
			h.oweFlowLocked()
		}
		return
	}
	l := h.links[f.Handle]
	switch {
	case l == nil:
		h.s.failLocked(amqp.Errorf(amqp.ErrCondSessionUnattachedHandle, "Flow names handle %d, which is not attached.", f.Handle))
	case l.ends[client].sentDetach:
	case l.node != nil:
		l.node.onFlowLocked(h, l, f)
	case h.queue.len() > 0 && l.reply != nil && l.sender == h.side.at && !l.reply.mayGoLocked():
		l.answerDrainLocked(f)
	case h.queue.len() > 0 && (l.sender == h.side.at || !l.ends[1-h.side.at].sentAttach):
		// A sender's flow takes effect after the transfers that it sent before.
		kept := *f
		h.passLocked(&entry{link: l, p: &kept})
	default:
		h.emitFlowLocked(l, f)
	}
}

// emitFlowLocked passes the link's part of a flow on.
func (h *half) emitFlowLocked(l *link, f *amqp.Flow) {
	o := h.other()
	if o.sentEnd || l.ends[o.side.at].sentDetach {
		return
	}
	if l.reply != nil && h.side.at == client {
		l.reply.grantedLocked(f)
		l.respondWaitingLocked()
	}
	g := &o.side.flow
	*g = *f
	g.Handle = l.ends[o.side.at].out
	if l.sender == h.side.at {
		g.DeliveryCount -= l.skipped
		if l.reply != nil && f.HasDeliveryCount {
			l.reply.countedLocked(g.DeliveryCount)
		}
	} else {
		l.granted = granted{f.DeliveryCount, f.LinkCredit, f.HasLinkCredit}
		l.credited = l.credited || f.LinkCredit > 0
		g.DeliveryCount += l.skipped
	}
	o.sendFlowLocked(g)
}

// granted is the latest credit of a link's receiver.
type granted struct {
	deliveryCount, credit uint32
	known                 bool
}

// grantAgainLocked repeats the credit to the sender, after a delivery used credit and did not
// reach the receiver.
func (l *link) grantAgainLocked() {
	h := &l.s.halves[l.sender]
	if !l.granted.known || h.sentEnd || l.ends[l.sender].sentDetach {
		return
	}
	f := &h.side.flow
	*f = amqp.Flow{
		Handle: l.ends[l.sender].out, HasHandle: true,
		DeliveryCount: l.granted.deliveryCount + l.skipped, HasDeliveryCount: true,
		LinkCredit: l.granted.credit, HasLinkCredit: true,
	}
	h.sendFlowLocked(f)
}

// putFlowLocked sends a flow with the session's state only.
func (h *half) putFlowLocked() {
	if h.sentEnd {
		return
	}
	f := &h.side.flow
	*f = amqp.Flow{}
	h.sendFlowLocked(f)
}

// sendFlowLocked adds the session's state to a flow and sends it.
func (h *half) sendFlowLocked(f *amqp.Flow) {
	w := h.s.c.cfg.IncomingWindow
	h.windows.Incoming = max(h.windows.Incoming, w-min(w, h.queued))
	h.windows.Fill(f)
	f.HasNextIncomingID, f.OutgoingWindow = h.begun, math.MaxInt32
	h.side.putLocked(h.out, f)
	f.Properties = nil
}
