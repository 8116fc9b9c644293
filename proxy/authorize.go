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

// called parses the path, method and headers of a request into the operation that it asks for. It
// refuses a request that could be read in two ways.
func called(r *http.Request) (rights.Request, error) {
	q, err := rights.OfHTTP(r.Method, r.URL.EscapedPath(), r.ContentLength != 0)
	switch reads := r.Method == http.MethodGet || r.Method == http.MethodHead; {
	case err != nil && reads:
		return q, fmt.Errorf("%w: %w", errNowhere, err) // apps ask whether an entity exists
	case errors.Is(err, rights.ErrUnlisted):
		return q, rest.InvalidVerb(r.Method)
	case err != nil:
		return q, rest.BadRequest("The request is refused: %s.", err)
	case q.Twofold:
		return q, rest.BadRequest("The message-id in the path can be read in two ways; name the message by its sequence number.")
	}
	return q, rest.CheckOnce(r.Header, r.URL.RawQuery)
}

// authorize checks a request against the endpoint's keys, if there are any: its token must be
// signed with one of them and grant the right that the request needs. The AMQP endpoint requires
// the same, see relay.KeysOf.
func (p *Proxy) authorize(r *http.Request, q *rights.Request) error {
	if len(p.cfg.Keys) == 0 {
		listener.Admit(r) // the namespace checks its tokens
		return nil
	}
	if err := p.demand(r.Header.Get(authorization), q.Need.Path, q.Need.OneOf); err != nil {
		return err
	}
	listener.Admit(r)
	return nil
}

// demand returns an error unless one of our keys has signed the token, and it grants one of the
// rights to what is at path.
func (p *Proxy) demand(token, path string, oneOf sas.Rights) error {
	now := time.Now()
	g, err := p.keys().Token(token, path, now)
	if err == nil && !g.Holds(now, oneOf) {
		err = sas.Missing(oneOf, path)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	return nil
}

// keys returns the keys in force.
func (p *Proxy) keys() sas.Keys { return *p.known.Load() }

// SetKeys replaces Config.Keys. It cannot change whether the endpoint requires keys: that is
// fixed when it is opened. Existing grants last as long as their tokens, or their connections.
func (p *Proxy) SetKeys(keys sas.Keys) error {
	if (len(keys) == 0) != (len(p.cfg.Keys) == 0) {
		return errors.New("proxy: whether the endpoints ask for keys is decided when they are opened")
	}
	p.known.Store(&keys)
	return nil
}

// RenewTokens has the connections of apps take up the tokens that Config.AMQP makes from now on.
func (p *Proxy) RenewTokens() { p.behind.RenewTokens() }
