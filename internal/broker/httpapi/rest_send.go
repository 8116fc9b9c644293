// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/message"
	"overdue/internal/servicebus/rest"
)

// send stores the message or the batch of a request.
func (h *runtime) send(w http.ResponseWriter, r *http.Request, ns *broker.Namespace, t restTarget) error {
	entity, refusal := ns.Target(t.need.Path)
	if refusal != nil {
		return refusal
	}
	limit := int64(entity.MaxMessageSize())
	body, done, err := h.body(w, r, limit)
	if err != nil {
		return err
	}
	defer done()
	ms, _, err := rest.ParseSend(r, body, nil)
	if err != nil {
		return err
	}
	encoded := make([][]byte, len(ms))
	total := 0
	for i, m := range ms {
		if m.Broker.SessionID == "" && entity.RequiresSession() {
			return badRequest("The SessionId was not set on a message, and it cannot be sent to the entity '%.260s', which requires sessions.", entity.Path())
		}
		if encoded[i], err = Encode(m); err != nil {
			return err
		}
		total += len(encoded[i])
	}
	if int64(total) > limit {
		return &restRefusal{status: http.StatusForbidden, detail: "The message or the batch is too large for '" + entity.Path() + "'."}
	}
	if refusal := entity.Send(encoded...); refusal != nil {
		return refusal
	}
	if refusal := ns.Disk().Wait(); refusal != nil {
		return refusal
	}
	w.Header().Set("Content-Type", rest.ErrorContentType)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// bodyWait is how long a body waits for memory before its client gets a 503.
const bodyWait = 10 * time.Second

// body reads the body of r to its end, as long as it is no longer than limit; done gives its room
// back.
func (h *runtime) body(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, done func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), bodyWait)
	defer cancel()
	interrupt := func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now()) } // as in timedBody
	body, done, err = h.bodies.Read(ctx, http.MaxBytesReader(w, r.Body, limit), r.ContentLength, limit, interrupt)
	switch {
	case errors.Is(err, rest.ErrNoRoom):
		err = errBusy
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = badRequest("The body of the request ended early.")
	}
	return body, done, err
}

// readBody reads the body of r to its end, and so lets net/http notice from then
// on when the client goes away.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, badRequest("The body of the request ended early.")
	}
	return body, err
}

// Encode returns m as the AMQP message that a client of AMQP would have sent: the
// body as one data section, properties with the types that they were written in.
func Encode(m *rest.Message) ([]byte, error) {
	b := &m.Broker
	out := make([]byte, 0, len(m.Body)+512)
	header := amqp.Header{Priority: amqp.DefaultPriority}
	properties := amqp.Properties{
		MessageID: cmp.Or(b.MessageID, strings.ReplaceAll(rest.NewID(), "-", "")), // as the service makes one up
		To:        amqp.Optional(b.To), Subject: amqp.Optional(b.Label), ReplyTo: amqp.Optional(b.ReplyTo),
		ContentType: amqp.Symbol(b.ContentType), GroupID: amqp.Optional(b.SessionID), ReplyToGroupID: amqp.Optional(b.ReplyToSessionID),
	}
	if b.CorrelationID != "" {
		properties.CorrelationID = b.CorrelationID
	}
	amqp.StateLife(&header, &properties, b.TimeToLive, time.Now())
	if header.HasTTL {
		out = header.Append(out)
	}
	out = appendAnnotations(out, b)
	out = properties.Append(out)
	if len(m.Properties) > 0 {
		custom := make(amqp.Map, 0, len(m.Properties))
		for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
			value := m.Properties[name]
			if t, isTime := value.(time.Time); isTime {
				value = amqp.TimestampOf(t)
			}
			custom = append(custom, amqp.Pair{Key: name, Value: value})
		}
		var err error
		if out, err = amqp.AppendValue(amqp.AppendDescriptor(out, amqp.CodeApplicationProperties), custom); err != nil {
			return nil, err
		}
	}
	return amqp.AppendData(out, m.Body), nil
}

func appendAnnotations(out []byte, b *rest.BrokerProperties) []byte {
	if b.PartitionKey == "" && b.ViaPartitionKey == "" && b.ScheduledEnqueueTime.IsZero() {
		return out
	}
	out, start := amqp.BeginMap(amqp.AppendDescriptor(out, amqp.CodeMessageAnnotations))
	pairs := 0
	for _, key := range []struct {
		name  amqp.Symbol
		value string
	}{{message.AnnPartitionKey, b.PartitionKey}, {message.AnnViaPartitionKey, b.ViaPartitionKey}} {
		if key.value != "" {
			out = amqp.AppendString(amqp.AppendSymbol(out, key.name), key.value)
			pairs++
		}
	}
	if !b.ScheduledEnqueueTime.IsZero() {
		out = amqp.AppendTimestamp(amqp.AppendSymbol(out, message.AnnScheduledEnqueueTime), amqp.TimestampOf(b.ScheduledEnqueueTime))
		pairs++
	}
	return amqp.EndMap(out, start, pairs)
}
