// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"

	codec "overdue/internal/amqp"
	"overdue/internal/amqp/client"
)

// A Sender sends messages as they are encoded, whatever is in them: the SDK would decode them
// first, which it cannot do with all. It is safe for concurrent use, with several transfers at a
// time.
type Sender struct {
	ns       *Namespace
	conn     *conn
	entity   string
	audience string // of entity
	link     *client.Sender
}

// Sender opens a sender to a queue or topic.
func (n *Namespace) Sender(ctx context.Context, entity string) (*Sender, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := n.sending.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &Sender{ns: n, conn: c, entity: entity, audience: n.audience(entity)}
	if err = s.claim(ctx); err == nil {
		s.link, err = c.wire.Sender(ctx, entity)
		err = clientError(err)
	}
	if err != nil {
		if !refused(err) {
			n.sending.drop(c)
		}
		return nil, fmt.Errorf("link: open sender to %s: %w", entity, err)
	}
	return s, nil
}

// MaxMessageSize is how many bytes a message, or a batch, may have; 0 = any number.
func (s *Sender) MaxMessageSize() uint64 { return s.link.MaxMessageSize() }

func (s *Sender) claim(ctx context.Context) error {
	return s.conn.claim(ctx, s.ns.cfg.Tokens, s.audience)
}

// Send sends the messages as one batch: the broker takes all of them or none. They have one session
// and one partition key, or neither; nil = none.
func (s *Sender) Send(ctx context.Context, messages [][]byte, sessionID, partitionKey *string) error {
	// The broker goes by the envelope where it goes by a session or a key.
	var b []byte
	if partitionKey != nil {
		var start int
		b, start = codec.BeginMap(codec.AppendDescriptor(b, codec.CodeMessageAnnotations))
		b = codec.AppendString(codec.AppendSymbol(b, "x-opt-partition-key"), *partitionKey)
		b = codec.EndMap(b, start, 1)
	}
	b = (&codec.Properties{GroupID: sessionID}).Append(b)
	for _, m := range messages {
		b = codec.AppendData(b, m)
	}
	return s.transmit(ctx, codec.BatchMessageFormat, b)
}

// transmit returns when the broker has accepted an encoded message or batch, as its format says.
func (s *Sender) transmit(ctx context.Context, format uint32, payload []byte) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	err := clientError(s.link.Send(ctx, format, payload))
	switch {
	case err == nil:
		return nil
	case Condition(err) == string(amqp.ErrCondMessageSizeExceeded):
		return fmt.Errorf("%w: send to %s: %w", ErrTooLarge, s.entity, err)
	}
	return fmt.Errorf("link: send to %s: %w", s.entity, err)
}

// Close detaches the link.
func (s *Sender) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	s.link.Close(ctx)
}
