// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// maxSpares bounds the deliveries that a connection keeps to use them again.
const maxSpares = 64

// A link belongs to the connection's mutex.
type link struct {
	session *session
	name    string
	handle  uint32
	role    amqp.Role

	peer       uint32 // its handle
	known      bool   // its attach has come
	attached   bool   // and has the requested terminus
	detached   bool
	err        error  // why the link is unusable; nil: it is usable
	maxMessage uint64 // bytes; 0 = any number

	credit        uint32
	deliveryCount uint32
	blocked       []*delivery // in order

	// Of a receiver.
	head    int           // bytes of each message that are kept; 0: all
	partial *Delivery     // the message whose last part has not come; nil: none
	arrived []*Delivery   // in order
	changed chan struct{} // one token: a message, credit or the end has come
}

// A delivery is a transfer that Send waits for.
type delivery struct {
	link    *link
	format  uint32
	payload []byte
	id      uint32
	begun   bool // its first frame is encoded
	at      int  // bytes of payload that are encoded
	result  chan error
}

// newDeliveryLocked returns a reused delivery, or a new one.
func (l *link) newDeliveryLocked(format uint32, payload []byte) *delivery {
	c := l.session.c
	var d *delivery
	if n := len(c.spares); n > 0 {
		d, c.spares = c.spares[n-1], c.spares[:n-1]
	} else {
		d = &delivery{result: make(chan error, 1)}
	}
	d.link, d.format, d.payload = l, format, payload
	return d
}

// freeLocked keeps d for reuse: no result is pending.
func (d *delivery) freeLocked() {
	c := d.link.session.c
	*d = delivery{result: d.result}
	if len(c.spares) < maxSpares {
		c.spares = append(c.spares, d)
	}
}

// A Sender sends messages to one entity. It is safe for concurrent use, with several transfers at a
// time.
type Sender struct{ link *link }

// Sender attaches a sender in a session of its own. A refusal by the peer is an *amqp.Error.
func (c *Conn) Sender(ctx context.Context, entity string) (*Sender, error) {
	l, err := c.attachAlone(ctx, &amqp.Attach{
		Role: amqp.RoleSender, SndSettleMode: amqp.SndMixed, Source: &amqp.Source{}, Target: &amqp.Target{Address: entity, HasAddress: true},
	}, 0)
	if err != nil {
		return nil, err
	}
	return &Sender{l}, nil
}

// MaxMessageSize is how many bytes a message may have; 0 = any number.
func (s *Sender) MaxMessageSize() uint64 { return s.link.maxMessage }

// Close ends the link and its session.
func (s *Sender) Close(ctx context.Context) { s.link.session.close(ctx) }

// Send sends an encoded message and returns when the peer has accepted it. A rejection is an
// *amqp.Error, and so is a message that is larger than the link allows, which is not sent. If ctx
// ends first, it is unknown whether the message arrives, unless the error says that it was not
// written. If the peer does not read while Send writes, the connection ends at the deadline of ctx,
// or after writeTimeout.
func (s *Sender) Send(ctx context.Context, format uint32, payload []byte) error {
	d, err := s.link.start(ctx, format, payload)
	if err != nil {
		return err
	}
	return s.link.finish(ctx, d)
}

// start encodes a transfer and writes it, as far as it can be written now.
func (l *link) start(ctx context.Context, format uint32, payload []byte) (*delivery, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("not written: %w", context.Cause(ctx))
	}
	if most := l.maxMessage; most > 0 && uint64(len(payload)) > most {
		return nil, amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "%d bytes are more than the %d that the link allows", len(payload), most)
	}
	c := l.session.c
	c.mu.Lock()
	if err := l.err; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	d := l.newDeliveryLocked(format, payload)
	if len(l.blocked) > 0 || !l.encodeLocked(d) {
		if len(l.blocked) == 0 {
			c.blocked = append(c.blocked, l)
		}
		l.blocked = append(l.blocked, d)
	}
	c.wire.Flush(writeUntil(ctx))
	return d, nil
}

// finish waits for the outcome of d.
func (l *link) finish(ctx context.Context, d *delivery) error {
	c := l.session.c
	select {
	case err := <-d.result:
		c.mu.Lock()
		d.freeLocked()
		c.mu.Unlock()
		return err
	case <-ctx.Done():
		return l.abandon(ctx, d)
	}
}

// abandon ends the wait for d.
func (l *link) abandon(ctx context.Context, d *delivery) error {
	c := l.session.c
	c.mu.Lock()
	select {
	case err := <-d.result:
		d.freeLocked()
		c.mu.Unlock()
		return err
	default:
	}
	err := context.Cause(ctx)
	if i := slices.Index(l.blocked, d); i >= 0 {
		l.blocked = slices.Delete(l.blocked, i, i+1)
	}
	begun, whole := d.begun, d.at == len(d.payload)
	if begun {
		transport.Remove(&l.session.unsettled, d.id, d)
	}
	d.freeLocked()
	c.mu.Unlock()
	switch {
	case !begun:
		return fmt.Errorf("not written: %w", err)
	case !whole && c.shared:
		l.session.close(ctx)
	case !whole:
		go c.fail(errGivenUp)
	}
	return err
}

// encodeLocked encodes frames of d. It reports whether all are encoded.
func (l *link) encodeLocked(d *delivery) bool {
	s, c := l.session, l.session.c
	if !d.begun && l.credit == 0 {
		return false
	}
	t := &c.transfer
	for {
		if s.windows.Outgoing == 0 || c.wire.Queued() >= maxQueued {
			return false
		}
		*t = amqp.Transfer{Handle: l.handle}
		if !d.begun {
			d.begun, d.id = true, s.nextDelivery
			s.nextDelivery++
			s.unsettled.Add(d.id, d)
			l.credit--
			l.deliveryCount++
			binary.BigEndian.PutUint32(c.tag[:], d.id)
			t.DeliveryID, t.HasDeliveryID = d.id, true
			t.DeliveryTag = c.tag[:]
			t.MessageFormat, t.HasMessageFormat = d.format, true
		}
		s.windows.Send()
		d.at += c.wire.PutTransfer(s.channel, t, d.payload[d.at:])
		if !t.More {
			return true
		}
	}
}

// pumpLocked encodes blocked deliveries, as far as possible now.
func (c *Conn) pumpLocked() {
	c.blocked = slices.DeleteFunc(c.blocked, func(l *link) bool {
		for len(l.blocked) > 0 && l.encodeLocked(l.blocked[0]) {
			l.blocked = slices.Delete(l.blocked, 0, 1)
		}
		return len(l.blocked) == 0
	})
}

// endLocked settles what the link holds, unless it has ended.
func (l *link) endLocked(why error) {
	if l.err != nil {
		return
	}
	l.err = why
	s := l.session
	s.unsettled.All(func(d **delivery) bool { return (*d).link == l && (*d).settle(why) })
	for _, d := range l.blocked {
		if !d.begun { // else it was unsettled
			d.result <- why
		}
	}
	l.blocked = nil
	s.settling.All(func(w *settlement) bool { return w.link == l && w.settle(why) })
	l.notifyLocked()
}

// settle gives a delivery its result. It has room for one, and only unsettled deliveries get one.
func (d *delivery) settle(result error) bool {
	d.result <- result
	return true
}

// dispositionLocked settles the deliveries that the peer names.
func (s *session) dispositionLocked(p *amqp.Disposition) {
	if s.ending {
		return
	}
	if p.Role == amqp.RoleSender {
		s.settledLocked(p)
		return
	}
	result, ok := outcome(p)
	if !ok {
		return // the outcome comes later
	}
	s.unsettled.Each(p.First, p.Last, func(d **delivery) bool { return (*d).settle(result) })
	if !p.Settled {
		s.c.answerLocked(s.channel, &amqp.Disposition{Role: amqp.RoleSender, First: p.First, Last: p.Last, Settled: true})
	}
}

// outcome returns the result that a disposition states, and reports whether it is an outcome.
func outcome(p *amqp.Disposition) (result error, ok bool) {
	switch state := p.State.(type) {
	case amqp.Accepted:
		return nil, true
	case *amqp.Rejected:
		if state.Error == nil {
			return errNoReason, true
		}
		return state.Error, true
	case nil:
		return errNoOutcome, p.Settled
	case *amqp.Received:
		return errNoOutcome, p.Settled
	case amqp.Released:
		return errOutcome("released"), true
	case *amqp.Modified:
		return errOutcome("modified"), true
	}
	return fmt.Errorf("the outcome is %T", p.State), true
}

// errOutcome is an outcome after which the message is not on the queue.
type errOutcome string

func (e errOutcome) Error() string { return "the outcome is " + string(e) }
