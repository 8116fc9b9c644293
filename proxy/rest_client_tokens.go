// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/atom"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
	"overdue/proxy/proven"
)

// maxAnswer bounds the body of an answer to a send.
const maxAnswer = 64 << 10

// A namespaceAnswer is the namespace's refusal of a send. The client gets it unchanged.
type namespaceAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a *namespaceAnswer) Error() string { return fmt.Sprintf("the namespace answered %d", a.status) }

// pass runs the send of a client that authenticates to the namespace itself. The request goes on
// over HTTP with the client's token, and the proxy writes the companions with its own
// credentials. Until the namespace has accepted a send with that token, the companions go after
// the message. Otherwise anyone could make the proxy write them; see docs/decisions/0020.
func (p *Proxy) pass(r *http.Request, q *rights.Request, s *request, body []byte, batch bool) error {
	ms := s.ms
	token := proven.KeyOf(r.Header.Get(authorization), s.entity)
	s.companionLast = !p.proven.Holds(token, time.Now())
	return s.run(r.Context(), func(ctx context.Context) error {
		p.cfg.Operations.Add(operations.Send, s.n)
		out, err := p.passedSend(ctx, r, q, ms, body, batch)
		if err != nil {
			return err
		}
		err = p.exchange(out)
		p.proven.Note(token, err == nil, time.Now())
		return err
	})
}

// passedSend returns the request for the namespace, with given ids and stamped TTLs if there are
// any, and otherwise unchanged.
func (p *Proxy) passedSend(ctx context.Context, r *http.Request, q *rights.Request, ms []*message, body []byte, batch bool) (*http.Request, error) {
	additions := make([]rest.Addition, len(ms))
	for i, m := range ms {
		additions[i] = rest.Addition{MessageID: m.GivenID, TimeToLive: m.Stamp}
	}
	adds := slices.ContainsFunc(additions, func(a rest.Addition) bool { return a != rest.Addition{} })
	if batch && adds {
		var err error
		if body, err = rest.CompleteBatch(body, additions); err != nil {
			return nil, err
		}
	}
	out, err := p.passedOn(ctx, r, q, body)
	if err != nil || batch {
		return out, err
	}
	// The monitor reads the properties that state deadlines in one spelling; a header may have
	// any case.
	for name, values := range out.Header {
		if lower := strings.ToLower(name); lower != name && isOurs(lower) {
			delete(out.Header, name)
			out.Header[lower] = values
		}
	}
	if adds {
		err = rest.CompleteHeader(out.Header, additions[0])
	}
	return out, err
}

// exchange returns nil when the namespace has accepted the send. Without an answer the outcome is
// unknown.
func (p *Proxy) exchange(out *http.Request) error {
	resp, err := p.upstream.RoundTrip(out)
	if err != nil {
		if out.Context().Err() != nil {
			return fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		return fmt.Errorf("%w: %w", errUpstream, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode == http.StatusCreated:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errUpstream, err)
	}
	return &namespaceAnswer{resp.StatusCode, endToEnd(resp.Header), body}
}

// write passes the answer on to the client.
func (a *namespaceAnswer) write(w http.ResponseWriter, names atom.Naming) {
	clear(w.Header())
	for name, values := range a.header {
		w.Header()[name] = values
	}
	if _, ok := a.header["Content-Length"]; !ok {
		w.Header().Set("Transfer-Encoding", "chunked")
	}
	w.Header().Del("Content-Length") // net/http sets it
	w.WriteHeader(a.status)
	_ = names.Copy(w, bytes.NewReader(a.body)) // the client may be gone
}
