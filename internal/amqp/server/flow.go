// SPDX-License-Identifier: Apache-2.0

package server

import "overdue/internal/amqp"

// onFlow takes the peer's view of the session's windows and, if the flow names a link, of its
// credit.
func (s *Session) onFlow(f *amqp.Flow) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.state != sessionOpen {
		return
	}
	s.takeWindowLocked(f)
	if !f.HasHandle {
		if f.Echo {
			s.putFlowLocked(&c.flow)
		}
		return
	}
	l := s.links[f.Handle]
	switch {
	case l == nil && f.Handle < s.known:
		// go-amqp may send a last flow after its detach. Ending the session would cost it the other links
		// there.
	case l == nil:
		s.endLocked(amqp.Errorf(amqp.ErrCondSessionUnattachedHandle, "Flow names handle %d, which is not attached.", f.Handle))
	case l.source != nil:
		l.source.onFlowLocked(f)
	case l.state == linkAttached:
		l.sink.onFlowLocked(f)
	}
}

// takeWindowLocked notes how many transfers the peer can take, and sends what waited for that.
func (s *Session) takeWindowLocked(f *amqp.Flow) {
	closed := s.windows.Outgoing == 0
	s.windows.Flow(f, firstOutgoingID)
	if closed && s.windows.Outgoing > 0 {
		s.ready.Broadcast()
		s.pumpLocked()
	}
}

// putFlowLocked sends f: the state of the session, and of a link that has filled in its part. Every
// flow reopens the full window.
func (s *Session) putFlowLocked(f *amqp.Flow) {
	s.owesFlow = false
	s.windows.Incoming = s.c.cfg.IncomingWindow
	s.windows.Fill(f)
	f.HasNextIncomingID, f.OutgoingWindow = true, s.windows.Outgoing
	s.c.wire.Put(s.out, f)
	*f = amqp.Flow{}
}

// usedWindowLocked counts one transfer frame from the peer and reports whether the window allowed
// it.
func (s *Session) usedWindowLocked() bool {
	if !s.windows.Receive() {
		return false
	}
	if s.windows.Incoming < s.c.cfg.IncomingWindow/halvesPerWindow && !s.owesFlow {
		s.owesFlow = true
		s.c.touchLocked(s)
	}
	return true
}

// onFlowLocked takes the credit that the peer grants. It counts deliveries since the link began, so
// that neither a wrap-around of delivery-count nor a wrong one can grant more than link-credit
// states.
func (l *SourceLink) onFlowLocked(f *amqp.Flow) {
	l.touchLocked()
	if l.state == linkAttached || l.state == linkAttaching {
		behind := int64(0)
		if f.HasDeliveryCount {
			behind = max(0, int64(int32(l.deliveryCount-f.DeliveryCount)))
		} else {
			behind = int64(l.deliveryCount - l.Reply.InitialDeliveryCount)
		}
		if f.HasLinkCredit {
			l.credit = uint32(max(0, int64(min(f.LinkCredit, maxLinkCredit))-behind))
		}
		l.drain, l.drained, l.hasFlow = f.Drain, false, true
		if f.Echo && l.state == linkAttached {
			l.putFlowLocked(false)
		}
		if l.state == linkAttached {
			l.callFlowLocked()
			l.s.pumpLinkLocked(l)
		}
	}
}

// callFlowLocked calls the source with the credit, without the lock.
func (l *SourceLink) callFlowLocked() {
	allowance := l.total + int64(l.credit)
	f := Flow{Credit: l.credit, Added: allowance - l.allowance, Drain: l.drain}
	l.allowance = allowance
	src := l.handler
	c := l.s.c
	c.mu.Unlock()
	src.Flow(f)
	c.mu.Lock()
}

// putFlowLocked sends the link's state.
func (l *SourceLink) putFlowLocked(drain bool) {
	f := &l.s.c.flow
	f.Handle, f.HasHandle = l.handle, true
	f.DeliveryCount, f.HasDeliveryCount = l.deliveryCount, true
	f.LinkCredit, f.HasLinkCredit = l.credit, true
	f.Available, f.HasAvailable = 0, true
	f.Drain = drain
	l.s.putFlowLocked(f)
}

// Drained answers a drain and drops the remaining credit. The answer follows every delivery that
// SendOut has sent or Post has taken before. It does nothing if the peer does not drain, or has
// been answered. It may be called from any goroutine.
func (l *SourceLink) Drained() {
	c := l.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != linkAttached || !l.drain {
		return
	}
	l.drained = true
	l.answerDrainLocked()
}

// answerDrainLocked answers a drain, unless a delivery that precedes the answer is not complete.
func (l *SourceLink) answerDrainLocked() {
	if !l.drained || l.busy || len(l.posted) > 0 && l.credit > 0 {
		return
	}
	l.drain, l.drained = false, false
	l.deliveryCount += l.credit
	l.total += int64(l.credit)
	l.credit = 0
	l.s.flushLocked()
	l.putFlowLocked(true)
}

// onFlowLocked handles a flow for a link on which the peer sends: the peer may have given up
// credit.
func (l *SinkLink) onFlowLocked(f *amqp.Flow) {
	l.touchLocked()
	if f.HasDeliveryCount {
		if given := f.DeliveryCount - l.deliveryCount; given > 0 && given <= l.credit {
			l.deliveryCount += given
			l.credit -= given
			l.topUpLocked()
		}
	}
	if f.Echo {
		l.putFlowLocked()
	}
}

// topUpLocked marks the link: the peer may get more credit.
func (l *SinkLink) topUpLocked() {
	if !l.dirty && l.state == linkAttached && l.wantsCredit() {
		l.dirty = true
		l.s.sinks = append(l.s.sinks, l)
		l.s.c.touchLocked(l.s)
	}
}

// wantsCredit reports whether a grant is worth a frame: the step is big enough, or the peer has no
// credit left.
func (l *SinkLink) wantsCredit() bool {
	want := l.wantCredit()
	return want > l.credit && (l.credit == 0 || want-l.credit >= l.Reply.Credit/creditSteps)
}

// wantCredit returns the credit that keeps at most Reply.Credit deliveries outstanding, unsettled
// or held.
func (l *SinkLink) wantCredit() uint32 {
	return l.Reply.Credit - min(l.unsettled+l.held, l.Reply.Credit)
}

// Hold counts n more settled deliveries as outstanding, fewer if n is negative: the peer gets their
// credit back when they are worked off.
func (l *SinkLink) Hold(n int32) {
	l.s.c.mu.Lock()
	defer l.s.c.mu.Unlock()
	l.held += uint32(n)
	l.topUpLocked()
}

func (s *Session) flushCreditLocked() {
	for i, l := range s.sinks {
		l.dirty = false
		if l.state == linkAttached && l.wantsCredit() {
			l.credit = l.wantCredit()
			l.putFlowLocked()
		}
		s.sinks[i] = nil
	}
	s.sinks = s.sinks[:0]
}

func (l *SinkLink) putFlowLocked() {
	f := &l.s.c.flow
	f.Handle, f.HasHandle = l.handle, true
	f.DeliveryCount, f.HasDeliveryCount = l.deliveryCount, true
	f.LinkCredit, f.HasLinkCredit = l.credit, true
	f.Available, f.HasAvailable = 0, true // so the service, of a receiver
	l.s.putFlowLocked(f)
}
