// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

// maxMessage bounds a message that is kept whole, in bytes: the largest that Service Bus takes is
// 100 MiB ("Azure Service Bus quotas").
const maxMessage = 128 << 20

// maxSharedMessage bounds it over a transport of another, in bytes: an answer of $cbs has a few
// hundred.
const maxSharedMessage = 64 << 10

// A Receiver takes messages of one entity under lock. One goroutine grants, receives and drains;
// messages may be settled from any.
type Receiver struct{ link *link }

// ReceiverConfig configures a Receiver.
type ReceiverConfig struct {
	Filter amqp.Raw // of the source; nil: none
	Head   int      // bytes of each message that are kept; 0: all
}

// A Delivery is a message that a Receiver has taken.
type Delivery struct {
	Tag     []byte
	Payload []byte // the encoded message, or its first bytes

	id uint32
}

// Receiver attaches a receiver without credit, in a session of its own. Its messages stay locked
// until they are settled. A refusal by the peer is an *amqp.Error.
func (c *Conn) Receiver(ctx context.Context, entity string, cfg ReceiverConfig) (*Receiver, error) {
	l, err := c.attachAlone(ctx, &amqp.Attach{
		Role: amqp.RoleReceiver, SndSettleMode: amqp.SndMixed, RcvSettleMode: amqp.RcvSecond,
		Source: &amqp.Source{Address: entity, HasAddress: true, Filter: cfg.Filter}, Target: &amqp.Target{},
	}, cfg.Head)
	if err != nil {
		return nil, err
	}
	return &Receiver{l}, nil
}

// Close ends the link and its session. Messages that were not settled go back when their locks
// lapse.
func (r *Receiver) Close(ctx context.Context) { r.link.session.close(ctx) }

// Grant lets the peer send n more messages. Bytes that are written to the connection later follow
// the credit.
func (r *Receiver) Grant(ctx context.Context, n uint32) error {
	l := r.link
	c := l.session.c
	c.mu.Lock()
	if l.err != nil {
		defer c.mu.Unlock()
		return l.err
	}
	l.credit += n
	l.session.putFlowLocked(l, false)
	c.wire.Flush(writeUntil(ctx))
	return nil
}

// Credit returns how many messages may still come.
func (r *Receiver) Credit() uint32 {
	c := r.link.session.c
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.link.credit
}

// Drain takes back the credit that is left. Messages that the peer has sent before are still to be
// received.
func (r *Receiver) Drain(ctx context.Context) error {
	l := r.link
	c := l.session.c
	c.mu.Lock()
	if l.credit > 0 && l.err == nil {
		l.session.putFlowLocked(l, true)
	}
	c.wire.Flush(writeUntil(ctx))
	for {
		c.mu.Lock()
		drained, err := l.credit == 0, l.err
		c.mu.Unlock()
		if drained || err != nil {
			return err
		}
		if err := l.await(ctx); err != nil {
			return err
		}
	}
}

// Receive waits for a message until ctx ends.
func (r *Receiver) Receive(ctx context.Context) (*Delivery, error) {
	for {
		d, err := r.link.take()
		if d != nil || err != nil {
			return d, err
		}
		if err := r.link.await(ctx); err != nil {
			return nil, err
		}
	}
}

// Arrived returns a message that has arrived already, or nil.
func (r *Receiver) Arrived() *Delivery {
	d, _ := r.link.take() // the next call that waits returns the error
	return d
}

// take returns the first message that has arrived, nil if there is none.
func (l *link) take() (*Delivery, error) {
	c := l.session.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(l.arrived) == 0 {
		return nil, l.err
	}
	d := l.arrived[0]
	l.arrived[0] = nil
	l.arrived = l.arrived[1:]
	return d, nil
}

// await waits until something has changed.
func (l *link) await(ctx context.Context) error {
	select {
	case <-l.changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *link) notifyLocked() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// settlement is the wait for the peer to settle a delivery.
type settlement struct {
	link   *link
	result chan error // has room
}

func (w *settlement) settle(result error) bool {
	w.result <- result
	return true
}

var errSettling = errors.New("the message is being settled already")

// Settle states an outcome for ds in one write, and waits until the peer has settled all of them. A
// refusal is an *amqp.Error; of several, the first is returned. If ctx ends first, it is unknown which
// of them the peer has settled.
func (r *Receiver) Settle(ctx context.Context, outcome amqp.DeliveryState, ds ...*Delivery) error {
	l := r.link
	s, c := l.session, l.session.c
	results := make(chan error, len(ds))
	c.mu.Lock()
	err := l.err
	for _, d := range ds {
		s.settling.Each(d.id, d.id, func(*settlement) bool {
			err = cmp.Or(err, errSettling)
			return false
		})
	}
	if err != nil {
		c.mu.Unlock()
		return err
	}
	for _, d := range ds {
		s.settling.Add(d.id, settlement{l, results})
		c.wire.Put(s.channel, &amqp.Disposition{
			Role: amqp.RoleReceiver, First: d.id, Last: d.id, State: outcome,
		})
	}
	c.wire.Flush(writeUntil(ctx))
	for range ds {
		select {
		case result := <-results:
			if err == nil {
				err = result
			}
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, d := range ds {
				transport.Remove(&s.settling, d.id, settlement{l, results})
			}
			return context.Cause(ctx)
		}
	}
	return err
}

// settledLocked takes the peer's answer to outcomes. Without an error the peer repeats the outcome,
// so a rejection without an error is none: that is how a message is dead-lettered.
func (s *session) settledLocked(p *amqp.Disposition) {
	if !p.Settled {
		return
	}
	var result error
	if rejected, ok := p.State.(*amqp.Rejected); ok && rejected.Error != nil {
		result = rejected.Error
	}
	s.settling.Each(p.First, p.Last, func(w *settlement) bool { return w.settle(result) })
}

// transferLocked takes a part of a message.
func (s *session) transferLocked(p *amqp.Transfer, payload []byte) error {
	s.windows.Receive() // it never closes: the peer may send more before half of it is used
	if s.ending {
		return nil
	}
	if s.windows.Incoming < incomingWindow/2 {
		s.answerFlowLocked(nil, false)
	}
	l := s.linkLocked(p.Handle)
	if l == nil || l.role != amqp.RoleReceiver {
		return violation("a transfer over no link of a receiver")
	}
	d := l.partial
	if d == nil {
		if l.credit == 0 || !p.HasDeliveryID {
			return violation("an unrequested transfer")
		}
		d = &Delivery{Tag: bytes.Clone(p.DeliveryTag), id: p.DeliveryID}
		l.partial = d
	}
	if !p.Aborted {
		if l.head > 0 {
			payload = payload[:min(len(payload), l.head-len(d.Payload))]
		} else if most := s.c.maxMessage(); len(d.Payload)+len(payload) > most {
			return violation("a message of more than %d bytes", most)
		}
		d.Payload = append(d.Payload, payload...)
		if p.More {
			return nil
		}
		l.arrived = append(l.arrived, d)
	}
	l.partial = nil
	l.credit--
	l.deliveryCount++
	l.notifyLocked()
	return nil
}

func (c *Conn) maxMessage() int {
	if c.shared {
		return maxSharedMessage
	}
	return maxMessage
}

// grantedLocked takes the state of a link over which the peer sends. Its delivery-count also counts
// the credit that the peer has given up for a drain (part 2 section 2.6.7), and perhaps a message
// that has come in part. The answer to a drain says nothing more: it may be late, and new credit
// may be on its way.
func (l *link) grantedLocked(p *amqp.Flow) {
	var coming uint32
	if l.partial != nil {
		coming = 1
	}
	if given := int32(p.DeliveryCount - l.deliveryCount - coming); p.HasDeliveryCount && given > 0 {
		l.credit -= min(l.credit-min(l.credit, coming), uint32(given))
		l.deliveryCount += uint32(given)
	}
	l.notifyLocked()
}
