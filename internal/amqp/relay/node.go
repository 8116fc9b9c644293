// SPDX-License-Identifier: Apache-2.0

package relay

import "overdue/internal/amqp"

// A node answers requests in place of a node upstream. The client's read loop calls it without
// locks, so it must not block. It calls answer once, at once or later from another goroutine,
// unless the connection ends first. It rejects a request that cannot be answered; otherwise its
// client would wait for ever.
type node func(request []byte, answer func(reply []byte, rejected *amqp.Error))

const (
	nodeCredit  = 100       // concurrent requests of a client
	maxRequest  = 256 << 10 // bytes
	maxReplies  = 1000      // that wait for credit
	maxReplyTag = 4         // bytes of a delivery tag, a number
)

// nodeLinks is the pair of links over which a client uses a node: it sends requests on one and
// receives replies on the other. A connection has one pair, as on the service: the Go SDK takes
// the refusal of a second one as the sign that the first is stuck.
type nodeLinks struct {
	answer            node
	requests, replies *link

	request []byte // the part of a request that has arrived
	count   uint32 // of requests, the delivery-count
	left    uint32 // credit of the client
	sent    uint32 // replies, the delivery-count
	credit  uint32 // of ours
	waiting [][]byte
	tags    uint32
	settled bool // the request that is arriving
	asked   int  // requests without an answer so far
}

// attachNodeLocked answers the attach of a link to a node.
func (c *conn) attachNodeLocked(h *half, l *link, a *amqp.Attach, answer node) {
	if c.nodes == nil {
		c.nodes = make(map[string]*nodeLinks)
	}
	key := l.class.Address.Key()
	n := c.nodes[key]
	if n == nil {
		n = &nodeLinks{}
		c.nodes[key] = n
	}
	place := &n.requests
	if a.Role == amqp.RoleReceiver {
		place = &n.replies
	}
	if *place != nil {
		l.refuseLocked(h, a, amqp.Errorf(amqp.ErrCondNotAllowed, "A link to '%s' is open on this connection already.", key))
		return
	}
	*place = l
	l.node, n.answer = n, answer
	l.ends[upstream].gotDetach, l.ends[upstream].sentDetach = true, true
	l.ends[client].sentAttach = true
	h.side.putLocked(h.out, &amqp.Attach{
		Name: a.Name, Handle: l.ends[client].out, Role: !a.Role,
		SndSettleMode: a.SndSettleMode, RcvSettleMode: amqp.RcvFirst,
		Source: a.Source, Target: a.Target,
	})
	if l == n.requests {
		n.count, n.left, n.request = a.InitialDeliveryCount, 0, nil
		n.grantLocked(h)
	} else {
		n.sent, n.credit, n.waiting = 0, 0, nil
	}
}

// grantLocked tops up the client's credit.
func (n *nodeLinks) grantLocked(h *half) {
	n.left = nodeCredit
	n.putFlowLocked(h, n.requests, n.count, n.left, false)
}

func (n *nodeLinks) putFlowLocked(h *half, l *link, count, credit uint32, drain bool) {
	f := &h.side.flow
	*f = amqp.Flow{
		Handle: l.ends[client].out, HasHandle: true,
		DeliveryCount: count, HasDeliveryCount: true,
		LinkCredit: credit, HasLinkCredit: true, Drain: drain,
	}
	h.sendFlowLocked(f)
}

// onTransferLocked handles one frame of a request, and answers a complete one.
func (n *nodeLinks) onTransferLocked(h *half, l *link, t *amqp.Transfer, payload []byte) {
	c := h.s.c
	if len(n.request) == 0 {
		n.settled = false
	}
	n.settled = n.settled || t.Settled
	if !t.Aborted {
		if len(n.request)+len(payload) > maxRequest {
			n.breakLocked(h, l, amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "The request has more than %d bytes.", maxRequest))
			return
		}
		n.request = append(n.request, payload...)
	}
	if l.came.more {
		return
	}
	n.count++
	if n.left > 0 {
		n.left--
	}
	request := n.request
	n.request = nil
	if n.left <= nodeCredit/2 {
		n.grantLocked(h)
	}
	if t.Aborted {
		return
	}
	if n.asked == maxReplies {
		n.breakLocked(h, l, amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "More than %d requests wait for their answers.", maxReplies))
		return
	}
	n.asked++
	id, settled, to := l.came.id, n.settled, n.replies
	c.mu.Unlock()
	n.answer(request, func(reply []byte, rejected *amqp.Error) {
		c.mu.Lock()
		defer c.unlock()
		n.asked--
		n.answeredLocked(h, l, to, id, settled, reply, rejected)
		c.doneLocked()
	})
	c.mu.Lock()
}

// answeredLocked settles a request that came over l, unless it came settled, and sends the reply
// over to, if that link is still there.
func (n *nodeLinks) answeredLocked(h *half, l, to *link, id uint32, settled bool, reply []byte, rejected *amqp.Error) {
	if rejected == nil && (to == nil || to != n.replies) {
		rejected = &amqp.Error{Condition: amqp.ErrCondNotFound, Description: "No link of this connection returns the responses."}
	}
	if !settled && !h.s.over && !h.sentEnd && !l.gone {
		d := &amqp.Disposition{Role: amqp.RoleReceiver, Settled: true, State: amqp.Accepted{}}
		if rejected != nil {
			d.State = &amqp.Rejected{Error: rejected}
		}
		h.putDispositionLocked(d, span{id, id})
	}
	if rejected == nil {
		n.replyLocked(reply)
	}
}

// replyLocked sends a reply, or keeps it until the client grants credit.
func (n *nodeLinks) replyLocked(reply []byte) {
	l := n.replies
	if n.credit == 0 {
		if len(n.waiting) == maxReplies {
			n.breakLocked(&l.s.halves[client], l, amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "More than %d replies wait for credit.", maxReplies))
			return
		}
		n.waiting = append(n.waiting, reply)
		return
	}
	n.credit--
	n.sent++
	n.tags++
	tag := make([]byte, maxReplyTag)
	for i := range tag {
		tag[i] = byte(n.tags >> (8 * i))
	}
	l.s.halves[upstream].passLocked(&entry{link: l, local: true, payload: l.s.c.names.response(reply), transfer: amqp.Transfer{
		HasDeliveryID: true, DeliveryTag: tag, HasMessageFormat: true, Settled: true, HasSettled: true,
	}})
}

// onFlowLocked applies a flow of the client for one of the links.
func (n *nodeLinks) onFlowLocked(h *half, l *link, f *amqp.Flow) {
	if l == n.requests {
		if f.Echo {
			n.putFlowLocked(h, l, n.count, n.left, false)
		}
		return
	}
	if f.HasLinkCredit {
		left := int32(f.LinkCredit)
		if f.HasDeliveryCount {
			left = int32(f.DeliveryCount + f.LinkCredit - n.sent)
		}
		n.credit = uint32(max(left, 0))
	}
	for n.credit > 0 && len(n.waiting) > 0 {
		reply := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.replyLocked(reply)
	}
	if f.Drain {
		n.sent += n.credit
		n.credit = 0
	}
	if f.Drain || f.Echo {
		n.putFlowLocked(h, l, n.sent, n.credit, f.Drain)
	}
}

// breakLocked detaches one of the links.
func (n *nodeLinks) breakLocked(h *half, l *link, e *amqp.Error) {
	l.came.dropped = true
	l.detachLocked(h, true, e)
	n.goneLocked(h.s.c, l)
}

// onDetachLocked answers a detach.
func (n *nodeLinks) onDetachLocked(h *half, l *link, d *amqp.Detach) {
	l.detachLocked(h, d.Closed, nil)
	n.goneLocked(h.s.c, l)
}

// goneLocked removes l, so that the client can attach another link.
func (n *nodeLinks) goneLocked(_ *conn, l *link) {
	switch l {
	case n.requests:
		n.requests, n.request = nil, nil
	case n.replies:
		n.replies, n.waiting = nil, nil
	}
}
