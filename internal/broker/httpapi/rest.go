// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"overdue/internal/broker"
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
// request: sends, receives and settlements, see restTarget. A request for which
// ns returns nil is answered with 404.
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
	if ns == nil {
		return &restRefusal{status: http.StatusNotFound, detail: fmt.Sprintf("The namespace '%.260s' could not be found.", r.Host)}
	}
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
