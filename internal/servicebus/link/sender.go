// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"

	codec "overdue/internal/amqp"
)

// A Sender sends messages as they are encoded, whatever is in them: the SDK would decode them
// first, which it cannot do with all. It is safe for concurrent use, with several transfers at a
// time.
type Sender struct {
	ns      *Namespace
	conn    *conn
	entity  string
	session *amqp.Session
	link    *amqp.Sender
	// writing is whose turn it is to write a transfer. The client takes turns, too, but without
	// regard to a context.
	writing turn
}

// ErrTooLarge says that the entity takes no transfer of that size. Send returns it before anything
// is sent, and also when the broker says so.
var ErrTooLarge = errors.New("link: larger than the entity allows")

// Sender opens a sender to a queue or topic.
func (n *Namespace) Sender(ctx context.Context, entity string) (*Sender, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &Sender{ns: n, conn: c, entity: entity, writing: newTurn()}
	if err = n.claim(ctx, c, entity); err == nil {
		if s.session, err = c.amqp.NewSession(ctx, nil); err == nil {
			s.link, err = s.session.NewSender(ctx, entity, nil)
		}
	}
	if err != nil {
		if !refused(err) {
			n.drop(c)
		} else if s.session != nil {
			s.Close(ctx)
		}
		return nil, fmt.Errorf("link: open sender to %s: %w", entity, err)
	}
	return s, nil
}

// MaxMessageSize is how many bytes a message, or a batch, may have; 0 = any number.
func (s *Sender) MaxMessageSize() uint64 { return s.link.MaxMessageSize() }

// Send sends the messages as one batch: the broker takes all of them or none. They have one session
// and one partition key, or neither; nil = none.
func (s *Sender) Send(ctx context.Context, messages [][]byte, sessionID, partitionKey *string) error {
	// The broker goes by the envelope where it goes by a session or a key.
	m := &amqp.Message{Format: codec.BatchMessageFormat, Data: messages, Properties: &amqp.MessageProperties{GroupID: sessionID}}
	if partitionKey != nil {
		m.Annotations = amqp.Annotations{"x-opt-partition-key": *partitionKey}
	}
	return s.send(ctx, m)
}

// send returns when the broker has accepted m.
func (s *Sender) send(ctx context.Context, m *amqp.Message) error {
	if err := s.ns.claim(ctx, s.conn, s.entity); err != nil {
		return err
	}
	receipt, err := s.write(ctx, m)
	var state amqp.DeliveryState
	if err == nil {
		state, err = receipt.Wait(ctx)
	}
	switch state := state.(type) {
	case *amqp.StateAccepted:
		return nil
	case *amqp.StateRejected:
		err = errors.New("the broker rejects it without a reason")
		if state.Error != nil {
			err = state.Error
		}
	default:
		if err == nil { // released or modified: the message is not on the queue
			err = fmt.Errorf("the outcome is %T", state)
		}
	}
	if Condition(err) == string(amqp.ErrCondMessageSizeExceeded) {
		return fmt.Errorf("%w: send to %s: %w", ErrTooLarge, s.entity, err)
	}
	return fmt.Errorf("link: send to %s: %w", s.entity, err)
}

// write writes one transfer.
func (s *Sender) write(ctx context.Context, m *amqp.Message) (amqp.SendReceipt, error) {
	if err := s.writing.take(ctx); err != nil {
		return amqp.SendReceipt{}, err
	}
	defer s.writing.give()
	receipt, err := s.link.SendWithReceipt(ctx, m, nil)
	if err != nil && ctx.Err() != nil { // the client reports a wait for credit as a refusal
		err = fmt.Errorf("not written: %w", context.Cause(ctx))
	}
	return receipt, err
}

// Close detaches the link.
func (s *Sender) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.session.Close(ctx); err != nil {
		s.ns.drop(s.conn) // or the half-closed session would stay
	}
}
