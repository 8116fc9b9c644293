// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/client"
)

// settleMargin is what the broker gets to search for a message, from when the credit is written
// until it is taken back.
const settleMargin = 2 * time.Millisecond

// closeTimeout bounds the closing of a receiver, whose caller may be in a hurry.
const closeTimeout = 5 * time.Second

const (
	// drainTimeout and giveBackTimeout bound the halves of giving back: the drain, and the
	// releases. Where the drain is not answered the releases follow all the same. The broker takes
	// them in this order, so none of them comes again for the credit.
	drainTimeout    = 2 * time.Second
	giveBackTimeout = 5 * time.Second
)

// openTimeout bounds the opening of a link, the connection included, a request of a Peeker, and a
// dead-lettering.
const openTimeout = 30 * time.Second

// maxHead bounds what is kept of each message that comes bare. All that is needed stands in front
// of the body, where Service Bus allows 64 KiB ("Azure Service Bus quotas").
const maxHead = 256 << 10

// The filter of a source that wants one session, and its descriptor (azservicebus,
// session_receiver.go).
const (
	sessionFilter     = "com.microsoft:session-filter"
	sessionFilterCode = 0x137000000C
)

// A Receiver takes messages of one entity under lock. One goroutine grants, receives
// and drains; messages may be settled from any.
type Receiver struct {
	ns      *Namespace
	conn    *conn
	entity  string
	bare    bool // see BareReceiver
	link    *client.Receiver
	stalled bool // a drain was not answered in time
}

// Receiver opens a receiver with no credit. entity may be a sub-queue's path.
func (n *Namespace) Receiver(ctx context.Context, entity string) (*Receiver, error) {
	return n.receiver(ctx, &Receiver{ns: n, entity: entity}, client.ReceiverConfig{})
}

// BareReceiver is for callers that release messages or dead-letter them: they come without their
// bodies.
//
// In an entity that requires sessions it accepts the one that is named. While the receiver is open
// nobody else can have that session; Close gives it up, and what it holds then goes back uncounted.
// Where somebody else has it the error has ConditionSessionLocked.
func (n *Namespace) BareReceiver(ctx context.Context, entity string, session *string) (*Receiver, error) {
	cfg := client.ReceiverConfig{Head: maxHead}
	if session != nil {
		filter, err := amqp.AppendValue(nil, amqp.Map{{Key: amqp.Symbol(sessionFilter), Value: amqp.Described{Descriptor: uint64(sessionFilterCode), Value: *session}}})
		if err != nil {
			return nil, fmt.Errorf("link: session of %s: %w", entity, err)
		}
		cfg.Filter = filter
	}
	return n.receiver(ctx, &Receiver{ns: n, entity: entity, bare: true}, cfg)
}

func (n *Namespace) receiver(ctx context.Context, r *Receiver, cfg client.ReceiverConfig) (_ *Receiver, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if r.conn, err = n.receiving.connect(ctx); err != nil {
		return nil, err
	}
	if err = r.Claim(ctx); err == nil {
		if r.link, err = r.conn.wire.Receiver(ctx, r.entity, cfg); err != nil {
			err = fmt.Errorf("link: open receiver on %s: %w", r.entity, clientError(err))
		}
	}
	if err != nil {
		if !refused(err) {
			n.receiving.drop(r.conn)
		}
		return nil, err
	}
	return r, nil
}

// Claim renews the right to use the entity when it is about to expire; otherwise it does
// nothing. A receiver that stays open has to call it now and then, or the service detaches it.
func (r *Receiver) Claim(ctx context.Context) error {
	return r.conn.claim(ctx, r.ns.cfg.Tokens, r.ns.audience(r.entity))
}

// Grant lets the broker send n messages more. Frames sent over the Namespace later follow it.
func (r *Receiver) Grant(ctx context.Context, n uint32) error {
	return clientError(r.link.Grant(ctx, n))
}

// Receive waits for one message, at most as long as wait. It returns nil without an
// error when none came.
func (r *Receiver) Receive(ctx context.Context, wait time.Duration) (*ReceivedMessage, error) {
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	d, err := r.link.Receive(timed)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, clientError(err)
	}
	return newReceived(d, r.bare), nil
}

// Next grants one credit and returns the message that the broker has for it, or nil when it has
// none. It does not wait for one: the credit is drained after settleMargin. Next calls each of sent
// when the credit is on its way.
//
// A broker that searches for messages as soon as credit arrives has done so by then. From any
// other, Next may return nil although there was a message, so a caller must check the queue again.
func (r *Receiver) Next(ctx context.Context, sent ...func()) (*ReceivedMessage, error) {
	if err := r.Grant(ctx, 1); err != nil {
		return nil, err
	}
	for _, f := range sent {
		f()
	}
	m, err := r.Receive(ctx, settleMargin)
	if m != nil || err != nil {
		return m, err
	}
	if err := r.Drain(ctx); err != nil {
		return nil, err
	}
	return r.Prefetched(), nil
}

// Drain takes back what is left of the granted credit. Messages that the broker sent
// before are still to be received. It is bounded, but not ended by ctx: one that is given up leaves
// open what is still to come.
func (r *Receiver) Drain(ctx context.Context) error {
	if r.stalled {
		return nil // it was said before that it is
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := r.link.Drain(ctx); err != nil {
		r.stalled = true
		return fmt.Errorf("link: drain %s: %w", r.entity, clientError(err))
	}
	return nil
}

// IsStalled reports whether a drain was not answered in time. The broker may still send a message.
func (r *Receiver) IsStalled() bool { return r.stalled }

// Prefetched is a message that has arrived already, or nil.
func (r *Receiver) Prefetched() *ReceivedMessage {
	d := r.link.Arrived()
	if d == nil {
		return nil
	}
	return newReceived(d, r.bare)
}

// GiveBack releases ms, takes back the remaining credit and releases the messages that came for it.
// Then the link holds only the other messages that were received over it. It does so although ctx
// has ended: a lock that is left to lapse costs its message a delivery. It returns how many
// messages it has released, or tried to.
func (r *Receiver) GiveBack(ctx context.Context, ms ...*ReceivedMessage) (n int, err error) {
	drainErr := r.Drain(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	for m := r.Prefetched(); m != nil; m = r.Prefetched() {
		ms = append(ms, m)
	}
	ds := make([]*client.Delivery, len(ms))
	for i, m := range ms {
		ds[i] = m.delivery
	}
	if err := clientError(r.link.Settle(ctx, amqp.Released{}, ds...)); err != nil {
		return len(ms), fmt.Errorf("link: release on %s: %w", r.entity, err)
	}
	return len(ms), drainErr
}

// Complete settles m: it is gone from the queue.
func (r *Receiver) Complete(ctx context.Context, m *ReceivedMessage) error {
	return r.settle(ctx, m, amqp.Accepted{})
}

// Release gives m back as if it had never been taken: its delivery count stays.
func (r *Receiver) Release(ctx context.Context, m *ReceivedMessage) error {
	return r.settle(ctx, m, amqp.Released{})
}

// DeadLetter moves m to the dead-letter queue with a reason and a description.
func (r *Receiver) DeadLetter(ctx context.Context, m *ReceivedMessage, reason, description string) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return r.settle(ctx, m, &amqp.Rejected{Error: &amqp.Error{
		Condition: conditionDeadLetter,
		Info:      amqp.Map{{Key: amqp.Symbol("DeadLetterReason"), Value: reason}, {Key: amqp.Symbol("DeadLetterErrorDescription"), Value: description}},
	}})
}

func (r *Receiver) settle(ctx context.Context, m *ReceivedMessage, outcome amqp.DeliveryState) error {
	return clientError(r.link.Settle(ctx, outcome, m.delivery))
}

// Close detaches the link. Messages that it holds and did not settle stay locked
// until their locks lapse, which costs each a delivery: so settle them first.
func (r *Receiver) Close(ctx context.Context) { r.link.Close(context.WithoutCancel(ctx)) }
