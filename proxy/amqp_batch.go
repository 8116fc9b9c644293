// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"overdue/internal/amqp"
	"overdue/internal/servicebus/rest"
)

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
