// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

// maxID is the longest message-id, session-id or partition key of Service Bus, in characters.
const maxID = 128

// An amqpMessage is one encoded message, read no further than the send path has to know it.
type amqpMessage struct {
	message
	encoded []byte // as the app sent it; never changed
	idAdded bool   // it has no message-id: its ID was made here and has to be put on it
}

// readMessage reads an encoded message, which the result keeps hold of.
func readMessage(encoded []byte) (*amqpMessage, error) {
	m := new(amqpMessage)
	if err := m.read(encoded); err != nil {
		return nil, err
	}
	return m, nil
}

// read is readMessage for a message that is zero.
func (m *amqpMessage) read(encoded []byte) error {
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
	if err := m.readFields(&raw); err != nil {
		return err
	}
	// An empty id names nothing.
	if m.idAdded = m.ID == ""; m.idAdded {
		m.ID = newMessageID()
	}
	return nil
}

// readFields reads what has a place of its own in the message.
func (m *amqpMessage) readFields(raw *amqp.Message) (err error) {
	id, named := amqp.ListField(raw.Properties, amqp.PropertyMessageID)
	group, grouped := amqp.ListField(raw.Properties, amqp.PropertyGroupID)
	key, keyed := amqp.MapLookup(raw.MessageAnnotations, annotationPartitionKey)
	if m.ID, err = idText(id, named, "message-id"); err != nil {
		return err
	}
	if m.SessionID, err = idText(group, grouped, "group-id"); err != nil {
		return err
	}
	if m.PartitionKey, err = keyText(key, keyed); err != nil {
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

// idText is the text at r, "" when there is none. An id of another type is written out.
func idText(r amqp.Reader, ok bool, name string) (string, error) {
	if !ok || r.Null() {
		return "", nil
	}
	text := r
	id := string(text.StringBytes())
	if text.Err() != nil {
		id = amqp.IDText(r.Value())
	}
	if r.Err() != nil {
		return "", rest.BadRequest("The message cannot be read: %s: %s.", name, r.Err())
	}
	return bounded(id, name)
}

// keyText is the partition key at r, "" when there is none. It is text even where it is no string:
// the Python SDK sends what it has received back as binary.
func keyText(r amqp.Reader, ok bool) (string, error) {
	const name = "partition key"
	if text := r; ok {
		if key := text.Text(); text.Err() == nil {
			return bounded(key, name)
		}
	}
	return idText(r, ok, name)
}

func bounded(id, name string) (string, error) {
	if n := utf8.RuneCountInString(id); n > maxID {
		return "", rest.BadRequest("The %s has %d characters; at most %d are allowed.", name, n, maxID)
	}
	return id, nil
}

// newMessageID is short, because a batch may be filled to the last byte before it comes here. It
// has to be like no other, not secret: the generator is seeded by the system, which is not asked
// for each message of a batch.
func newMessageID() string {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	binary.BigEndian.PutUint32(b[8:], rand.Uint32())
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// propertyOf is an application property in the types that deadlines are stated in.
func propertyOf(properties amqp.Raw, name string) any {
	v, err := mapValue(properties, name)
	if err != nil {
		return err // no statement has this type, so it is refused and not passed over
	}
	if t, ok := v.(amqp.Timestamp); ok {
		return t.Time().UTC()
	}
	return v
}

func mapValue(raw amqp.Raw, key string) (any, error) {
	r, ok := amqp.MapLookup(raw, key)
	if !ok {
		return nil, nil
	}
	v := r.Value()
	return v, r.Err()
}

// incomplete reports whether anything has to be put on the message before it goes on.
func (m *amqpMessage) incomplete() bool { return m.idAdded || m.Stamp > 0 }

// appendCompleted appends the message with what it lacks: its message-id and its stamp. A field
// that is filled in leaves the other fields of its section as they are encoded, and all other
// sections are copied byte for byte.
func (m *amqpMessage) appendCompleted(dst []byte) []byte {
	var id, ttl amqp.Raw
	var idRoom [32]byte // more than one that was made here takes
	var ttlRoom [8]byte
	if m.idAdded {
		id = amqp.AppendString(idRoom[:0], m.ID)
	}
	if m.Stamp > 0 {
		ttl = amqp.AppendUint(ttlRoom[:0], uint32(m.Stamp/time.Millisecond))
	}
	last := uint64(0)
	for r := amqp.NewReader(m.encoded); !r.Done(); {
		section := r.Rest()
		code := r.Descriptor()
		value := r.Raw()
		section = section[:len(section)-r.Len()]
		descriptor := section[:len(section)-len(value)]
		// What has no section yet gets one before the first that has to stand behind it. One that
		// comes out of turn is the last, see amqp.ParseMessage.
		if ttl != nil && code > amqp.CodeHeader {
			dst, ttl = appendWithField(amqp.AppendDescriptor(dst, amqp.CodeHeader), nil, amqp.HeaderTTL, ttl), nil
		}
		if id != nil && (code > amqp.CodeProperties || code < last) {
			dst, id = appendWithField(amqp.AppendDescriptor(dst, amqp.CodeProperties), nil, amqp.PropertyMessageID, id), nil
		}
		switch {
		case code == amqp.CodeHeader && ttl != nil:
			dst, ttl = appendWithField(append(dst, descriptor...), value, amqp.HeaderTTL, ttl), nil
		case code == amqp.CodeProperties && id != nil:
			dst, id = appendWithField(append(dst, descriptor...), value, amqp.PropertyMessageID, id), nil
		default:
			dst = append(dst, section...)
		}
		last = code
	}
	if ttl != nil {
		dst = appendWithField(amqp.AppendDescriptor(dst, amqp.CodeHeader), nil, amqp.HeaderTTL, ttl)
	}
	if id != nil {
		dst = appendWithField(amqp.AppendDescriptor(dst, amqp.CodeProperties), nil, amqp.PropertyMessageID, id)
	}
	return dst
}

// appendWithField appends a list with one of its fields set to value. Fields that are missing
// before it become null, which means the same. list has been checked; nil is an empty one.
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
