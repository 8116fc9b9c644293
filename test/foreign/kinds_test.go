// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	goamqp "github.com/Azure/go-amqp"
)

// breaksRabbit reports what makes the plugin of RabbitMQ 3 end a session without an error.
func breaksRabbit(m *goamqp.Message) bool {
	switch m.Value.(type) {
	case []any, []int32:
		return true
	}
	return m.DeliveryAnnotations != nil
}

// kinds are messages that have between them every section, every kind of body and every type
// that go-amqp writes.
func kinds() []*goamqp.Message {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	id := goamqp.UUID{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}
	to, subject, reply, group, contentType, encoding := "to", "subject", "reply-to", "group", "text/plain; charset=utf-8", "gzip"
	sequence := uint32(7)
	scalars := map[string]any{
		"true": true, "false": false, "null": nil,
		"ubyte": uint8(255), "ushort": uint16(65535), "uint": uint32(math.MaxUint32), "uint 0": uint32(0), "ulong": uint64(math.MaxUint64), "ulong 0": uint64(0),
		"byte": int8(-128), "short": int16(-32768), "int": int32(math.MinInt32), "small int": int32(-1), "long": int64(math.MinInt64), "small long": int64(-1),
		"float": float32(1.5), "double": math.Pi,
		"timestamp": at, "uuid": id, "string": "grüße", "long string": strings.Repeat("x", 300), "symbol": goamqp.Symbol("sym"), "binary": []byte{0, 1, 2, 255},
	}
	data := func(parts ...[]byte) *goamqp.Message { return &goamqp.Message{Data: parts} }
	value := func(v any) *goamqp.Message { return &goamqp.Message{Value: v} }
	with := func(change func(*goamqp.Message)) *goamqp.Message {
		m := data([]byte("body"))
		change(m)
		return m
	}
	messages := []*goamqp.Message{
		data([]byte("body")),
		data([]byte{}),
		data([]byte("in"), []byte("three"), []byte("parts")),
		value("text"), value(int64(42)), value([]byte{1, 2, 3}), value(true), value(at), value(id),
		value([]any{"a", int32(1), nil}),
		value(map[string]any{"key": "value"}),
		value([]int32{1, -2, 3}), value([]string{"a", "b"}),
		{Sequence: [][]any{{"a", int32(1)}, {true}}},
		with(func(m *goamqp.Message) {
			m.Header = &goamqp.MessageHeader{Durable: true, Priority: 9, TTL: time.Hour, FirstAcquirer: true, DeliveryCount: 3}
		}),
		with(func(m *goamqp.Message) {
			m.Properties = &goamqp.MessageProperties{
				MessageID: "id", UserID: []byte("guest"), To: &to, Subject: &subject, ReplyTo: &reply, CorrelationID: "correlation",
				ContentType: &contentType, ContentEncoding: &encoding, AbsoluteExpiryTime: &at, CreationTime: &at,
				GroupID: &group, GroupSequence: &sequence, ReplyToGroupID: &group,
			}
		}),
		with(func(m *goamqp.Message) {
			m.Properties = &goamqp.MessageProperties{MessageID: uint64(1), CorrelationID: id}
		}),
		with(func(m *goamqp.Message) {
			m.Properties = &goamqp.MessageProperties{MessageID: id, CorrelationID: []byte{1, 2}}
		}),
		with(func(m *goamqp.Message) { m.Annotations = goamqp.Annotations{"x-opt-text": "v"} }),
		with(func(m *goamqp.Message) { m.Annotations = goamqp.Annotations{"x-opt-at": at} }),
		with(func(m *goamqp.Message) { m.DeliveryAnnotations = goamqp.Annotations{"x-opt-hop": int32(1)} }),
		with(func(m *goamqp.Message) { m.Footer = goamqp.Annotations{"x-opt-sum": []byte{9, 9}} }),
	}
	for _, name := range slices.Sorted(maps.Keys(scalars)) { // one each: the order of a map is random
		messages = append(messages, with(func(m *goamqp.Message) { m.ApplicationProperties = map[string]any{name: scalars[name]} }))
	}
	return messages
}
