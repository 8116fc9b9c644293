// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"net"

	"overdue/internal/amqp"
	amqpclient "overdue/internal/amqp/client"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
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
