// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// outgoing is a delivery on its way into the output.
type outgoing struct {
	Outgoing
	id    uint32
	begun bool
	sent  *Outgone // nil when pre-settled
}

// SendOut sends one message, in as many frames as the peer's max-frame-size requires, and returns
// the delivery for dispositions, nil for a pre-settled one. It waits for the session window and for
// room in the output, so any goroutine may call it, but not within a call of the handler. It does
// not wait for credit: without it, the error is ErrNoCredit. On ErrLinkGone a part may have been
// sent; the peer discards it. A disposition may name the Outgone before SendOut returns.
func (l *SourceLink) SendOut(o Outgoing) (*Outgone, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	d := outgoing{Outgoing: o}
	s, c := l.s, l.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case l.state == linkAttaching, l.state == linkAttached && l.busy:
			s.ready.Wait()
			continue
		case l.state != linkAttached || c.wire.State != transport.Open:
			return nil, ErrLinkGone
		case l.credit == 0:
			return nil, ErrNoCredit
		case s.windows.Outgoing == 0:
			s.ready.Wait()
			continue
		case c.wire.Full():
			c.room.Wait()
			continue
		}
		break
	}
	if d.Commit != nil && !d.Commit() {
		return nil, ErrWithheld
	}
	if !l.beginOutLocked(&d) {
		return nil, ErrLinkGone
	}
	sent := d.sent
	if l.transmitLocked(&d) {
		return sent, nil
	}
	l.busy = true
	for {
		if c.wire.Full() {
			c.room.Wait()
		} else {
			s.ready.Wait()
		}
		if l.state != linkAttached || c.wire.State != transport.Open {
			return nil, ErrLinkGone
		}
		if l.transmitLocked(&d) {
			break
		}
	}
	l.busy = false
	s.ready.Broadcast() // goroutines that wait for the link
	s.pumpLinkLocked(l)
	return sent, nil
}

// Post queues one message without waiting: it is sent in its turn as soon as credit, the session
// window and the output allow, or never if the link goes first. It is for answers within a call of
// the handler, and takes ownership of o.Payload. At most 1024 messages per link may wait; then the
// error is ErrTooManyPosted.
func (l *SourceLink) Post(o Outgoing) error {
	if err := o.check(); err != nil {
		return err
	}
	c := l.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case l.state > linkAttached || c.wire.State != transport.Open:
		return ErrLinkGone
	case len(l.posted) >= maxPosted:
		return ErrTooManyPosted
	}
	o.Tag = append([]byte(nil), o.Tag...)
	l.posted = append(l.posted, &outgoing{Outgoing: o})
	l.s.pumpLinkLocked(l)
	return nil
}

func (o *Outgoing) check() error {
	if len(o.Tag) == 0 || len(o.Tag) > amqp.MaxDeliveryTag {
		return fmt.Errorf("server: delivery tag of %d bytes, want 1 to %d", len(o.Tag), amqp.MaxDeliveryTag)
	}
	return nil
}

// beginOutLocked takes credit and gives d its id. The first frame must follow at once, because ids
// rise on the wire. It reports false if too many deliveries are unsettled, which ends the link: the
// peer grants credit and never settles.
func (l *SourceLink) beginOutLocked(d *outgoing) bool {
	s := l.s
	l.touchLocked()
	if !d.Settled {
		if s.sent.Len() >= s.c.cfg.MaxUnsettled {
			l.detachLocked(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "The session has %d unsettled deliveries.", s.sent.Len()))
			return false
		}
		d.sent = &Outgone{Token: d.Token, link: l, id: s.nextDelivery}
		s.sent.Add(s.nextDelivery, d.sent)
	}
	d.begun = true
	d.id = s.nextDelivery
	s.nextDelivery++
	l.deliveryCount++
	l.credit--
	l.total++
	return true
}

// transmitLocked queues as many frames of d as the window and the output take, and reports whether
// d is complete.
func (l *SourceLink) transmitLocked(d *outgoing) bool {
	s, c := l.s, l.s.c
	t := &c.transfer
	for {
		if s.windows.Outgoing == 0 || c.wire.Full() {
			return false
		}
		*t = amqp.Transfer{Handle: l.handle}
		if d.Tag != nil { // the first frame
			t.DeliveryID, t.HasDeliveryID = d.id, true
			t.DeliveryTag = d.Tag
			t.MessageFormat, t.HasMessageFormat = d.Format, true
			t.Settled, t.HasSettled = d.Settled, d.Settled
			t.Batchable = d.Batchable
		}
		n := c.wire.PutTransfer(s.out, t, d.Payload)
		d.Tag = nil
		d.Payload = d.Payload[n:]
		s.windows.Send()
		if !t.More {
			return true
		}
	}
}

// pumpLinkLocked sends the posted messages of l as far as possible. If the window or the output
// stops it, it queues l for later; new credit comes with a flow that names the link.
func (s *Session) pumpLinkLocked(l *SourceLink) {
	for len(l.posted) > 0 && l.state == linkAttached {
		d := l.posted[0]
		if l.busy && !d.begun {
			return // SendOut continues with this when it is done
		}
		if !d.begun {
			if l.credit == 0 {
				break
			}
			if s.windows.Outgoing == 0 || s.c.wire.Full() {
				s.postLaterLocked(l)
				return
			}
			if !l.beginOutLocked(d) {
				return
			}
			l.busy = true
		}
		if !l.transmitLocked(d) {
			s.postLaterLocked(l)
			return
		}
		l.busy = false
		l.posted[0] = nil
		l.posted = l.posted[1:]
		s.ready.Broadcast()
	}
	if l.state == linkAttached {
		l.answerDrainLocked()
	}
}

// postLaterLocked queues l until the window opens or the writer has taken the output.
func (s *Session) postLaterLocked(l *SourceLink) {
	if !l.inPosting {
		l.inPosting = true
		s.posting = append(s.posting, l)
	}
	if !s.inPosting {
		s.inPosting = true
		s.c.posting = append(s.c.posting, s)
	}
}

// pumpLocked continues with the posted messages of a session.
func (s *Session) pumpLocked() {
	links := s.posting
	s.posting = nil
	for _, l := range links {
		l.inPosting = false
		s.pumpLinkLocked(l)
	}
}

// pumpLocked continues with the posted messages of all sessions, now that the output has room.
func (c *Conn) pumpLocked() {
	sessions := c.posting
	c.posting = nil
	for _, s := range sessions {
		s.inPosting = false
		if s.state == sessionOpen && s.windows.Outgoing > 0 {
			s.pumpLocked()
		}
	}
}
