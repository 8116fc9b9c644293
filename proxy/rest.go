// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.uber.org/zap"
)

const (
	doorREST = "rest"
	// batchContentType marks a body that is a JSON array of messages.
	batchContentType = "application/vnd.microsoft.servicebus.json"
	// maxEntityName is the longest entity path of Service Bus, in characters.
	maxEntityName = 260

	about = "Overdue: the REST door of Service Bus. Send with POST /{queue or topic}/messages.\n"
)

// ServeHTTP is the REST door: it takes POST /{entity}/messages as the Service Bus REST
// API defines it. The parameters timeout and api-version are accepted and make no difference.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A read does not end with a context, only with the connection or its deadline. A
	// writer without deadlines is a test's or a middleware's, whose server bounds reads itself.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.cfg.SendTimeout))

	entity, isSend, err := sendTarget(r)
	switch {
	case err != nil:
		p.metrics.sent(doorREST, entity, 1, 0, err)
	case isSend:
		err = p.serveSend(w, r, entity)
	case r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, about) // the client may be gone
		return
	default:
		err = p.relay(r)
	}
	if err != nil {
		p.refuse(w, entity, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// sendTarget reads the entity from the path of a send. isSend is false for any other
// request. An entity's name may contain slashes.
func sendTarget(r *http.Request) (entity string, isSend bool, err error) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	name, found := strings.CutSuffix(path, "/messages")
	if !found || r.Method != http.MethodPost {
		return "", false, nil
	}
	entity = strings.TrimPrefix(name, "/")
	if n := utf8.RuneCountInString(entity); n == 0 || n > maxEntityName {
		return "", true, badRequest("The name of the entity has %d characters; 1 to %d are allowed.", n, maxEntityName)
	}
	if !utf8.ValidString(entity) || strings.ContainsFunc(entity, unicode.IsControl) {
		return "", true, badRequest("The name of the entity has characters that are not allowed.")
	}
	for segment := range strings.SplitSeq(entity, "/") {
		// $cbs, $management, $DeadLetterQueue: nodes of the broker that take requests or take
		// nothing. Our credentials would open them to everybody who can reach this port.
		if segment == "" || strings.HasPrefix(segment, "$") {
			return "", true, badRequest("%s is not the name of a queue or topic.", quoted(entity))
		}
	}
	return entity, true, nil
}

// serveSend takes the message or the batch out of the request and sends it.
func (p *Proxy) serveSend(w http.ResponseWriter, r *http.Request, entity string) error {
	if p.cfg.MonitorQueue != "" && strings.EqualFold(entity, p.cfg.MonitorQueue) {
		return badRequest("%s is the monitor queue, which takes no messages of apps.", quoted(entity))
	}
	body, done, err := p.body(w, r)
	if err != nil {
		p.metrics.sent(doorREST, entity, 1, 0, err)
		return err
	}
	defer done()
	var ms []*restMessage
	batch := mediaType(r.Header.Get("Content-Type")) == batchContentType
	if batch {
		ms, err = parseBatch(r.Header, body)
	} else {
		ms, err = parseSingle(r.Header, body)
	}
	if err == nil {
		if !batch {
			keepSpelling(r, ms[0].properties)
		}
		err = p.checkSize(entity, ms)
	}
	if err != nil {
		p.metrics.sent(doorREST, entity, len(ms), 0, err)
		return err
	}
	known := make([]*message, len(ms))
	for i, m := range ms {
		known[i] = m.known()
	}
	return p.send(r.Context(), doorREST, entity, known, func(ctx context.Context) error {
		out := make([]*azservicebus.AMQPAnnotatedMessage, len(ms))
		for i, m := range ms {
			out[i] = m.amqp(known[i].Stamp)
		}
		return p.transmit(ctx, entity, out, batch)
	})
}

// checkSize holds the bodies against the entity's own bound, where there is one.
func (p *Proxy) checkSize(entity string, ms []*restMessage) error {
	limit := p.cfg.Settings(entity).MaxMessageSize
	if limit == 0 {
		return nil
	}
	for _, m := range ms {
		if int64(len(m.body)) > limit {
			return fmt.Errorf("%w: body of %d bytes, at most %d", errTooLarge, len(m.body), limit)
		}
	}
	return nil
}

// transmit hands the messages to the broker, a batch as one transfer.
func (p *Proxy) transmit(ctx context.Context, entity string, ms []*azservicebus.AMQPAnnotatedMessage, batch bool) (err error) {
	sn, err := p.senders.acquire(entity)
	if err != nil {
		return err
	}
	defer func() { p.senders.release(sn, err) }()
	if err := sn.open(ctx); err != nil {
		return err
	}
	if !batch {
		return classify(sn.sdk.SendAMQPAnnotatedMessage(ctx, ms[0], nil))
	}
	b, err := sn.sdk.NewMessageBatch(ctx, nil)
	if err != nil {
		return classify(err)
	}
	for _, m := range ms {
		if err := b.AddAMQPAnnotatedMessage(m, nil); err != nil {
			return classify(err)
		}
	}
	return classify(sn.sdk.SendMessageBatch(ctx, b, nil))
}

// body reads the body of a request. It takes as much of the budget for bodies as the body
// may be long; done gives it back.
func (p *Proxy) body(w http.ResponseWriter, r *http.Request) (body []byte, done func(), err error) {
	size := r.ContentLength
	if size > p.cfg.MaxBodySize {
		return nil, nil, fmt.Errorf("%w: body of %d bytes, at most %d", errTooLarge, size, p.cfg.MaxBodySize)
	}
	if size < 0 {
		size = p.cfg.MaxBodySize
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.cfg.SendTimeout)
	defer cancel()
	if err := p.bodies.Acquire(ctx, size); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBusy, err)
	}
	defer func() {
		if err != nil {
			p.bodies.Release(size)
		}
	}()
	body, err = readBody(http.MaxBytesReader(w, r.Body, p.cfg.MaxBodySize), r.ContentLength)
	if err != nil {
		return nil, nil, err
	}
	// Left in place, the deadline would cut the wait for the broker short as well. Where
	// the body did not come it stays: net/http would otherwise wait for the rest of it.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // see ServeHTTP
	return body, func() { p.bodies.Release(size) }, nil
}

// readBody reads all of r, whose length is known unless it is negative.
func readBody(r io.Reader, length int64) ([]byte, error) {
	var body []byte
	var err error
	if length >= 0 {
		body = make([]byte, length)
		_, err = io.ReadFull(r, body)
	} else {
		body, err = io.ReadAll(r)
	}
	var tooLarge *http.MaxBytesError
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &tooLarge):
		return nil, fmt.Errorf("%w: %w", errTooLarge, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, fmt.Errorf("%w: %w", errSlowBody, err)
	}
	return nil, badRequest("The body of the request ended early.")
}

// mediaType is the media type of a Content-Type header without its parameters.
func mediaType(header string) string {
	if t, _, err := mime.ParseMediaType(header); err == nil {
		return t
	}
	return strings.ToLower(strings.TrimSpace(header))
}

// refuse answers with an error, in the form of Service Bus. The log has what the client
// is not told; it is where an error of a send ends.
func (p *Proxy) refuse(w http.ResponseWriter, entity string, err error) {
	status, retryAfter, sentence := answer(err, entity)
	log := p.cfg.Log.Debug
	if status >= http.StatusInternalServerError && status != http.StatusNotImplemented {
		log = p.cfg.Log.Warn
	}
	log("send failed", zap.String("work_queue", entity), zap.String("door", doorREST),
		zap.Int("status", status), zap.Error(err))
	h := w.Header()
	h.Set("Content-Type", "application/xml; charset=utf-8")
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, errorBody(status, sentence)) // the client may be gone
}

var xmlText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// errorBody is the body of an error answer. The sentence may hold what a client sent, or
// the broker's own words: what XML cannot hold is left out.
func errorBody(status int, sentence string) string {
	sentence = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, sentence)
	return "<Error><Code>" + strconv.Itoa(status) + "</Code><Detail>" + xmlText.Replace(sentence) + "</Detail></Error>"
}
