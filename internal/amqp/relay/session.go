// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"math"

	"overdue/internal/amqp"
)

// A session is one session of the client and the one upstream that it has
// become. It has a half for each.
type session struct {
	c      *conn
	halves [2]half
	over   bool
}

// A half is what a session is to one peer: what comes from it, and on what
// terms something can be sent to it.
type half struct {
	s       *session
	side    *side
	in, out uint16 // channel of the peer, and ours

	toBegin         *amqp.Begin // ours to upstream, which goes with the first link
	begun           bool        // the peer's begin has come
	gotEnd, sentEnd bool
	handleMax       uint32 // the peer's

	// To the peer.
	nextOutgoing uint32 // transfer-id
	remoteWindow uint32 // transfers that it takes
	nextDelivery uint32 // delivery-id
	isDirty      bool   // in side.dirty
	isBlocked    bool   // in side.blocked

	// From the peer.
	nextIncoming uint32
	inWindow     uint32      // transfers that it may send
	ids          idMap       // of its deliveries, as the other peer knows them
	queue        waitingList // what waits to go on, in order
	queued       uint32      // transfers in queue that the window is kept closed for
	unsettled    int         // deliveries that have gone on and are not settled
	pending      pendingList
	observed     observedList // its deliveries on observed links, in order

	links   map[uint32]*link // by the peer's handle
	handles []*link          // by ours
	opening []*link          // attached by us, the peer's attach is awaited
}

func (h *half) other() *half { return &h.s.halves[1-h.side.at] }

// sendsLocked reports whether the peer has a link to send on: what went over
// others is never settled.
func (h *half) sendsLocked() bool {
	for _, l := range h.links {
		if l.sender == h.side.at && l.node == nil {
			return true
		}
	}
	return false
}

// onBeginLocked answers the begin of the client, and begins the same session
// upstream. The answer does not wait for upstream's: a client that does not wait
// either, as the Python SDK, gets answers to what it attaches from us ($cbs, a
// refusal), and they must not come before it. What upstream refuses, it ends.
// Upstream hears of the session with its first link: a client that has none to go
// there costs it nothing, and the relay's own first token comes before all else.
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
		return limitExceeded(err)
	}
	sess := &session{c: s.c}
	for i := range sess.halves {
		h := &sess.halves[i]
		h.s, h.side, h.inWindow = sess, &s.c.sides[i], s.c.cfg.IncomingWindow
		h.links = make(map[uint32]*link)
	}
	h := &sess.halves[s.at]
	o := h.other()
	if !s.allocate(h) || !o.side.allocate(o) {
		return amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "There are too many sessions.")
	}
	h.beginLocked(ch, b)
	h.putBeginLocked(&amqp.Begin{HandleMax: math.MaxUint32})
	o.toBegin = b
	return nil
}

// beginNowLocked begins the session upstream, if that was not done.
func (h *half) beginNowLocked() {
	if b := h.toBegin; b != nil {
		h.toBegin = nil
		h.putBeginLocked(b)
	}
}

// onBegunLocked takes the answer to our begin.
func (s *side) onBegunLocked(ch uint16, b *amqp.Begin) error {
	if s.c.ownSession && s.at == upstream && b.RemoteChannel == ownChannel && !s.c.ownBegun {
		s.c.ownBegun, s.c.ownPeerChannel = true, ch
		s.c.ownFrameLocked(b, nil)
		return nil
	}
	if int(b.RemoteChannel) >= len(s.channels) || s.channels[b.RemoteChannel] == nil || s.channels[b.RemoteChannel].begun {
		return amqp.Errorf(amqp.ErrCondNotAllowed, "No session was begun on channel %d.", b.RemoteChannel)
	}
	h := s.channels[b.RemoteChannel]
	h.beginLocked(ch, b)
	h.other().pumpLocked()
	return nil
}

// allocate gives h a channel of ours.
func (s *side) allocate(h *half) bool {
	first := 0
	if s.at == upstream && s.c.ownSession {
		first = ownChannel + 1
	}
	for ch := first; ch <= int(min(s.channelMax, s.c.cfg.ChannelMax)); ch++ {
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

// beginLocked takes what the peer says of its session.
func (h *half) beginLocked(ch uint16, b *amqp.Begin) {
	h.in, h.begun = ch, true
	h.side.halves[ch] = h
	h.nextIncoming = b.NextOutgoingID
	h.remoteWindow = min(b.IncomingWindow, math.MaxInt32)
	h.handleMax = b.HandleMax
}

// putBeginLocked begins our half of the session as b says, on terms of our own.
func (h *half) putBeginLocked(b *amqp.Begin) {
	h.side.putLocked(h.out, &amqp.Begin{
		RemoteChannel: h.in, HasRemoteChannel: h.begun,
		NextOutgoingID:      h.nextOutgoing,
		IncomingWindow:      h.inWindow,
		OutgoingWindow:      math.MaxInt32,
		HandleMax:           min(b.HandleMax, uint32(h.s.c.cfg.MaxLinks-1)),
		OfferedCapabilities: b.OfferedCapabilities,
		DesiredCapabilities: b.DesiredCapabilities,
		Properties:          b.Properties,
	}, nil)
}

// onEndLocked passes the end on, behind what waits. Each peer's end is answered
// with the other's.
func (h *half) onEndLocked(e *amqp.End) {
	h.gotEnd = true
	delete(h.side.halves, h.in)
	o := h.other()
	if h.side.at == client {
		o.releaseUnsentLocked(nil)
	}
	o.dropQueueLocked() // nobody takes it any more
	if o.gotEnd {
		h.dropQueueLocked()
	}
	h.passLocked(&entry{p: e})
	if h.sentEnd {
		h.releaseLocked()
	} else if o.gotEnd || o.sentEnd && !o.begun {
		h.putEndLocked(nil)
	}
}

// putEndLocked ends the session towards the peer.
func (h *half) putEndLocked(e *amqp.Error) {
	if h.sentEnd {
		return
	}
	h.sentEnd = true
	if h.toBegin != nil {
		h.toBegin, h.gotEnd = nil, true // what was never begun needs no end
	} else {
		h.side.putLocked(h.out, &amqp.End{Error: e}, nil)
	}
	h.other().dropQueueLocked()
	if h.gotEnd {
		h.releaseLocked()
	}
}

// releaseLocked gives our channel back: both have sent end.
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

// failLocked ends the session on both sides, because of what one peer did.
func (s *session) failLocked(e *amqp.Error) {
	for i := range s.halves {
		s.halves[i].putEndLocked(e)
	}
}

// overLocked forgets everything about the session.
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
		h.handles, h.links, h.opening, h.pending, h.observed = nil, nil, nil, pendingList{}, observedList{}
	}
}
