// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"go.uber.org/zap"

	"overdue/internal/amqp"
	"overdue/internal/operations"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
	"overdue/scheduler"
)

const (
	endpointREST = "rest"
	// endpointCanary is where the canaries of this process come in.
	endpointCanary = "canary"
	about          = "Overdue: the REST endpoint of Service Bus. Send with POST /{queue or topic}/messages; other requests are passed on.\n"
)

// ServeHTTP serves the REST endpoint. It handles POST /{entity}/messages as the Service Bus REST
// API defines it, and relays every other request of that API, see relay. A send may have the
// parameters timeout and api-version; they have no effect.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A context does not end a read; only the deadline or the end of the connection does. A
	// writer without deadlines comes from a test or a middleware, whose server bounds reads
	// itself.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.cfg.SendTimeout))
	rest.Identify(w.Header())

	q, err := called(r)
	if err == nil {
		err = p.authorize(r, &q)
	}
	entity := q.Address.Entity()
	switch {
	case errors.Is(err, errDenied):
	case err != nil:
		if r.Method == http.MethodPost {
			p.metrics.sent(endpointREST, entity, 1, 0, err)
		}
	case q.Call == rights.SendMessages:
		err = p.serveSend(w, r, &q)
	case r.URL.Path == "/" && r.URL.RawQuery == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, about) // the client may be gone
		return
	default:
		if err = p.relay(w, r, &q); err != nil {
			p.refuse(w, r, "relayed request failed", q.Need.Path, err)
		}
		return
	}
	if err != nil {
		p.refuse(w, r, "request refused", entity, err)
		return
	}
	w.Header().Set("Content-Type", rest.ErrorContentType)
	w.WriteHeader(http.StatusCreated)
}

// serveSend reads the message or the batch from the request and sends it.
func (p *Proxy) serveSend(w http.ResponseWriter, r *http.Request, q *rights.Request) error {
	entity := q.Address.Entity()
	if p.isMonitorQueue(entity) {
		return rest.BadRequest("%s is the monitor queue, which takes no messages of apps.", rest.Quoted(entity))
	}
	body, done, err := p.body(w, r)
	if err != nil {
		p.metrics.sent(endpointREST, entity, 1, 0, err)
		return err
	}
	defer done()
	ms, batch, err := rest.ParseSend(r, body, isOurs)
	if err == nil && batch {
		err = checkHead(r.Header)
	}
	if err != nil {
		p.metrics.sent(endpointREST, entity, len(ms), 0, err)
		return err
	}
	known := make([]*message, len(ms))
	for i, m := range ms {
		known[i] = knownOf(m)
	}
	s := p.newRequest(entity, p.cfg.Settings(entity), known)
	if p.cfg.ClientTokens {
		return p.pass(r, q, s, body, batch)
	}
	return s.run(r.Context(), func(ctx context.Context) error {
		out := make([]*goamqp.Message, len(ms))
		for i, m := range ms {
			out[i] = amqpOf(m, known[i])
		}
		return p.transmit(ctx, entity, out, batch)
	})
}

// checkHead refuses a batch with a deadline in a header of its request. The properties of a batch
// are in its body, so the header would have no effect, and the messages would go unwatched while
// their sender believes otherwise.
func checkHead(h http.Header) error {
	at, within, err := scheduler.StatedDeadline(func(name string) any {
		if v := h.Get(name); v != "" {
			return v
		}
		return nil
	})
	if err != nil || within > 0 || !at.IsZero() {
		return rest.BadRequest("A deadline in a header does not apply to a batch; state it in the UserProperties of each message.")
	}
	return nil
}

// transmit sends the messages to the broker, a batch as one transfer.
func (p *Proxy) transmit(ctx context.Context, entity string, ms []*goamqp.Message, batch bool) error {
	p.cfg.Operations.Add(operations.Send, len(ms))
	if !batch {
		encoded, err := ms[0].MarshalBinary()
		if err != nil {
			return err
		}
		return classify(p.cfg.Links.Send(ctx, entity, encoded))
	}
	encoded, err := batchOf(ms)
	if err != nil {
		return err
	}
	return classify(p.cfg.Links.SendBatch(ctx, entity, encoded))
}

// batchOf encodes a batch. Its envelope is the first message, as in those of the SDKs: the broker
// goes by it where it goes by a session or a partition key.
func batchOf(ms []*goamqp.Message) ([]byte, error) {
	envelope := *ms[0]
	envelope.Data = make([][]byte, len(ms))
	for i, m := range ms {
		var err error
		if envelope.Data[i], err = m.MarshalBinary(); err != nil {
			return nil, err
		}
	}
	return envelope.MarshalBinary()
}

// body reads the body of a request within the budget for bodies; done releases its share.
func (p *Proxy) body(w http.ResponseWriter, r *http.Request) (body []byte, done func(), err error) {
	size, most := r.ContentLength, p.cfg.MaxBodySize
	if size > most {
		return nil, nil, fmt.Errorf("%w: body of %d bytes, at most %d", errTooLarge, size, most)
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.cfg.SendTimeout)
	defer cancel()
	control := http.NewResponseController(w)
	interrupt := func() { _ = control.SetReadDeadline(time.Now()) } // see ServeHTTP
	body, done, err = p.bodies.Read(ctx, http.MaxBytesReader(w, r.Body, most), size, most, interrupt)
	if err != nil {
		return nil, nil, bodyError(err)
	}
	// A deadline left in place would also cut the wait for the broker. After a failed read it
	// stays: without it net/http would wait for the rest of the body.
	_ = control.SetReadDeadline(time.Time{})
	return body, done, nil
}

// bodyError maps a failed read of the body to an error of the send.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, rest.ErrNoRoom):
		return fmt.Errorf("%w: %w", errBusy, err)
	case errors.Is(err, rest.ErrSlowBody):
		return fmt.Errorf("%w: %w", errSlowBody, err)
	case errors.As(err, &tooLarge):
		return fmt.Errorf("%w: %w", errTooLarge, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: %w", errSlowBody, err)
	}
	return rest.BadRequest("The body of the request ended early.")
}

// refuse writes err in the form of Service Bus, and logs the details that the client must not
// see. It is the last stop of a send's error.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, event, entity string, err error) {
	var theirs *namespaceAnswer
	if errors.As(err, &theirs) {
		p.cfg.Log.Debug(event, zap.String("work_queue", entity), zap.String("endpoint", endpointREST), zap.Int("status", theirs.status))
		theirs.write(w, p.naming(r))
		return
	}
	status, retryAfter, sentence := answer(err, entity)
	log := p.cfg.Log.Debug
	if status >= http.StatusInternalServerError {
		log = p.cfg.Log.Warn
	}
	log(event, zap.String("work_queue", entity), zap.String("endpoint", endpointREST),
		zap.Int("status", status), zap.Error(err))
	rest.Refuse(w, r, status, retryAfter, sentence)
}

// Annotations that carry these properties on the wire.
const (
	annotationPartitionKey         = "x-opt-partition-key"
	annotationViaPartitionKey      = "x-opt-via-partition-key"
	annotationScheduledEnqueueTime = "x-opt-scheduled-enqueue-time"
)

// isOurs reports whether a property states a deadline. Such properties match in any case, and get
// the one spelling on the message that the monitor reads.
func isOurs(property string) bool {
	return strings.HasPrefix(property, "overdue-") || property == "ce-expirytime"
}

// knownOf returns the parts of the message that the send path needs.
func knownOf(m *rest.Message) *message {
	return &message{
		ID: m.Broker.MessageID, SessionID: m.Broker.SessionID,
		Size: int64(len(m.Body)),
		TTL:  m.Broker.TimeToLive, ScheduledEnqueueTime: m.Broker.ScheduledEnqueueTime,
		Property: func(name string) any { return m.Properties[name] },
	}
}

// amqpOf returns the message for the wire, with the stamped TTL, if any. A message without an id
// gets one even where no companion names it, as every message does that the REST API takes.
func amqpOf(m *rest.Message, known *message) *goamqp.Message {
	b := &m.Broker
	out := &goamqp.Message{
		ApplicationProperties: m.Properties,
		Data:                  [][]byte{m.Body},
		Properties: &goamqp.MessageProperties{
			MessageID:      cmp.Or(b.MessageID, known.GivenID, newMessageID()),
			ContentType:    amqp.Optional(b.ContentType),
			GroupID:        amqp.Optional(b.SessionID),
			ReplyTo:        amqp.Optional(b.ReplyTo),
			ReplyToGroupID: amqp.Optional(b.ReplyToSessionID),
			Subject:        amqp.Optional(b.Label),
			To:             amqp.Optional(b.To),
		},
	}
	if b.CorrelationID != "" {
		out.Properties.CorrelationID = b.CorrelationID
	}
	ttl := b.TimeToLive
	if known.Stamp > 0 {
		ttl = known.Stamp
	}
	var header amqp.Header
	var stated amqp.Properties
	amqp.StateLife(&header, &stated, ttl, time.Now())
	if header.HasTTL {
		out.Header = &goamqp.MessageHeader{TTL: time.Duration(header.TTL) * time.Millisecond, Priority: amqp.DefaultPriority}
	}
	if stated.HasCreationTime {
		created, expires := stated.CreationTime.Time(), stated.AbsoluteExpiryTime.Time()
		out.Properties.CreationTime, out.Properties.AbsoluteExpiryTime = &created, &expires
	}
	out.Annotations = goamqp.Annotations{}
	if b.PartitionKey != "" {
		out.Annotations[annotationPartitionKey] = b.PartitionKey
	}
	if b.ViaPartitionKey != "" {
		out.Annotations[annotationViaPartitionKey] = b.ViaPartitionKey
	}
	if !b.ScheduledEnqueueTime.IsZero() {
		out.Annotations[annotationScheduledEnqueueTime] = b.ScheduledEnqueueTime
	}
	return out
}

// A request is the send of one HTTP request. Its handler's goroutine transmits when the send
// steps to it, and waits for the result.
type request struct {
	send
	ctx    context.Context // of the send, once it has begun
	goesOn chan struct{}   // a token: transmit
	result chan error      // takes the one result
}

func (p *Proxy) newRequest(entity string, settings Settings, ms []*message) *request {
	r := &request{goesOn: make(chan struct{}, 1), result: make(chan error, 1)}
	via := endpointREST
	if p.metrics.isCanary(entity) {
		via = endpointCanary
	}
	r.p, r.to, r.via, r.entity, r.settings, r.n, r.ms, r.began = p, r, via, entity, settings, len(ms), ms, time.Now()
	r.trace = r.traced()
	return r
}

// run runs the send. carry sends the messages, with their stamped TTLs, and returns when the
// broker has accepted them.
func (r *request) run(ctx context.Context, carry func(context.Context) error) error {
	if err := r.wait(ctx); err != nil {
		r.step(refused, err)
		return <-r.result
	}
	// From here on the send runs to its end even if the app hangs up: leaving between the work
	// message and its companion must not separate them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.p.cfg.SendTimeout)
	defer cancel()
	r.ctx = ctx
	if err := r.prepare(); err != nil {
		defer r.p.sends.leave()
		r.step(refused, err)
		return <-r.result
	}
	r.begin()
	for {
		select {
		case <-r.goesOn:
			r.step(brokerSettled, carry(ctx))
		case <-ctx.Done():
			r.step(timeout, nil)
			return <-r.result
		case err := <-r.result:
			return err
		}
	}
}

func (r *request) transmit() { r.goesOn <- struct{}{} }

func (r *request) schedulingContext() context.Context { return r.ctx }

func (r *request) finished(err error) {
	r.count(err)
	if err != nil { // the answer is logged by refuse, which does not know the message
		r.p.cfg.Log.Debug("send failed", r.failure(err)...)
	}
	r.result <- err
}
