// SPDX-License-Identifier: Apache-2.0

package link

import (
	"math"
	"time"

	codec "overdue/internal/amqp"
)

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
