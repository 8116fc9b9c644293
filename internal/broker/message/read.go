// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rights"
)

// ReadBatch reads the messages of a batch. The properties of the envelope itself are a copy of the
// first message and mean nothing. All of it is refused when one message is.
func ReadBatch(payload []byte) ([]queue.Message, *amqp.Error) {
	envelope, err := amqp.ParseMessage(payload)
	if err != nil {
		return nil, Malformed(err)
	}
	n := 0
	for _, err := range amqp.DataSections(envelope.Body) {
		if err != nil {
			return nil, Malformed(err)
		}
		n++
	}
	messages := make([]queue.Message, 0, n) // they are large: to grow would cost more than to count
	for inner := range amqp.DataSections(envelope.Body) {
		// A copy, so that one message that stays does not keep the whole batch.
		m, refusal := Read(bytes.Clone(inner))
		if refusal != nil {
			return nil, refusal
		}
		messages = append(messages, m)
	}
	if len(messages) == 0 {
		return nil, amqp.Errorf(CondArgumentError, "The batch holds no message.")
	}
	return messages, nil
}

// Read checks one encoded message, which the queue will own, and says what a
// queue must know of it. After that delivering it cannot fail.
func Read(encoded []byte) (queue.Message, *amqp.Error) {
	m, err := amqp.ParseMessage(encoded)
	if err != nil {
		return queue.Message{}, Malformed(err)
	}
	if err := rights.Ambiguous(&m); err != nil {
		return queue.Message{}, err
	}
	if _, err := amqp.DecodeHeader(m.Header); err != nil {
		return queue.Message{}, Malformed(err)
	}
	if err := cmp.Or(amqp.CheckProperties(m.Properties), checkNamed(m.ApplicationProperties), checkFooter(m.Footer)); err != nil {
		return queue.Message{}, refusal(err)
	}
	if n := len(m.Properties) + len(m.MessageAnnotations) + len(m.ApplicationProperties); n > MaxHeaderSize {
		return queue.Message{}, amqp.Errorf(amqp.ErrCondNotAllowed, "The properties of the message have %d bytes, %d is the most.", n, MaxHeaderSize)
	}
	life, err := m.Life()
	if err != nil {
		return queue.Message{}, Malformed(err)
	}
	out := queue.Message{Body: encoded, TTL: life}
	if out.MessageID, err = nameField(m.Properties, amqp.PropertyMessageID, "message-id"); err == nil {
		out.SessionID, err = nameField(m.Properties, amqp.PropertyGroupID, "group-id")
		_, out.HasSession = amqp.ListField(m.Properties, amqp.PropertyGroupID)
	}
	if err != nil {
		return queue.Message{}, refusal(err)
	}
	if _, named := amqp.ListField(m.Properties, amqp.PropertyMessageID); !named {
		out.MessageID = NewID()
	}
	rebuild := false
	var unasked queue.Message // what delivery annotations say asks for nothing
	for _, s := range [...]struct {
		raw *amqp.Raw
		out *queue.Message
	}{{&m.MessageAnnotations, &out}, {&m.DeliveryAnnotations, &unasked}} {
		foreign, err := ingestAnnotations(*s.raw, s.out)
		if err != nil {
			return queue.Message{}, refusal(err)
		}
		if foreign != nil {
			*s.raw, rebuild = foreign, true
		}
	}
	if rebuild {
		out.Body = m.Append(make([]byte, 0, len(encoded)))
	}
	return out, nil
}

// Parsing a message looks at its sections from outside only. The following
// check the elements of those that are taken apart again on delivery.

// checkNamed checks application properties. nil is an empty map.
func checkNamed(raw amqp.Raw) error {
	if raw == nil {
		return nil
	}
	r := amqp.NewReader(raw)
	pairs, n := r.Map()
	for range n {
		name := pairs.StringBytes()
		if !utf8.Valid(name) {
			pairs.Fail(fmt.Errorf("%w: name of a property that is not UTF-8", amqp.ErrMalformed))
		}
		before := pairs.Len()
		pairs.Check()
		if n := before - pairs.Len(); n > MaxPropertySize && pairs.Err() == nil {
			return outOfBounds(fmt.Sprintf("The property '%.128s' has %d bytes, %d is the most.", name, n, MaxPropertySize))
		}
	}
	return Whole(&r, &pairs)
}

// checkFooter checks a footer, whose keys are those of annotations. nil is an
// empty one.
func checkFooter(raw amqp.Raw) error {
	if raw == nil {
		return nil
	}
	r := amqp.NewReader(raw)
	pairs, n := r.Map()
	for range n {
		readName(&pairs)
		pairs.Check()
	}
	return Whole(&r, &pairs)
}

// Whole reports what went wrong while the elements of a compound were read, be
// it that bytes are left over.
func Whole(compound, elements *amqp.Reader) error {
	compound.Fail(elements.Err())
	if compound.Err() == nil && elements.Len() > 0 {
		compound.Fail(fmt.Errorf("%w: %d bytes behind the last element", amqp.ErrMalformed, elements.Len()))
	}
	return compound.Err()
}

// readName consumes the key of an annotation: a symbol, a string where a client
// is careless, or a ulong, which is no name and gives nil. Anything else is an
// error, because clients put annotations into hash maps and fail on lists.
func readName(pairs *amqp.Reader) []byte {
	probe := *pairs
	if name := probe.StringBytes(); probe.Err() == nil {
		*pairs = probe
		return name
	}
	pairs.Ulong()
	return nil
}

// NewID names a message that its sender did not, as the service does; the
// JavaScript SDK cannot settle one without a name. It is shown on delivery, and
// the sender's bytes stay as they are.
func NewID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // a GUID, version 4
	return hex.EncodeToString(id[:])
}

// nameField reads an identifier as text, whatever type the client gave it.
func nameField(properties amqp.Raw, field int, name string) (string, error) {
	r, ok := amqp.ListField(properties, field)
	if !ok {
		return "", nil
	}
	var text string
	switch v := r.Value().(type) {
	case string:
		text = v
	case uint64:
		text = strconv.FormatUint(v, 10)
	case amqp.UUID:
		text = v.String()
	case []byte:
		text = string(v)
	default:
		r.Fail(fmt.Errorf("%w: %s is no string, ulong, uuid or binary", amqp.ErrMalformed, name))
	}
	if r.Err() == nil && len(text) > MaxIDLength && utf8.RuneCountInString(text) > MaxIDLength {
		return "", errTooLong(name)
	}
	return text, r.Err()
}

// ingestAnnotations notes what the sender's annotations ask for. It returns the map as it is kept,
// or nil where that is how it came. The kept map is without the annotations that only the broker
// states, and has strings where they are required.
func ingestAnnotations(raw amqp.Raw, out *queue.Message) (amqp.Raw, error) {
	if raw == nil {
		return nil, nil
	}
	r := amqp.NewReader(raw)
	pairs, n := r.Map()
	other := false
	for range n {
		name := readName(&pairs)
		value := amqp.NewReader(pairs.Raw())
		switch {
		case string(name) == AnnScheduledEnqueueTime:
			if value.Null() {
				other = true // not handed on: the Go SDK panics at it
				break
			}
			out.ScheduledEnqueueTime = value.Timestamp().Time()
		case isPartitionKey(name):
			if value.Null() {
				break
			}
			other = other || !value.IsString()
			key := value.Text()
			if utf8.RuneCountInString(key) > MaxIDLength {
				return nil, errTooLong(string(name))
			}
			if string(name) == AnnPartitionKey {
				out.PartitionKey = key
			}
		case ownAnnotation(name):
			other = true
		default:
			value.Check()
		}
		pairs.Fail(value.Err())
	}
	if err := Whole(&r, &pairs); !other || err != nil {
		return nil, err
	}
	return keptAnnotations(raw), nil
}

// isPartitionKey reports whether an annotation is one of the two that are strings. The Python SDK
// sends a received one back as binary (to_outgoing_amqp_message in
// azure/servicebus/_transport/_pyamqp_transport.py), and its tests have the service accept that.
// The Go SDK panics at anything but a string in a received one.
func isPartitionKey(name []byte) bool {
	return string(name) == AnnPartitionKey || string(name) == AnnViaPartitionKey
}

// PartitionKey reads the partition key of a message that ingest has seen.
func PartitionKey(encoded []byte) string {
	m, err := amqp.ParseMessage(encoded)
	if err != nil || m.MessageAnnotations == nil {
		return ""
	}
	value, ok := amqp.MapLookup(m.MessageAnnotations, AnnPartitionKey)
	if !ok || value.Null() {
		return ""
	}
	return value.String()
}

// keptAnnotations copies a map that ingestAnnotations has seen as it is kept.
func keptAnnotations(raw amqp.Raw) amqp.Raw {
	r := amqp.NewReader(raw)
	pairs, n := r.Map()
	out, start := amqp.BeginMap(make([]byte, 0, len(raw)))
	kept := 0
	for range n {
		pair := pairs.Rest()
		name := readName(&pairs)
		key := pair[:len(pair)-pairs.Len()]
		value := amqp.NewReader(pairs.Raw())
		switch {
		case ownAnnotation(name), string(name) == AnnScheduledEnqueueTime && value.Null():
			continue
		case isPartitionKey(name) && !value.Null():
			out = amqp.AppendString(append(out, key...), value.Text())
		default:
			out = append(out, pair[:len(pair)-pairs.Len()]...)
		}
		kept++
	}
	return amqp.EndMap(out, start, kept)
}

// outOfBounds is what a sender hears of a message that is larger in a part than the service allows.
type outOfBounds string

func (e outOfBounds) Error() string { return string(e) }

// errTooLong is for an identifier.
func errTooLong(name string) error {
	return outOfBounds(fmt.Sprintf("The %s is longer than %d characters.", name, MaxIDLength))
}

// TooLong is the error for an identifier above the limit of the service.
func TooLong(name string) *amqp.Error { return refusal(errTooLong(name)) }

// refusal is the error that a sender gets for err, found in its message. Not-allowed is
// final in every SDK: sending the same bytes again would not help.
func refusal(err error) *amqp.Error {
	if bound, is := errors.AsType[outOfBounds](err); is {
		return amqp.Errorf(amqp.ErrCondNotAllowed, "%v", bound)
	}
	return Malformed(err)
}

// Malformed is the refusal of a message that cannot be read.
func Malformed(err error) *amqp.Error {
	return amqp.Errorf(amqp.ErrCondNotAllowed, "The message cannot be read: %v.", err)
}
