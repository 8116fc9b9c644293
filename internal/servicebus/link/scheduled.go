// SPDX-License-Identifier: Apache-2.0

package link

import (
	"time"

	"github.com/Azure/go-amqp"

	codec "overdue/internal/amqp"
)

// maxKept bounds the memory that a Batch keeps for its next messages.
const maxKept = 256 << 10

// A ScheduledMessage is a message that the broker enqueues when it is due.
type ScheduledMessage struct {
	MessageID, Subject, ContentType string
	Due                             time.Time
	Body                            []byte
}

// A Batch is scheduled messages that go in one transfer: the broker takes all of them or none.
type Batch struct {
	bytes []byte // encoded messages
	ends  []int  // of each in bytes
	first string // the message-id of the first
	data  [][]byte
}

// Add takes a message, whose body may be used again afterwards.
func (b *Batch) Add(m *ScheduledMessage) {
	if len(b.ends) == 0 {
		b.first = m.MessageID
	}
	b.bytes = appendScheduled(b.bytes, m)
	b.ends = append(b.ends, len(b.bytes))
}

// Len is the number of messages.
func (b *Batch) Len() int { return len(b.ends) }

// Size is how many bytes the messages have.
func (b *Batch) Size() int { return len(b.bytes) }

// Reset takes the messages out.
func (b *Batch) Reset() {
	if cap(b.bytes) > maxKept {
		b.bytes = nil
	}
	clear(b.data)
	b.bytes, b.ends, b.data, b.first = b.bytes[:0], b.ends[:0], b.data[:0], ""
}

// message is the batch as one transfer. The envelope has the id of the first message, as the SDKs
// write it: a partitioned queue takes its partition from there.
func (b *Batch) message() *amqp.Message {
	b.data = b.data[:0]
	start := 0
	for _, end := range b.ends {
		b.data = append(b.data, b.bytes[start:end])
		start = end
	}
	return &amqp.Message{
		Format: codec.BatchMessageFormat, Data: b.data, Properties: &amqp.MessageProperties{MessageID: b.first},
	}
}

// appendScheduled encodes m as the SDK does.
func appendScheduled(b []byte, m *ScheduledMessage) []byte {
	b, start := codec.BeginMap(codec.AppendDescriptor(b, codec.CodeMessageAnnotations))
	b = codec.AppendSymbol(b, "x-opt-scheduled-enqueue-time")
	b = codec.AppendTimestamp(b, codec.TimestampOf(m.Due))
	b = codec.EndMap(b, start, 1)
	b, start = codec.BeginList(codec.AppendDescriptor(b, codec.CodeProperties))
	b = codec.AppendString(b, m.MessageID)
	b = codec.AppendNull(codec.AppendNull(b)) // user-id, to
	b = codec.AppendString(b, m.Subject)
	b = codec.AppendNull(codec.AppendNull(b)) // reply-to, correlation-id
	b = codec.AppendSymbol(b, codec.Symbol(m.ContentType))
	b = codec.EndList(b, start, 7)
	return codec.AppendData(b, m.Body)
}
