// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"iter"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

// readMessage reads an encoded message as far as the send path needs it. The result refers to
// encoded.
func readMessage(encoded []byte) (*message, error) {
	m := new(message)
	if err := m.read(encoded); err != nil {
		return nil, err
	}
	return m, nil
}

// read is readMessage into a zero message.
func (m *message) read(encoded []byte) error {
	raw, err := amqp.ParseMessage(encoded)
	if err != nil {
		return rest.BadRequest("The message cannot be read: %s.", err)
	}
	if e := rights.Ambiguous(&raw); e != nil {
		return rest.BadRequest("%s", e.Description)
	}
	m.encoded, m.Size = encoded, int64(len(raw.Body))
	if properties := raw.ApplicationProperties; len(properties) > 0 {
		m.Property = func(name string) any { return propertyOf(properties, name) }
	}
	return m.readFields(&raw)
}

// readFields reads the message's own fields, as opposed to its properties.
func (m *message) readFields(raw *amqp.Message) (err error) {
	id, named := amqp.ListField(raw.Properties, amqp.PropertyMessageID)
	group, grouped := amqp.ListField(raw.Properties, amqp.PropertyGroupID)
	if m.ID, err = idText(id, named, "message-id"); err != nil {
		return err
	}
	if m.SessionID, err = idText(group, grouped, "group-id"); err != nil {
		return err
	}
	if m.TTL, err = raw.Life(); err != nil {
		return rest.BadRequest("The message cannot be read: %s.", err)
	}
	if at, ok := amqp.MapLookup(raw.MessageAnnotations, annotationScheduledEnqueueTime); ok && !at.Null() {
		m.ScheduledEnqueueTime = at.Timestamp().Time()
		if at.Err() != nil {
			return rest.BadRequest("The message cannot be read: %s: %s.", annotationScheduledEnqueueTime, at.Err())
		}
	}
	return nil
}

// idText returns the id at r, which has a name in errors.
func idText(r amqp.Reader, ok bool, name string) (string, error) {
	id, err := idOf(r, ok)
	if err != nil {
		return "", rest.BadRequest("The message cannot be read: %s: %s.", name, err)
	}
	if n := utf8.RuneCount(id); n > address.MaxID {
		return "", rest.BadRequest("The %s has %d characters; at most %d are allowed.", name, n, address.MaxID)
	}
	return string(id), nil
}

// idOf returns the text at r, empty when there is none. An id of another type is formatted.
func idOf(r amqp.Reader, ok bool) ([]byte, error) {
	if !ok || r.Null() {
		return nil, nil
	}
	text := r
	if id := text.StringBytes(); text.Err() == nil {
		return id, nil
	}
	v := r.Value()
	return []byte(amqp.IDText(v)), r.Err()
}

// propertyOf returns an application property in one of the types that state deadlines.
func propertyOf(properties amqp.Raw, name string) any {
	r, ok := amqp.MapLookup(properties, name)
	if !ok {
		return nil
	}
	v := r.Value()
	if err := r.Err(); err != nil {
		return err // no deadline has this type, so it is refused and not ignored
	}
	return amqp.TimeOrSpan(v)
}

// incomplete reports whether an id or a TTL has to be added to the message.
func (m *message) incomplete() bool { return m.GivenID != "" || m.Stamp > 0 }

// appendCompleted appends the message with its given message-id and its stamp. All other fields
// and sections keep their encoding byte for byte.
func (m *message) appendCompleted(dst []byte) []byte {
	var id, ttl amqp.Raw
	var idRoom [32]byte // more than a generated id needs
	var ttlRoom [8]byte
	if m.GivenID != "" {
		id = amqp.AppendString(idRoom[:0], m.GivenID)
	}
	if m.Stamp > 0 {
		ttl = amqp.AppendUint(ttlRoom[:0], uint32(m.Stamp/time.Millisecond))
	}
	last := uint64(0)
	for s := range sectionsOf(m.encoded) {
		// A missing section goes before the first section that must follow it. A section out of
		// order is the last, see amqp.ParseMessage.
		if ttl != nil && s.code > amqp.CodeHeader {
			dst, ttl = appendWithField(amqp.AppendDescriptor(dst, amqp.CodeHeader), nil, amqp.HeaderTTL, ttl), nil
		}
		if id != nil && (s.code > amqp.CodeProperties || s.code < last) {
			dst, id = appendWithField(amqp.AppendDescriptor(dst, amqp.CodeProperties), nil, amqp.PropertyMessageID, id), nil
		}
		switch {
		case s.code == amqp.CodeHeader && ttl != nil:
			dst, ttl = appendWithField(append(dst, s.descriptor...), s.value, amqp.HeaderTTL, ttl), nil
		case s.code == amqp.CodeProperties && id != nil:
			dst, id = appendWithField(append(dst, s.descriptor...), s.value, amqp.PropertyMessageID, id), nil
		default:
			dst = append(dst, s.whole...)
		}
		last = s.code
	}
	if ttl != nil {
		dst = appendWithField(amqp.AppendDescriptor(dst, amqp.CodeHeader), nil, amqp.HeaderTTL, ttl)
	}
	if id != nil {
		dst = appendWithField(amqp.AppendDescriptor(dst, amqp.CodeProperties), nil, amqp.PropertyMessageID, id)
	}
	return dst
}

// A section is one section of an encoded message.
type section struct {
	code              uint64
	whole, descriptor []byte
	value             amqp.Raw
}

// sectionsOf returns the sections of an encoded message, which has been read before.
func sectionsOf(encoded []byte) iter.Seq[section] {
	return func(yield func(section) bool) {
		for r := amqp.NewReader(encoded); !r.Done(); {
			rest := r.Rest()
			s := section{code: r.Descriptor(), value: r.Raw()}
			s.whole = rest[:len(rest)-r.Len()]
			s.descriptor = s.whole[:len(s.whole)-len(s.value)]
			if !yield(s) {
				return
			}
		}
	}
}

// appendWithField appends a list with one of its fields set to value. Missing fields before it
// become null, which means the same. list has been checked; nil is an empty one.
func appendWithField(dst []byte, list amqp.Raw, field int, value amqp.Raw) []byte {
	var fields amqp.Reader
	n := 0
	if list != nil {
		r := amqp.NewReader(list)
		fields, n = r.List()
	}
	dst, start := amqp.BeginList(dst)
	for i := range max(n, field+1) {
		var old amqp.Raw // null
		if i < n {
			old = fields.Raw()
		}
		if i == field {
			old = value
		}
		dst = amqp.AppendRaw(dst, old)
	}
	return amqp.EndList(dst, start, max(n, field+1))
}

// maxBatch bounds the messages of one batch. Service Bus accepts 4,500, and 15,885 on some tiers.
const maxBatch = 20_000

// readPayload reads the payload of a transfer: one message, or the messages of a batch.
func readPayload(payload []byte, format uint32) ([]*message, error) {
	if format != amqp.BatchMessageFormat {
		m, err := readMessage(payload)
		if err != nil {
			return nil, err
		}
		return []*message{m}, nil
	}
	envelope, err := amqp.ParseMessage(payload)
	if err != nil {
		return nil, rest.BadRequest("The batch cannot be read: %s.", err)
	}
	var ms []*message
	var next []message // allocated in chunks
	for encoded, err := range amqp.DataSections(envelope.Body) {
		if err != nil {
			return nil, rest.BadRequest("The batch cannot be read: %s.", err)
		}
		if len(ms) == maxBatch {
			return nil, rest.BadRequest("The batch has more than %d messages.", maxBatch)
		}
		if len(next) == 0 {
			next = make([]message, min(max(len(ms), 4), 64))
		}
		m := &next[0]
		next = next[1:]
		if err := m.read(encoded); err != nil {
			return nil, rest.BadRequest("Message %d of the batch: %s", len(ms)+1, sentenceOf(err))
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// completed returns the payload with the missing ids and TTLs added, or payload itself if nothing
// is missing.
//
// The envelope of a batch stays unchanged. SDKs repeat properties of the first message there, and
// brokers read only its partition key, which does not change. An id or a TTL of one message in
// the envelope could be taken to apply to all.
func completed(payload []byte, format uint32, ms []*message) []byte {
	extra := 0
	for _, m := range ms {
		if m.incomplete() {
			extra += 64 // more than an id and a TTL need
		}
	}
	if extra == 0 {
		return payload
	}
	out := make([]byte, 0, len(payload)+extra)
	if format != amqp.BatchMessageFormat {
		return ms[0].appendCompleted(out)
	}
	var inner []byte
	for s := range sectionsOf(payload) {
		if s.code == amqp.CodeData {
			m := ms[0]
			ms = ms[1:]
			if m.incomplete() {
				inner = m.appendCompleted(inner[:0])
				out = append(out, s.descriptor...)
				out = amqp.AppendBinary(out, inner)
				continue
			}
		}
		out = append(out, s.whole...)
	}
	return out
}
