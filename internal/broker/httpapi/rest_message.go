// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rest"
)

// A shown message is one as the REST runtime API shows it.
type shown struct {
	broker     rest.BrokerProperties
	stamps     rest.Stamps
	properties []property // in the order of the message; of those with one name the last counts
	body       []byte
}

type property struct {
	name  string
	value any // as rest.AddProperty takes it
}

// show reads a message for somebody who receives it over HTTP. It fails only for
// what the broker has not let in.
func show(v *queue.View) (*shown, error) {
	m, err := amqp.ParseMessage(v.Body)
	if err != nil {
		return nil, err
	}
	p, err := amqp.DecodeProperties(m.Properties)
	if err != nil {
		return nil, err
	}
	s := &shown{
		broker: rest.BrokerProperties{
			ContentType: string(p.ContentType), CorrelationID: textOf(p.CorrelationID), Label: deref(p.Subject), MessageID: v.MessageID,
			PartitionKey: cmp.Or(annotation(m.MessageAnnotations, message.AnnPartitionKey), v.SessionID), ReplyTo: deref(p.ReplyTo), ReplyToSessionID: deref(p.ReplyToGroupID),
			ScheduledEnqueueTime: v.ScheduledEnqueueTime, SessionID: v.SessionID, TimeToLive: v.TTL, To: deref(p.To),
			ViaPartitionKey: annotation(m.MessageAnnotations, message.AnnViaPartitionKey),
		},
		stamps: rest.Stamps{
			DeadLetterSource: v.DeadLetterSource, DeliveryCount: v.DeliveryCount + 1, EnqueuedSequenceNumber: v.EnqueuedSequenceNumber,
			EnqueuedTime: v.EnqueuedTime, SequenceNumber: v.SequenceNumber, State: stateOf(v.State),
		},
	}
	if s.properties, err = customOf(m.ApplicationProperties, v); err != nil {
		return nil, err
	}
	s.body, err = bodyOf(&m)
	return s, err
}

// write answers with the message. An error means that the client has not got it.
func (s *shown) write(w http.ResponseWriter, status int) error {
	h := w.Header()
	for _, p := range s.properties {
		rest.AddProperty(h, p.name, p.value) // what no header can carry is left out
	}
	h.Set("Content-Type", cmp.Or(s.broker.ContentType, rest.ErrorContentType))
	h.Set("Content-Length", strconv.Itoa(len(s.body)))
	h[rest.HeaderBrokerProperties] = []string{string(rest.AppendBroker(nil, &s.broker, &s.stamps))}
	w.WriteHeader(status)
	if _, err := w.Write(s.body); err != nil {
		return err
	}
	err := http.NewResponseController(w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// customOf lists the application properties: those of the sender, and behind them
// what settlements and the broker have set.
func customOf(raw amqp.Raw, v *queue.View) ([]property, error) {
	var all []property
	if raw != nil {
		r := amqp.NewReader(raw)
		pairs, n := r.Map()
		for range n {
			name := pairs.String()
			all = append(all, property{name, propertyOf(pairs.Value())})
		}
		if err := errors.Join(r.Err(), pairs.Err()); err != nil {
			return nil, err
		}
	}
	for _, p := range v.Properties {
		all = append(all, property{p.Key, propertyOf(p.Value)})
	}
	if v.DeadLetterReason != "" {
		all = append(all, property{message.PropDeadLetterReason, v.DeadLetterReason})
	}
	if v.DeadLetterErrorDescription != "" {
		all = append(all, property{message.PropDeadLetterDescription, v.DeadLetterErrorDescription})
	}
	return all, nil
}

// propertyOf returns a value of AMQP as one of those that a header can say: a
// number, true, false, a date or text. nil stays nil.
func propertyOf(v any) any {
	switch v := v.(type) {
	case nil, bool, string, int32, int64, uint64, float64:
		return v
	case int8:
		return int32(v)
	case int16:
		return int32(v)
	case uint8:
		return int32(v)
	case uint16:
		return int32(v)
	case uint32:
		return int64(v)
	case float32:
		// By way of its shortest text: 0.1 is to be shown so, and not with the digits of a double.
		f, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
		if err != nil {
			return float64(v)
		}
		return f
	case amqp.Timestamp:
		if t := v.Time(); t.Year() >= 1 && t.Year() <= 9999 {
			return t
		}
	}
	return textOf(v)
}

// bodyOf returns the body as bytes: data as they are, a value as text, see textOf,
// and sequences as one JSON array. The service hands the latter two out in a
// serialisation of .NET, which only .NET reads.
func bodyOf(m *amqp.Message) ([]byte, error) {
	r := amqp.NewReader(m.Body)
	if r.Done() {
		return nil, nil
	}
	switch r.PeekDescriptor() {
	case amqp.CodeAMQPValue:
		r.Descriptor()
		v := r.Value()
		if b, ok := v.([]byte); ok {
			return b, r.Err()
		}
		return []byte(textOf(v)), r.Err()
	case amqp.CodeAMQPSequence:
		var all amqp.List
		for !r.Done() {
			r.Descriptor()
			part, _ := r.Value().(amqp.List)
			all = append(all, part...)
		}
		return []byte(textOf(all)), r.Err()
	}
	var body []byte
	sections := 0
	for b, err := range amqp.DataSections(m.Body) {
		if err != nil {
			return nil, err
		}
		if sections++; sections == 1 {
			body = b[:len(b):len(b)] // a second one must not be written behind the first, into the message
		} else {
			body = append(body, b...)
		}
	}
	return body, nil
}

func annotation(annotations amqp.Raw, name string) string {
	r, ok := amqp.MapLookup(annotations, name)
	if !ok || r.Null() {
		return ""
	}
	s := r.String()
	if r.Err() != nil {
		return ""
	}
	return s
}

func stateOf(s queue.State) string {
	switch s {
	case queue.Deferred:
		return "Deferred"
	case queue.Scheduled:
		return "Scheduled"
	}
	return "Active"
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// textOf writes a value of AMQP as text for a reader that does not speak AMQP. A string stays as it
// is, null becomes empty, bytes become base64, an instant is as in RFC 3339. A decimal becomes the
// hexadecimal digits of its encoding, and a value with elements becomes JSON.
func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case amqp.Symbol:
		return string(v)
	case amqp.Char:
		return string(rune(v))
	case amqp.UUID:
		return v.String()
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case amqp.Timestamp:
		return v.Time().Format(time.RFC3339Nano)
	case amqp.Decimal32:
		return hex.EncodeToString(v[:])
	case amqp.Decimal64:
		return hex.EncodeToString(v[:])
	case amqp.Decimal128:
		return hex.EncodeToString(v[:])
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	return string(appendJSON(nil, v))
}

// appendJSON writes a value of AMQP as JSON. Its depth is bounded where it was
// decoded. A described value is written without its descriptor.
func appendJSON(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64:
		return fmt.Append(dst, v)
	case float32:
		return appendJSONFloat(dst, float64(v), 32)
	case float64:
		return appendJSONFloat(dst, v, 64)
	case amqp.List:
		return appendJSONArray(dst, v)
	case amqp.Array:
		return appendJSONArray(dst, v)
	case amqp.Described:
		return appendJSON(dst, v.Value)
	case amqp.Map:
		dst = append(dst, '{')
		for i, p := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendJSONString(dst, textOf(p.Key)), ':')
			dst = appendJSON(dst, p.Value)
		}
		return append(dst, '}')
	}
	return appendJSONString(dst, textOf(v))
}

func appendJSONArray(dst []byte, elements []any) []byte {
	dst = append(dst, '[')
	for i, e := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSON(dst, e)
	}
	return append(dst, ']')
}

// appendJSONFloat writes what JSON has no number for as text.
func appendJSONFloat(dst []byte, f float64, bits int) []byte {
	text := strconv.FormatFloat(f, 'g', -1, bits)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return appendJSONString(dst, text)
	}
	return append(dst, text...)
}

func appendJSONString(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // cannot be: every string has a form
		return append(dst, '"', '"')
	}
	return append(dst, text...)
}
