// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

// restOptions of the REST runtime API. The zero value is open to everybody.
type restOptions struct {
	// Authorize decides whether a request may do what needs a right. Its error is
	// sent to the client, with status 401. nil allows everything.
	Authorize func(r *http.Request, n rights.Need) error
	// MaxReceives bounds the receives that wait. Default 5000, as the service
	// allows an entity.
	MaxReceives int64
	// MaxBodies bounds the bodies of requests that are in memory at once, in bytes.
	// Default 64 MiB.
	MaxBodies int64
}

// newREST returns the REST runtime API of the namespace that ns picks for a
// request: sends, receives and settlements, see restTarget.
//
// Served by rest.Serve, it keeps the names of custom properties as they are
// sent.
func newREST(ns func(*http.Request) *broker.Namespace, o restOptions) http.Handler {
	o.MaxReceives = cmp.Or(max(o.MaxReceives, 0), 5000)
	o.MaxBodies = cmp.Or(max(o.MaxBodies, 0), 64<<20)
	return &runtime{namespace: ns, options: o, bodies: rest.NewBodies(o.MaxBodies)}
}

// isREST reports whether r is a request of the REST runtime API.
func isREST(r *http.Request) bool {
	_, ok := targetOf(r)
	return ok
}

type runtime struct {
	namespace func(*http.Request) *broker.Namespace
	options   restOptions

	receives atomic.Int64 // that wait
	bodies   *rest.Bodies
}

func (h *runtime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest.Identify(w.Header())
	t, ok := targetOf(r)
	err := error(&restRefusal{status: http.StatusNotFound, detail: "There is no such operation."})
	if ok {
		err = h.serve(w, r, t)
	}
	switch {
	case err == nil:
	case errors.Is(err, errAway):
		// Nobody reads an answer, unless the server ended the request, which answers then.
	default:
		refuse(w, r, err)
	}
}

// serve answers the request, or returns why not.
func (h *runtime) serve(w http.ResponseWriter, r *http.Request, t restTarget) error {
	if t.err != nil && t.need.OneOf == 0 {
		return t.err // it is about nothing that there can be
	}
	if h.options.Authorize != nil {
		if err := h.options.Authorize(r, t.need); err != nil {
			return &restRefusal{status: http.StatusUnauthorized, detail: err.Error()}
		}
	}
	ns := h.namespace(r)
	if t.err != nil {
		return t.err
	}
	switch t.call {
	case rights.SendMessages:
		return h.send(w, r, ns, t)
	case rights.PeekLock, rights.ReceiveAndDelete:
		return h.receive(w, r, ns, t)
	}
	return settle(w, ns, t)
}

// reserve takes n from a bounded amount, or all of it when nothing else is taken:
// what is allowed to be larger than the bound is served alone. It does not wait: a
// client that is asked to come again knows where it stands.
func reserve(used *atomic.Int64, n, most int64) error {
	if total := used.Add(n); total > most && total != n {
		used.Add(-n)
		return errBusy
	}
	return nil
}

// errBusy is what the service says when it throttles.
var errBusy = &restRefusal{
	status: http.StatusServiceUnavailable, retryAfter: 10,
	detail: "The server is too busy. Please wait 10 seconds and try again.",
}

// badRequest refuses a request for what it is.
func badRequest(format string, args ...any) error { return rest.BadRequest(format, args...) }

// A restTarget is what a request of the REST runtime API is about. The token
// alone says which delivery is meant; what stands in front of it the service uses
// to find its way.
type restTarget struct {
	call  rights.Call
	need  rights.Need // its path is that of the entity, /$DeadLetterQueue included
	token queue.LockToken
	err   error // what is wrong with the path, for when it is clear who asks
}

// targetOf reads what r is about, see rights.OfHTTP. ok is false when it is no request of the REST
// runtime API.
func targetOf(r *http.Request) (t restTarget, ok bool) {
	q, err := rights.OfHTTP(r.Method, r.URL.EscapedPath(), r.ContentLength != 0)
	switch {
	case errors.Is(err, rights.ErrUnlisted):
		return t, false
	case errors.Is(err, rights.ErrBody), errors.Is(err, rights.ErrNoMessages), err != nil && r.Method == http.MethodPost:
		return restTarget{err: badRequest("The request is refused: %v.", err)}, true
	case err != nil || q.Call == rights.Administer:
		return t, false
	}
	t = restTarget{call: q.Call, need: q.Need}
	if q.Token != "" {
		if t.token, ok = parseToken(q.Token); !ok {
			t.err = badRequest("The lock token '%.64s' is no UUID.", q.Token)
		}
	}
	return t, true
}

// parseToken reads a lock token: a UUID, with dashes or without.
func parseToken(s string) (t queue.LockToken, ok bool) {
	s = strings.ReplaceAll(s, "-", "")
	if len(s) != 2*len(t) {
		return t, false
	}
	_, err := hex.Decode(t[:], []byte(s))
	return t, err == nil
}

// errAway: the client has gone, or the server ends; there is no response to send.
var errAway = errors.New("brokerhttp: the request has ended")

// A restRefusal is an answer of the REST runtime API that is no success.
type restRefusal struct {
	status     int
	retryAfter int // seconds; 0 = a retry does not help as things stand
	detail     string
}

func (e *restRefusal) Error() string { return e.detail }

// refusedConditions says which status a refusal of the broker has over REST. Those
// that are missing are errors of ours.
var refusedConditions = map[amqp.Symbol]int{
	amqp.ErrCondNotFound:                  http.StatusGone, // so the API has it: a queue that was never there is as gone as one that was
	amqp.ErrCondNotAllowed:                http.StatusBadRequest,
	amqp.ErrCondInvalidField:              http.StatusBadRequest,
	"com.microsoft:argument-error":        http.StatusBadRequest,
	"com.microsoft:argument-out-of-range": http.StatusBadRequest,
	amqp.ErrCondUnauthorizedAccess:        http.StatusUnauthorized,
	amqp.ErrCondResourceLimitExceeded:     http.StatusForbidden,
	amqp.ErrCondLinkMessageSizeExceeded:   http.StatusForbidden,
	"com.microsoft:entity-disabled":       http.StatusForbidden,
	"com.microsoft:server-busy":           http.StatusServiceUnavailable,
}

// refusalFor returns the response for err.
func refusalFor(err error) *restRefusal {
	var own *restRefusal
	var condition *amqp.Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, rest.ErrBadRequest):
		return &restRefusal{status: http.StatusBadRequest, detail: err.Error()}
	case errors.Is(err, rest.ErrTooLarge):
		return &restRefusal{status: http.StatusForbidden, detail: "The message or the batch is too large: " + err.Error() + "."}
	case errors.As(err, &tooLarge):
		return &restRefusal{status: http.StatusForbidden, detail: fmt.Sprintf("The body is too large: at most %d bytes are taken.", tooLarge.Limit)}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, rest.ErrSlowBody):
		return &restRefusal{status: http.StatusRequestTimeout, retryAfter: 1, detail: "The body of the request did not come in time."}
	case errors.Is(err, queue.ErrLockLost):
		return &restRefusal{status: http.StatusNotFound,
			detail: "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."}
	case errors.Is(err, queue.ErrClosed):
		return &restRefusal{status: http.StatusGone, detail: "The messaging entity has been deleted."}
	case errors.As(err, &condition):
		out := &restRefusal{status: refusedConditions[condition.Condition], detail: condition.Description}
		switch out.status {
		case 0:
			out.status = http.StatusInternalServerError
		case http.StatusServiceUnavailable:
			out.retryAfter = errBusy.retryAfter
		}
		return out
	}
	return &restRefusal{status: http.StatusInternalServerError, retryAfter: 1, detail: "The request could not be served: " + err.Error() + "."}
}

// refuse answers with an error as the service writes it.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer := refusalFor(err)
	rest.Refuse(w, r, answer.status, answer.retryAfter, answer.detail)
}

// away is errAway when the request has ended, else err.
func away(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errAway
	}
	return err
}
