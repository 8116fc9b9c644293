// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"

	codec "overdue/internal/amqp"
)

// A Sender sends messages as they are encoded, whatever is in them: the SDK would decode them first, which it cannot
// do with all. It is for one goroutine.
type Sender struct {
	ns      *Namespace
	conn    *conn
	entity  string
	session *amqp.Session
	link    *amqp.Sender
}

// Sender opens a sender to a queue or topic.
func (n *Namespace) Sender(ctx context.Context, entity string) (*Sender, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &Sender{ns: n, conn: c, entity: entity}
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
		return nil, fmt.Errorf("sblink: open sender to %s: %w", entity, err)
	}
	return s, nil
}

// MaxMessageSize is how many bytes a message, or a batch, may have; 0 = any number.
func (s *Sender) MaxMessageSize() uint64 { return s.link.MaxMessageSize() }

// Send sends the messages as one batch: the broker takes all of them or none. They have one session and one partition
// key, or neither; nil = none.
func (s *Sender) Send(ctx context.Context, messages [][]byte, sessionID, partitionKey *string) error {
	if err := s.ns.claim(ctx, s.conn, s.entity); err != nil {
		return err
	}
	// The broker goes by the envelope where it goes by a session or a key.
	m := &amqp.Message{Format: codec.BatchMessageFormat, Data: messages, Properties: &amqp.MessageProperties{GroupID: sessionID}}
	if partitionKey != nil {
		m.Annotations = amqp.Annotations{"x-opt-partition-key": *partitionKey}
	}
	if err := s.link.Send(ctx, m, nil); err != nil {
		return fmt.Errorf("sblink: send to %s: %w", s.entity, err)
	}
	return nil
}

// Close detaches the link.
func (s *Sender) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.session.Close(ctx); err != nil {
		s.ns.drop(s.conn) // or the half-closed session would stay
	}
}
