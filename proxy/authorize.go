// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"overdue/internal/listener"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
	"overdue/internal/servicebus/sas"
)

// called reads what a request asks for: path, method and headers as every other reader has to read
// them. What could be read in two ways is refused.
func called(r *http.Request) (rights.Request, error) {
	q, err := rights.OfHTTP(r.Method, r.URL.EscapedPath(), r.ContentLength != 0)
	switch {
	case errors.Is(err, rights.ErrUnlisted):
		return q, fmt.Errorf("%w: %s %s", errUnsupported, r.Method, rest.Quoted(r.URL.Path))
	case err != nil:
		return q, rest.BadRequest("The request is refused: %s.", err)
	case q.Twofold:
		return q, rest.BadRequest("The message-id in the path can be read in two ways; name the message by its sequence number.")
	}
	return q, rest.CheckOnce(r.Header, r.URL.RawQuery)
}

// authorize says why a request may not go on, where there are keys: it has to show a token that
// one of them has signed and that is good for what it asks. The AMQP endpoint asks for the same,
// see relay.Keys.
func (p *Proxy) authorize(r *http.Request, q *rights.Request) error {
	if len(p.cfg.Keys) == 0 {
		listener.Admit(r) // its tokens are for the namespace to judge
		return nil
	}
	now := time.Now()
	g, err := p.keys().Token(r.Header.Get(authorization), q.Need.Path, now)
	if err == nil && !g.Holds(now, q.Need.OneOf) {
		err = sas.Missing(q.Need.OneOf, q.Need.Path)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	listener.Admit(r)
	return nil
}

// keys are those that count now.
func (p *Proxy) keys() sas.Keys { return *p.known.Load() }

// SetKeys puts other keys in the place of Config.Keys. An endpoint that asks for keys cannot come
// to ask for none, nor the other way round: that is decided when it is opened. What clients were
// granted lasts as long as their tokens, or their connections.
func (p *Proxy) SetKeys(keys sas.Keys) error {
	if (len(keys) == 0) != (len(p.cfg.Keys) == 0) {
		return errors.New("proxy: whether the endpoints ask for keys is decided when they are opened")
	}
	p.known.Store(&keys)
	return nil
}
