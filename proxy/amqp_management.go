// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"go.uber.org/zap"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

// requestTime bounds the wait for the response to a request. SDKs do not wait longer.
const requestTime = time.Minute

// A managementLink watches the requests to the management node of a monitored entity. Requests
// that schedule messages are sends. All other known requests pass untouched, also those that
// cancel: the companion of a cancelled message finds nothing. A request that is unknown,
// unreadable or ambiguous could be a send that goes unwatched, so it is refused.
type managementLink struct{ sendLink }

// Deliver begins the send of a request that schedules messages. The app waits for the response,
// which comes over another link, so the companions go first. The relay takes the response for the
// outcome. It also answers refused requests in place of the broker.
func (l *managementLink) Deliver(d *relay.Delivery) (relay.DeliveryHandler, *amqp.Error) {
	settings := l.p.cfg.Settings(l.entity)
	if settings.passes() {
		return nil, nil
	}
	operation, _, refused := rights.Operation(l.at, d.Payload)
	if refused != nil {
		return nil, l.refuseRequest(refused)
	}
	if operation != rights.ScheduleMessage {
		return nil, nil
	}
	ms, err := readScheduled(d.Payload)
	if err != nil {
		return nil, l.refuseRequest(refusal(err, l.entity))
	}
	s := l.newDelivery(settings, ms)
	s.companionFirst = true
	setDelay(ms, d, requestTime)
	// A request that is sent settled (.NET) can be refused all the same: the refusal is a
	// response.
	s.complete = func() error {
		return s.fit(d, ms, func() []byte { return scheduleCompleted(d.Payload, ms) })
	}
	return s.start()
}

// refuseRequest logs the refusal of a request. Its app gets the refusal as a response, even if
// the request was sent settled.
func (l *managementLink) refuseRequest(e *amqp.Error) *amqp.Error {
	l.p.cfg.Log.Debug("request refused", zap.String("work_queue", l.entity), zap.String("endpoint", endpointAMQP), zap.Error(e))
	return e
}

// readScheduled reads the messages of a request that schedules them.
func readScheduled(payload []byte) ([]*message, error) {
	request, err := amqp.ParseMessage(payload)
	if err != nil {
		return nil, rest.BadRequest("The request cannot be read: %s.", err)
	}
	body, _ := request.Value()
	list, ok := amqp.MapLookup(body.Raw(), "messages")
	entries, n := list.List()
	if !ok || list.Err() != nil {
		return nil, rest.BadRequest("The request has no list of messages.")
	}
	if n > maxBatch {
		return nil, rest.BadRequest("The request has more than %d messages.", maxBatch)
	}
	ms := make([]*message, 0, n)
	for i := range n {
		entry := entries.Raw()
		encoded, ok := amqp.MapLookup(entry, "message")
		b := encoded.Binary()
		if !ok || encoded.Err() != nil {
			return nil, rest.BadRequest("Entry %d of the request has no message.", i+1)
		}
		m, err := readMessage(b)
		if err != nil {
			return nil, rest.BadRequest("Message %d of the request: %s", i+1, sentenceOf(err))
		}
		// The entry repeats some fields of the message; they count for the message as well.
		if r, ok := amqp.MapLookup(entry, "message-id"); m.ID == "" && ok {
			if id, err := idText(r, ok, "message-id"); err == nil {
				m.GivenID = id
			}
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// scheduleCompleted returns the request with the missing ids and TTLs added. Everything else
// keeps its encoding.
func scheduleCompleted(payload []byte, ms []*message) []byte {
	var out []byte
	for s := range sectionsOf(payload) {
		if s.code != amqp.CodeAMQPValue {
			out = append(out, s.whole...)
			continue
		}
		out = append(out, s.descriptor...)
		out = appendMapWith(out, s.value, "messages", func(dst []byte, list amqp.Raw) []byte {
			r := amqp.NewReader(list)
			entries, n := r.List()
			dst, start := amqp.BeginList(dst)
			for i := range n {
				entry, m := entries.Raw(), ms[i]
				if m.incomplete() {
					dst = appendMapWith(dst, entry, "message", func(dst []byte, _ amqp.Raw) []byte {
						return amqp.AppendBinary(dst, m.appendCompleted(nil))
					})
				} else {
					dst = append(dst, entry...)
				}
			}
			return amqp.EndList(dst, start, n)
		})
	}
	return out
}

// appendMapWith appends a map in which replace rewrites the first value of key. All other pairs
// keep their encoding. The map must have been read before.
func appendMapWith(dst []byte, m amqp.Raw, key string, replace func(dst []byte, old amqp.Raw) []byte) []byte {
	r := amqp.NewReader(m)
	pairs, n := r.Map()
	dst, start := amqp.BeginMap(dst)
	for done := false; !pairs.Done(); {
		k := pairs.Raw()
		v := pairs.Raw()
		dst = append(dst, k...)
		text := amqp.NewReader(k)
		if !done && string(text.StringBytes()) == key {
			done = true
			dst = replace(dst, v)
		} else {
			dst = append(dst, v...)
		}
	}
	return amqp.EndMap(dst, start, n)
}
