// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

const (
	// provenTime is for how long a token that the namespace has taken is believed to be good, and
	// provenMost bounds how many are remembered.
	provenTime = 5 * time.Minute
	provenMost = 4096
	// maxAnswer bounds the body of an answer to a send.
	maxAnswer = 64 << 10
)

// A namespaceAnswer is what the namespace says of a send that it does not take. Its client is told
// just that.
type namespaceAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a *namespaceAnswer) Error() string { return fmt.Sprintf("the namespace answered %d", a.status) }

// pass makes the send of a request whose client proves itself to the namespace: the request goes
// on over HTTP with the token that it shows, and the companions are written as the proxy. Until
// the namespace has taken a send with that token the companions go behind it, or anybody could
// have them written; see docs/decisions.
func (p *Proxy) pass(r *http.Request, q *rights.Request, s *request, body []byte, batch bool) error {
	if p.upstream == nil {
		return fmt.Errorf("%w: %s %s", errUnsupported, r.Method, rest.Quoted(r.URL.Path))
	}
	ms := s.ms
	token := tokenOf(r.Header.Get(authorization), s.entity)
	s.companionLast = !p.proven.holds(token, time.Now())
	return s.run(r.Context(), func(ctx context.Context) error {
		p.cfg.Operations.Add(operations.Send, s.n)
		out, err := p.passedSend(ctx, r, q, s, ms, body, batch)
		if err != nil {
			return err
		}
		err = p.exchange(out)
		p.proven.note(token, err == nil, time.Now())
		return err
	})
}

// passedSend is the request as the namespace gets it: with ids and times to live where there are
// promises, and otherwise as it is.
func (p *Proxy) passedSend(ctx context.Context, r *http.Request, q *rights.Request, s *request, ms []*message, body []byte, batch bool) (*http.Request, error) {
	additions := make([]rest.Addition, len(ms))
	for i, m := range ms {
		additions[i] = rest.Addition{MessageID: m.ID, TimeToLive: m.Stamp}
	}
	if batch && len(s.promises) > 0 {
		var err error
		if body, err = rest.CompleteBatch(body, additions); err != nil {
			return nil, err
		}
	}
	out, err := p.passedOn(ctx, r, q, body)
	if err != nil || batch {
		return out, err
	}
	// Properties that state deadlines have one spelling, which the monitor knows; a header may
	// have any.
	for name, values := range out.Header {
		if lower := strings.ToLower(name); lower != name && isOurs(lower) {
			delete(out.Header, name)
			out.Header[lower] = values
		}
	}
	if len(s.promises) > 0 {
		err = rest.CompleteHeader(out.Header, additions[0])
	}
	return out, err
}

// exchange returns nil when the namespace has taken the send. Whether it has is not known where no
// answer comes.
func (p *Proxy) exchange(out *http.Request) error {
	resp, err := p.upstream.RoundTrip(out)
	if err != nil {
		if out.Context().Err() != nil {
			return fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		return fmt.Errorf("%w: %w", errUpstream, err)
	}
	defer func() { _ = resp.Body.Close() }() // read, or given up
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode == http.StatusCreated:
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", errUpstream, err)
	}
	return &namespaceAnswer{resp.StatusCode, endToEnd(resp.Header), body}
}

// write is the answer as the client gets it.
func (a *namespaceAnswer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	delete(w.Header(), "Content-Length") // net/http knows
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may be gone
}

// provenTokens remembers with which tokens the namespace has taken sends. The zero value is ready.
type provenTokens struct {
	mu    sync.Mutex
	until map[[sha256.Size]byte]time.Time
}

// tokenOf stands for a token that is shown for an entity.
func tokenOf(header, entity string) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.ToLower(entity) + "\x00" + header))
}

func (t *provenTokens) holds(token [sha256.Size]byte, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Before(t.until[token])
}

// note remembers, or forgets, the token.
func (t *provenTokens) note(token [sha256.Size]byte, taken bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !taken {
		delete(t.until, token)
		return
	}
	if len(t.until) >= provenMost {
		clear(t.until) // they prove themselves again
	}
	if t.until == nil {
		t.until = map[[sha256.Size]byte]time.Time{}
	}
	t.until[token] = now.Add(provenTime)
}
