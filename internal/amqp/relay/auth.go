// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"net"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
)

// ownChannel is the channel upstream of the relay's own session.
const ownChannel = 0

// auth is what a connection knows of tokens: what the client has proven to the
// relay, and what the relay proves upstream. It is empty where the client's
// tokens pass.
type auth struct {
	grants *grants // nil lets everybody in
	pair   *pair
	keeper *keeper
}

// connLock is the connection's mutex for those who are no read loop: what they
// have queued is written when they let go.
type connLock struct{ c *conn }

func (l connLock) Lock() { l.c.mu.Lock() }

func (l connLock) Unlock() {
	l.c.doneLocked()
	l.c.unlock()
}

// beginAuth comes before the client is heard.
func (c *conn) beginAuth(remote net.Addr) {
	if c.ownSession {
		c.auth.grants = newGrants(c.cfg.Admit, remote, c.lapsed)
	}
}

// upstreamOpenLocked readies the relay's own session, which begins with the first
// token.
func (c *conn) upstreamOpenLocked() {
	up := &c.sides[upstream]
	c.auth.pair = newPair(connLock{c},
		func(p amqp.Performative, payload []byte) { up.putLocked(ownChannel, p, payload) },
		func() uint32 { return up.maxFrame })
	host := c.cfg.Hostname
	if c.sides[client].open != nil {
		host = cmp.Or(host, c.sides[client].open.Hostname)
	}
	c.auth.keeper = newKeeper(c.ctx, host, c.cfg.Tokens, c.auth.pair.put, c.r.log)
	c.auth.grants.wait()
}

// endAuth follows the end of the connection, and waits for the last put.
func (c *conn) endAuth() {
	c.auth.grants.close()
	if c.auth.keeper != nil {
		c.auth.keeper.close()
	}
}

// ownFrameLocked takes what upstream sends on the relay's own session.
func (c *conn) ownFrameLocked(p amqp.Performative, payload []byte) {
	if _, over := p.(*amqp.End); over {
		c.ownBegun = false // the pair may begin it again, in the course of this
	}
	if err := c.auth.pair.frameLocked(p, payload); err != nil {
		c.failLocked(&c.sides[upstream], err)
	}
}

// nodeLocked returns what answers a link in place of upstream, or nil.
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
	k.release(claim) // what is being put is put all the same, for the link that will come
	if inEffect {
		done(nil) // there is nothing to prove for that audience
	}
}

// admitLocked classifies a link of a client and says why it may not be attached,
// nil when it may. Everything that comes after goes by the class.
func (c *conn) admitLocked(l *link, a *amqp.Attach) *amqp.Error {
	l.class, l.unlisted = rights.Classify(a)
	switch {
	case !c.ownSession:
		return nil // upstream judges the client itself, and may know more kinds of links
	case l.unlisted != nil:
		return l.unlisted
	}
	return c.mayLocked(l)
}

// mayLocked judges a link by what the client has proven so far.
func (c *conn) mayLocked(l *link) *amqp.Error {
	for _, n := range l.class.Needs {
		if err := c.auth.grants.refuse(n.Path, n.OneOf); err != nil {
			return err
		}
	}
	return nil
}

// authorizeLocked asks for the tokens that a link needs upstream. It reports true
// if the attach has to wait for them; then done is called, from another
// goroutine, with the refusal of the link if there is to be one.
func (c *conn) authorizeLocked(l *link, done func(*amqp.Error)) (wait bool) {
	left := 0 // of the tokens to wait for; guarded by the mutex, which all calls of one need
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

// leaveLocked follows the end of a link.
func (c *conn) leaveLocked(l *link) {
	for _, claim := range l.claims {
		c.auth.keeper.release(claim)
	}
	l.claims = nil
}

// lapsed follows the end of something that the client has proven, or the end of
// how long the relay waits for one that has proven nothing.
func (c *conn) lapsed(never bool) {
	lock := connLock{c}
	lock.Lock()
	defer lock.Unlock()
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
