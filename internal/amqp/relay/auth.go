// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"net"
	"time"

	"overdue/internal/amqp"
	amqpclient "overdue/internal/amqp/client"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
	"overdue/internal/servicebus/sas"
)

// ownChannel is the channel upstream of the relay's own session.
const ownChannel = 0

// auth is the authentication of a connection: the grants of the client, and the tokens of the
// relay upstream. It is empty when the client's tokens pass through.
type auth struct {
	grants *grants          // nil admits every client
	own    *amqpclient.Conn // over the relay's own session upstream; nil until that is open
	keeper *keeper
}

// beginAuth runs before the relay reads from the client.
func (c *conn) beginAuth(remote net.Addr) {
	if c.ownSession {
		c.auth.grants = newGrants(c.cfg.Admit, remote, c.lapsed)
	}
}

// upstreamOpenLocked prepares the relay's own session, which begins with the first token.
func (c *conn) upstreamOpenLocked() {
	up := &c.sides[upstream]
	c.auth.own = amqpclient.Over(&up.Conn, (*owner)(up))
	host := c.cfg.Hostname
	if c.sides[client].Peer != nil {
		host = cmp.Or(host, c.sides[client].Peer.Hostname)
	}
	c.auth.keeper = newKeeper(c.ctx, host, c.cfg.Tokens, newPair(c.auth.own).put, c.r.log)
	c.auth.grants.wait()
}

// endAuth ends the authentication with the connection, and waits for the last put.
func (c *conn) endAuth() {
	c.auth.grants.close()
	if c.auth.keeper != nil {
		c.auth.keeper.close()
	}
}

// nodeLocked returns the node that answers a link in place of upstream, or nil.
func (c *conn) nodeLocked(l *link) node {
	if c.ownSession && (l.class.Kind == rights.TokenRequests || l.class.Kind == rights.TokenResponses) {
		return c.answerToken
	}
	return nil
}

// answerToken answers a request to $cbs. The client gets upstream's answer to the relay's own
// token: from that answer the SDKs learn that an entity does not exist. It also means that the
// token is in place when the link comes.
func (c *conn) answerToken(request []byte, answer func([]byte, *amqp.Error)) {
	req, rejected := readTokenRequest(request)
	if rejected != nil {
		answer(nil, rejected)
		return
	}
	if req.ambiguous != nil {
		answer(refusedAlike(req.ambiguous).encode(&req.returnAddress), nil)
		return
	}
	path, plain := address.Audience(req.audience)
	res := c.auth.grants.judge(&req)
	if plain != nil && res.succeeded() {
		res = failure(statusBadRequest, condArgumentError, "The audience %v.", plain)
	}
	if !res.succeeded() {
		answer(res.encode(&req.returnAddress), nil)
		return
	}
	done := func(refusal *amqp.Error) {
		if refusal != nil {
			res = refusedAlike(refusal)
		}
		answer(res.encode(&req.returnAddress), nil)
	}
	k := c.auth.keeper
	claim, inEffect := k.prove(path, done)
	k.release(claim) // a put that has started goes on, for the link that will come
	if inEffect {
		done(nil) // that audience needs no token
	}
}

// admitLocked classifies a client's link. It returns the reason to refuse it, or nil. All later
// decisions use the class.
func (c *conn) admitLocked(l *link, a *amqp.Attach) *amqp.Error {
	l.class, l.unlisted = rights.Classify(a)
	switch {
	case !c.ownSession:
		return nil // upstream checks the client itself, and may know more kinds of links
	case l.unlisted != nil:
		return l.unlisted
	}
	return c.mayLocked(l)
}

// mayLocked checks a link against the client's grants so far.
func (c *conn) mayLocked(l *link) *amqp.Error {
	for _, n := range l.class.Needs {
		if err := c.auth.grants.refuse(n.Path, n.OneOf); err != nil {
			return err
		}
	}
	return nil
}

// authorizeLocked requests the tokens that a link needs upstream. If the attach has to wait for
// them, it returns true. Another goroutine then calls done, with an error if the link is refused.
func (c *conn) authorizeLocked(l *link, done func(*amqp.Error)) (wait bool) {
	left := 0 // tokens still awaited; guarded by the mutex, which every call of one holds
	var refusal *amqp.Error
	for _, n := range l.class.Needs {
		claim, inEffect := c.auth.keeper.need(n.Path, func(err *amqp.Error) {
			c.mu.Lock()
			left--
			if refusal == nil {
				refusal = err
			}
			over, result := left == 0, refusal
			c.mu.Unlock()
			if over {
				done(result)
			}
		})
		if !inEffect {
			left++
		}
		l.claims = append(l.claims, claim)
	}
	return left > 0
}

// releaseClaimsLocked releases the claims of a link that has ended.
func (l *link) releaseClaimsLocked() {
	for _, claim := range l.claims {
		l.s.c.auth.keeper.release(claim)
	}
	l.claims = nil
}

// lapsed handles the expiry of a grant of the client, or, with never, the end of the wait for its
// first proof.
func (c *conn) lapsed(never bool) {
	c.mu.Lock()
	defer c.unlock()
	defer c.doneLocked()
	down := &c.sides[client]
	if never {
		c.failLocked(down, amqp.Errorf(amqp.ErrCondUnauthorizedAccess,
			"The connection was closed: no valid token was put within %v of its opening.", admissionTimeout))
		return
	}
	var ended []*link
	for _, h := range down.halves {
		for _, l := range h.links {
			if l.node == nil && c.mayLocked(l) != nil {
				ended = append(ended, l)
			}
		}
	}
	for _, l := range ended {
		l.breakLocked(amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "ExpiredToken: The token is expired."))
	}
}

// gated returns the watcher of a client's requests to a management node, if its grants decide
// which ones it may send. next may be nil.
func (c *conn) gated(l *link, next Watcher) Watcher {
	if c.auth.grants == nil || l.class.Kind != rights.Requests {
		return next
	}
	return &gate{c.auth.grants, l.class.Address, next}
}

// A gate refuses requests to a management node for which the client lacks the right. Upstream
// would not, since it sees only the relay's own rights.
type gate struct {
	grants *grants
	at     address.Address // of the node
	next   Watcher         // nil: admitted requests pass
}

// Deliver checks the right that the operation needs.
func (g *gate) Deliver(d *Delivery) (DeliveryHandler, *amqp.Error) {
	_, oneOf, err := rights.Operation(g.at, d.Payload)
	if err == nil {
		err = g.grants.refuse(g.at.String(), oneOf)
	}
	if err != nil {
		return nil, err
	}
	if g.next == nil {
		return nil, nil
	}
	return g.next.Deliver(d)
}

// Detached calls next.
func (g *gate) Detached() {
	if g.next != nil {
		g.next.Detached()
	}
}

// KeysOf admits clients that know one of the keys, for Config.Admit: by SASL PLAIN, with the name
// and the key, or by a shared access signature. Every error is a *sas.Refusal, whose text is the
// service's. The keys may change: it calls current for each password and token. Earlier grants last
// as long as their token, or their connection.
func KeysOf(current func() sas.Keys) func(Credentials) (sas.Grant, error) {
	return func(c Credentials) (sas.Grant, error) {
		known := current()
		if c.Audience == "" {
			return known.Password(c.Username, c.Password)
		}
		if c.Token == "" {
			return sas.Grant{}, sas.ErrMalformedToken
		}
		path, err := address.Audience(c.Audience)
		if err != nil {
			return sas.Grant{}, sas.ErrInvalidAudience
		}
		return known.Token(c.Token, path, time.Now())
	}
}

// Token types of Service Bus.
const (
	TokenSAS = "servicebus.windows.net:sastoken"
	TokenJWT = "jwt"
)

// A Token authenticates the relay to upstream, for one audience.
type Token struct {
	Text    string
	Type    string    // TokenSAS or TokenJWT
	Expires time.Time // zero: unknown; the token is put once and not renewed
}

// String shows nothing of the token.
func (t Token) String() string { return "token of type " + t.Type }

// GoString omits the token.
func (t Token) GoString() string { return t.String() }

// Credentials are a client's name and password in SASL PLAIN, or a token put for an audience.
// With the other SASL mechanisms clients put tokens.
type Credentials struct {
	Username, Password string // of SASL PLAIN

	Audience  string // that a token was put for; "" with SASL
	Token     string
	TokenType string // as the client named it

	RemoteAddr net.Addr
}

// String shows nothing of the credentials.
func (Credentials) String() string { return "credentials" }

// GoString omits the credentials.
func (Credentials) GoString() string { return "credentials" }
