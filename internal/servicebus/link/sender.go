// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

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

// maxSenders bounds the links that are kept open to send over, since names of entities come from
// clients and from the reply-to of messages. There are more only while sends to more entities are
// in flight.
const maxSenders = 256

// senders keeps a sender for each entity, all of them on the connection for sending.
type senders struct {
	mu     sync.Mutex
	closed bool
	byName map[string]*keptSender // by the entity's name in lower case
}

// A keptSender is a sender with the number of sends that use it.
type keptSender struct {
	*ReconnectingSender
	name     string
	users    int
	lastUsed time.Time
}

// Send returns when the broker has accepted an encoded message for a queue or topic. Where errors
// may pass it tries again, as a [ReconnectingSender] does.
func (n *Namespace) Send(ctx context.Context, entity string, message []byte) error {
	return n.transmit(ctx, entity, 0, message)
}

// SendBatch is Send for several messages, of which the broker takes all or none. batch is an
// encoded message whose data sections are encoded messages.
func (n *Namespace) SendBatch(ctx context.Context, entity string, batch []byte) error {
	return n.transmit(ctx, entity, codec.BatchMessageFormat, batch)
}

func (n *Namespace) transmit(ctx context.Context, entity string, format uint32, payload []byte) error {
	s, err := n.borrow(entity)
	if err != nil {
		return err
	}
	err = s.transmit(ctx, format, payload)
	n.giveBack(s, err)
	return err
}

// borrow returns the sender to an entity, and counts one user. It opens no link.
func (n *Namespace) borrow(entity string) (*keptSender, error) {
	name := strings.ToLower(entity)
	n.senders.mu.Lock()
	defer n.senders.mu.Unlock()
	if n.senders.closed {
		return nil, ErrClosed
	}
	s := n.senders.byName[name]
	if s == nil {
		if len(n.senders.byName) >= maxSenders {
			n.senders.dropOldestLocked()
		}
		s = &keptSender{
			ReconnectingSender: &ReconnectingSender{ns: n, entity: entity, opening: newTurn()},
			name:               name,
		}
		n.senders.byName[name] = s
	}
	s.users++
	return s, nil
}

// giveBack ends a use. An entity that has refused a link is forgotten with its last user, so that
// wrong names do not push the links of others out.
func (n *Namespace) giveBack(s *keptSender, err error) {
	n.senders.mu.Lock()
	defer n.senders.mu.Unlock()
	s.users--
	s.lastUsed = time.Now()
	if s.users == 0 && err != nil && !s.isOpen() {
		n.senders.dropLocked(s)
	}
}

// dropOldestLocked closes the sender that has been unused the longest, if there is one.
func (p *senders) dropOldestLocked() {
	var oldest *keptSender
	for _, s := range p.byName {
		if s.users == 0 && (oldest == nil || s.lastUsed.Before(oldest.lastUsed)) {
			oldest = s
		}
	}
	if oldest != nil {
		p.dropLocked(oldest)
	}
}

func (p *senders) dropLocked(s *keptSender) {
	delete(p.byName, s.name)
	if s.isOpen() {
		go func() { _ = s.Close(context.Background()) }() // nobody uses it, and Close bounds it
	}
}

// close lets no send begin any more.
func (p *senders) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// maxKept bounds the memory that a Batch keeps for its next messages.
const maxKept = 256 << 10

// A ScheduledMessage is a message that the broker enqueues when it is due.
type ScheduledMessage struct {
	MessageID, Subject, ContentType string
	Due                             time.Time     // zero: at once
	TimeToLive                      time.Duration // from then on; 0: without an end
	Body                            []byte
}

// Encoded is the message as the SDK encodes it.
func (m *ScheduledMessage) Encoded() []byte { return appendScheduled(nil, m) }

// A Batch is scheduled messages that go in one transfer: the broker takes all of them or none.
type Batch struct {
	bytes   []byte // the encoded envelope, and the messages in its data sections
	n       int
	message []byte // the last one, encoded
}

// Add takes a message, whose body may be used again afterwards.
func (b *Batch) Add(m *ScheduledMessage) {
	if b.n == 0 {
		// The envelope has the id of the first message, as the SDKs write it: a partitioned queue
		// takes its partition from there.
		start := 0
		b.bytes, start = codec.BeginList(codec.AppendDescriptor(b.bytes, codec.CodeProperties))
		b.bytes = codec.EndList(codec.AppendString(b.bytes, m.MessageID), start, 1)
	}
	b.message = appendScheduled(b.message[:0], m)
	b.bytes = codec.AppendData(b.bytes, b.message)
	b.n++
}

// Len is the number of messages.
func (b *Batch) Len() int { return b.n }

// Size is how many bytes the transfer has.
func (b *Batch) Size() int { return len(b.bytes) }

// Reset takes the messages out.
func (b *Batch) Reset() {
	if cap(b.bytes) > maxKept {
		b.bytes, b.message = nil, nil
	}
	b.bytes, b.n = b.bytes[:0], 0
}

// appendScheduled encodes m as the SDK does.
func appendScheduled(b []byte, m *ScheduledMessage) []byte {
	start := 0
	if m.TimeToLive > 0 {
		header := codec.Header{
			Priority: codec.DefaultPriority,
			TTL:      uint32(min(m.TimeToLive.Milliseconds(), math.MaxUint32)),
			HasTTL:   true,
		}
		b = header.Append(b)
	}
	if !m.Due.IsZero() {
		b, start = codec.BeginMap(codec.AppendDescriptor(b, codec.CodeMessageAnnotations))
		b = codec.AppendSymbol(b, "x-opt-scheduled-enqueue-time")
		b = codec.AppendTimestamp(b, codec.TimestampOf(m.Due))
		b = codec.EndMap(b, start, 1)
	}
	b, start = codec.BeginList(codec.AppendDescriptor(b, codec.CodeProperties))
	b = codec.AppendString(b, m.MessageID)
	b = codec.AppendNull(codec.AppendNull(b)) // user-id, to
	b = codec.AppendString(b, m.Subject)
	b = codec.AppendNull(codec.AppendNull(b)) // reply-to, correlation-id
	b = codec.AppendSymbol(b, codec.Symbol(m.ContentType))
	b = codec.EndList(b, start, 7)
	return codec.AppendData(b, m.Body)
}
