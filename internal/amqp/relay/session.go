// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"math"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// A session is a session of the client with its counterpart upstream. It has one half for each.
type session struct {
	c      *conn
	halves [2]half
	over   bool
}

// A half is the state of a session towards one peer: the input from it, and the limits of the
// output to it.
type half struct {
	s       *session
	side    *side
	in, out uint16 // channel of the peer, and ours

	toBegin         *amqp.Begin // our begin to upstream, sent with the first link
	begun           bool        // the peer's begin has come
	gotEnd, sentEnd bool
	handleMax       uint32 // the peer's; of a client, also ours
	windows         transport.Windows

	// To the peer.
	nextDelivery uint32 // delivery-id
	isDirty      bool   // in side.dirty
	isBlocked    bool   // in side.blocked

	// From the peer.
	ids       idMap                                 // of its deliveries, as the other peer knows them
	queue     waitingList                           // entries that wait to go on, in order
	queued    uint32                                // transfers in queue that the window is kept closed for
	unsettled int                                   // deliveries that have gone on and are not settled
	pending   transport.Unsettled[*pendingDelivery] // those that have gone on and whose senders wait
	observed  observedList                          // its deliveries on observed links, in order

	links   map[uint32]*link // by the peer's handle
	handles []*link          // by ours
	opening []*link          // attached by us, awaiting the peer's attach
}

func (h *half) other() *half { return &h.s.halves[1-h.side.at] }

// sendsLocked reports whether the peer has a link to send on: deliveries of its other links are
// never settled.
func (h *half) sendsLocked() bool {
	for _, l := range h.links {
		if l.sender == h.side.at && l.node == nil {
			return true
		}
	}
	return false
}

// onBeginLocked answers the client's begin without waiting for upstream's. The relay itself
// answers some attaches ($cbs, refusals). A client that does not wait for the begin, such as the
// Python SDK, must not get those answers first. If upstream refuses the session, it ends it.
//
// The relay begins the session upstream with its first link. A client that may attach none costs
// upstream nothing, and the relay's own first token comes before everything else.
func (s *side) onBeginLocked(ch uint16, b *amqp.Begin) error {
	switch {
	case s.halves[ch] != nil:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "There is a session on channel %d already.", ch)
	case ch > s.c.cfg.ChannelMax:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "Channel %d is above channel-max %d.", ch, s.c.cfg.ChannelMax)
	case b.HasRemoteChannel:
		return s.onBegunLocked(ch, b)
	case s.at == upstream:
		return amqp.Errorf(amqp.ErrCondNotAllowed, "Sessions are begun by clients.")
	}
	if err := s.c.quota.Session(len(s.halves) + 1); err != nil {
		return amqp.LimitExceeded(err)
	}
	sess := &session{c: s.c}
	for i := range sess.halves {
		h := &sess.halves[i]
		h.s, h.side, h.windows.Incoming = sess, &s.c.sides[i], s.c.cfg.IncomingWindow
		h.links = make(map[uint32]*link)
	}
	h := &sess.halves[s.at]
	o := h.other()
	if !s.allocate(h) || !o.side.allocate(o) {
		return amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "There are too many sessions.")
	}
	h.beginLocked(ch, b)
	h.handleMax = min(b.HandleMax, handleMax, uint32(s.c.cfg.MaxLinks-1))
	h.putBeginLocked(&amqp.Begin{HandleMax: h.handleMax})
	o.toBegin = b
	return nil
}

// beginNowLocked begins the session upstream, unless it has begun.
func (h *half) beginNowLocked() {
	if b := h.toBegin; b != nil {
		h.toBegin = nil
		h.putBeginLocked(b)
	}
}

// onBegunLocked handles the answer to our begin.
func (s *side) onBegunLocked(ch uint16, b *amqp.Begin) error {
	if int(b.RemoteChannel) >= len(s.channels) || s.channels[b.RemoteChannel] == nil || s.channels[b.RemoteChannel].begun {
		return amqp.Errorf(amqp.ErrCondNotAllowed, "No session was begun on channel %d.", b.RemoteChannel)
	}
	h := s.channels[b.RemoteChannel]
	h.beginLocked(ch, b)
	h.other().pumpLocked()
	return nil
}

// allocate assigns h one of our channels.
func (s *side) allocate(h *half) bool {
	first := 0
	if s.at == upstream && s.c.ownSession {
		first = ownChannel + 1
	}
	for ch := first; ch <= int(min(s.Peer.ChannelMax, s.c.cfg.ChannelMax)); ch++ {
		for ch >= len(s.channels) {
			s.channels = append(s.channels, nil)
		}
		if s.channels[ch] == nil {
			s.channels[ch] = h
			h.out = uint16(ch)
			return true
		}
	}
	return false
}

// beginLocked applies the peer's begin.
func (h *half) beginLocked(ch uint16, b *amqp.Begin) {
	h.in, h.begun = ch, true
	h.side.halves[ch] = h
	h.windows.Begin(b)
	h.handleMax = b.HandleMax
}

// putBeginLocked sends our begin for the peer's b, with limits of our own.
func (h *half) putBeginLocked(b *amqp.Begin) {
	h.side.putLocked(h.out, &amqp.Begin{
		RemoteChannel: h.in, HasRemoteChannel: h.begun,
		NextOutgoingID:      h.windows.NextOutgoing,
		IncomingWindow:      h.windows.Incoming,
		OutgoingWindow:      math.MaxInt32,
		HandleMax:           min(b.HandleMax, uint32(h.s.c.cfg.MaxLinks-1)),
		OfferedCapabilities: b.OfferedCapabilities,
		DesiredCapabilities: b.DesiredCapabilities,
		Properties:          b.Properties,
	})
}

// onEndLocked passes the end on, after the entries that wait. Each peer's end is answered with
// the other's.
func (h *half) onEndLocked(e *amqp.End) {
	h.gotEnd = true
	delete(h.side.halves, h.in)
	o := h.other()
	if h.side.at == client {
		for _, l := range h.links {
			l.leaveLocked()
		}
		o.pumpLocked()
	} else {
		o.dropQueueLocked() // upstream takes it no more
	}
	h.passLocked(&entry{p: e})
	if h.sentEnd {
		h.releaseLocked()
	} else if o.gotEnd {
		h.putEndLocked(nil)
	}
}

// putEndLocked sends our end to the peer.
func (h *half) putEndLocked(e *amqp.Error) {
	if h.sentEnd {
		return
	}
	h.sentEnd = true
	if h.toBegin != nil {
		h.toBegin, h.gotEnd = nil, true // a session that never began needs no end
	} else {
		h.side.putLocked(h.out, &amqp.End{Error: e})
	}
	h.other().dropQueueLocked()
	if h.gotEnd {
		h.releaseLocked()
	}
}

// releaseLocked frees our channel: both have sent end.
func (h *half) releaseLocked() {
	h.side.channels[h.out] = nil
	if o := h.other(); o.gotEnd && o.sentEnd {
		h.s.overLocked()
		return
	}
	// Upstream has yet to end what it may not even have begun. Links that are answered here are
	// none of its business: the client may attach the next ones.
	for _, l := range h.handles {
		if l != nil && l.node != nil {
			l.node.goneLocked(h.s.c, l)
		}
	}
}

// failLocked ends the session on both sides, because of an error of one peer.
func (s *session) failLocked(e *amqp.Error) {
	for i := range s.halves {
		s.halves[i].putEndLocked(e)
	}
}

// overLocked drops all state of the session.
func (s *session) overLocked() {
	if s.over {
		return
	}
	s.over = true
	for i := range s.halves {
		h := &s.halves[i]
		h.dropQueueLocked()
		for _, l := range h.handles {
			if l != nil {
				l.goneLocked()
			}
		}
		h.handles, h.links, h.opening, h.pending, h.observed = nil, nil, nil, transport.Unsettled[*pendingDelivery]{}, observedList{}
	}
}
