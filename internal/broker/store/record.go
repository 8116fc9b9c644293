// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
)

// The first byte of a key says what it is of.
const (
	prefixEntity  = 'e'
	prefixHighest = 'h'
	prefixNumber  = 'n'
	prefixMessage = 'm'
	prefixContent = 'c'
	prefixState   = 's'
	prefixSent    = 'i'
)

const (
	recordKeySize = 1 + 4 + 8 // of a message, or of its content
	sentKeySize   = 1 + 4 + 8 // without the message-id
)

var highestKey = []byte{prefixHighest}

func entityKey(id uint32) []byte { return binary.BigEndian.AppendUint32([]byte{prefixEntity}, id) }

func numberKey(id uint32) []byte { return binary.BigEndian.AppendUint32([]byte{prefixNumber}, id) }

// recordKey is for a message or its content, as prefix says.
func recordKey(prefix byte, id uint32, record int64) []byte {
	k := make([]byte, 0, recordKeySize)
	k = binary.BigEndian.AppendUint32(append(k, prefix), id)
	return binary.BigEndian.AppendUint64(k, uint64(record))
}

// recordsKey is what all such keys of a queue begin with.
func recordsKey(prefix byte, id uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{prefix}, id)
}

// stateKey is for the state of a session; without one, the keys of all of a queue begin with it.
func stateKey(id uint32, session string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{prefixState}, id), session...)
}

// sentKey is for a message-id. Those of a queue lie in order of time, so that old ones go as a
// range.
func sentKey(id uint32, sentAt time.Time, messageID string) []byte {
	k := binary.BigEndian.AppendUint32([]byte{prefixSent}, id)
	k = binary.BigEndian.AppendUint64(k, uint64(sentAt.UnixMicro())^1<<63) // negative ones first
	return append(k, messageID...)
}

func sentKeys(id uint32) []byte { return binary.BigEndian.AppendUint32([]byte{prefixSent}, id) }

// readSent is the opposite of sentKey.
func readSent(k, _ []byte, c *queue.Change) error {
	if len(k) < sentKeySize {
		return fmt.Errorf("a key of a message-id has %d bytes", len(k))
	}
	c.Fate = queue.IDSent
	c.EnqueuedTime = time.UnixMicro(int64(binary.BigEndian.Uint64(k[5:]) ^ 1<<63)).UTC()
	c.MessageID = string(k[sentKeySize:])
	return nil
}

// appendState appends the state of a session, and since when it has it.
func appendState(b []byte, c *queue.Change) []byte {
	b, start := amqp.BeginList(b)
	b = appendTime(b, c.EnqueuedTime)
	b = amqp.AppendBinary(b, c.Body)
	return amqp.EndList(b, start, 2)
}

// readState is the opposite of stateKey and appendState.
func readState(k, value []byte, c *queue.Change) error {
	r := amqp.NewReader(value)
	l, n := r.List()
	if n < 2 {
		r.Fail(fmt.Errorf("a state has %d fields", n))
	}
	c.Fate = queue.StateSet
	c.SessionID = string(k[len(stateKey(0, "")):])
	c.EnqueuedTime = readTime(&l)
	c.Body = bytes.Clone(l.Binary())
	r.Fail(l.Err())
	return r.Err()
}

// readRecordKey is the opposite of recordKey.
func readRecordKey(k []byte) (id uint32, record int64, err error) {
	if len(k) != recordKeySize {
		return 0, 0, fmt.Errorf("%w: a key has %d bytes, want %d", ErrDamaged, len(k), recordKeySize)
	}
	return binary.BigEndian.Uint32(k[1:]), int64(binary.BigEndian.Uint64(k[5:])), nil
}

// readRecord is the opposite of recordKey and appendMessage.
func readRecord(k, value []byte, c *queue.Change) (err error) {
	if _, c.Record, err = readRecordKey(k); err != nil {
		return err
	}
	return readMessage(value, &c.Stored)
}

// The bits of flags.
const (
	flagDead = 1 << iota
	flagDelivered
	flagActivated
	flagEntityTTL
	flagSession
)

// messageFields is how many fields a message has.
const messageFields = 17

// appendMessage appends a message without its content.
func appendMessage(b []byte, m *queue.Stored) ([]byte, error) {
	flags := uint32(0)
	for _, flag := range [...]struct {
		is  bool
		bit uint32
	}{
		{m.Dead, flagDead},
		{m.Delivered, flagDelivered},
		{m.Activated, flagActivated},
		{m.EntityTTL, flagEntityTTL},
		{m.HasSession, flagSession},
	} {
		if flag.is {
			flags |= flag.bit
		}
	}
	b, start := amqp.BeginList(b)
	b = amqp.AppendUint(b, flags)
	b = amqp.AppendLong(b, m.SequenceNumber)
	b = amqp.AppendInt(b, int32(m.State))
	b = amqp.AppendInt(b, int32(m.DeliveryCount))
	b = appendTime(b, m.EnqueuedTime)
	b = appendTime(b, m.ExpiresAt)
	b = appendTime(b, m.DeadLetteredTime)
	b = amqp.AppendString(b, m.DeadLetterReason)
	b = amqp.AppendString(b, m.DeadLetterErrorDescription)
	b, properties := amqp.BeginMap(b)
	for i := range m.Properties {
		p := &m.Properties[i]
		var err error
		if b, err = amqp.AppendValue(amqp.AppendString(b, p.Key), p.Value); err != nil {
			return nil, fmt.Errorf("property %.100q: %w", p.Key, err)
		}
	}
	b = amqp.EndMap(b, properties, len(m.Properties))
	b = amqp.AppendString(b, m.SessionID)
	b = amqp.AppendLong(b, int64(m.TTL))
	b = appendTime(b, m.ScheduledEnqueueTime)
	b = amqp.AppendLong(b, m.EnqueuedSequenceNumber)
	b = amqp.AppendInt(b, int32(m.Hops))
	b = amqp.AppendString(b, m.DeadLetterSource)
	b = amqp.AppendUint(b, uint32(m.ContentSize))
	return amqp.EndList(b, start, messageFields), nil
}

// readMessage is the opposite of appendMessage. Of value, it keeps nothing.
func readMessage(value []byte, m *queue.Stored) error {
	r := amqp.NewReader(value)
	l, n := r.List()
	if n < messageFields {
		r.Fail(fmt.Errorf("a message has %d fields", n))
	}
	flags := l.Uint()
	m.Dead = flags&flagDead != 0
	m.Delivered = flags&flagDelivered != 0
	m.Activated = flags&flagActivated != 0
	m.EntityTTL = flags&flagEntityTTL != 0
	m.HasSession = flags&flagSession != 0
	m.SequenceNumber = l.Long()
	m.State = queue.State(l.Int())
	m.DeliveryCount = int(l.Int())
	m.EnqueuedTime = readTime(&l)
	m.ExpiresAt = readTime(&l)
	m.DeadLetteredTime = readTime(&l)
	m.DeadLetterReason = l.String()
	m.DeadLetterErrorDescription = l.String()
	pairs, many := l.Map()
	for range many {
		m.Properties = append(m.Properties, queue.Property{Key: pairs.String(), Value: pairs.Value()})
	}
	m.SessionID = l.String()
	m.TTL = time.Duration(l.Long())
	m.ScheduledEnqueueTime = readTime(&l)
	m.EnqueuedSequenceNumber = l.Long()
	m.Hops = int(l.Int())
	m.DeadLetterSource = l.String()
	m.ContentSize = int(l.Uint())
	r.Fail(pairs.Err())
	r.Fail(l.Err())
	return r.Err()
}

// readContent reads a message-id and what follows. Of value, it keeps nothing.
func readContent(value []byte) (c queue.Content, err error) {
	r := amqp.NewReader(value)
	c.MessageID = r.String()
	c.Body = bytes.Clone(r.Rest())
	return c, r.Err()
}

// appendTime keeps microseconds, as a queue does. The zero time is null.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return amqp.AppendNull(b)
	}
	return amqp.AppendLong(b, t.UnixMicro())
}

func readTime(r *amqp.Reader) time.Time {
	if r.Null() {
		return time.Time{}
	}
	return time.UnixMicro(r.Long()).UTC()
}
