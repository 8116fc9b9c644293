// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"net"
	"strings"

	"overdue/internal/amqp"
	"overdue/internal/sas"
)

// ownChannel is the channel upstream of the relay's own session.
const ownChannel = 0

// transferDestination is the property of a sender's attach that names a second
// entity, to which what arrives is passed on in a transaction. It takes a token
// for either.
const transferDestination = "com.microsoft:transfer-destination-address"

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

// nodeLocked returns what answers the links to address in place of upstream, or
// nil.
func (c *conn) nodeLocked(address string) node {
	if !c.ownSession || !strings.EqualFold(address, addressCBS) {
		return nil
	}
	return c.answerToken
}

// answerToken answers a request to $cbs. What upstream says of the relay's own
// token is what the client is told: that is where the SDKs learn that an entity
// does not exist, and when the link comes, its token is there.
func (c *conn) answerToken(request []byte, answer func([]byte, *amqp.Error)) {
	req, rejected := readTokenRequest(request)
	if rejected != nil {
		answer(nil, rejected)
		return
	}
	res := c.auth.grants.judge(&req)
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
	claim, inEffect := k.prove(req.audience, done)
	k.release(claim) // what is being put is put all the same, for the link that will come
	if inEffect {
		done(nil) // there is nothing to prove for that audience
	}
}

// admitLocked says why a client may not attach a link, nil when it may.
func (c *conn) admitLocked(l *link, a *amqp.Attach) *amqp.Error {
	if !c.ownSession {
		return nil
	}
	l.leads, l.coordinator = leads(a), a.Coordinator != nil
	return c.mayLocked(l)
}

// mayLocked judges a link by what the client has proven so far.
func (c *conn) mayLocked(l *link) *amqp.Error {
	switch {
	case l.coordinator:
		// What is done in a transaction is sent and settled over links of their own. The Java SDK
		// opens this one before it has put any token.
		return nil
	case len(l.leads) == 0:
		return c.auth.grants.refuse("", l.needs("")) // each message may say itself where it goes
	}
	for _, address := range l.leads {
		if strings.EqualFold(address, addressCBS) {
			continue
		}
		if err := c.auth.grants.refuse(address, l.needs(address)); err != nil {
			return err
		}
	}
	return nil
}

// needs says which rights open a link of a client to address, each alone.
func (l *link) needs(address string) (oneOf sas.Rights) {
	switch {
	case isManagement(address):
		return sas.All // each operation asks for its own: see gate
	case l.sender == client:
		return sas.Send
	}
	return sas.Listen
}

// leads returns the addresses that a link of a client is about.
func leads(a *amqp.Attach) (addresses []string) {
	switch {
	case a.Role == amqp.RoleReceiver && a.Source != nil && a.Source.Address != "":
		addresses = append(addresses, a.Source.Address)
	case a.Role == amqp.RoleSender && a.Target != nil && a.Target.Address != "":
		addresses = append(addresses, a.Target.Address)
	}
	if via := textProperty(a.Properties, transferDestination); via != "" {
		addresses = append(addresses, via)
	}
	return addresses
}

// authorizeLocked asks for the tokens that a link needs upstream. It reports true
// if the attach has to wait for them; then done is called, from another
// goroutine, with the refusal of the link if there is to be one.
func (c *conn) authorizeLocked(l *link, done func(*amqp.Error)) (wait bool) {
	left := 0 // of the tokens to wait for; guarded by the mutex, which all calls of one need
	var refusal *amqp.Error
	for _, address := range l.leads {
		claim, inEffect := c.auth.keeper.need(address, func(err *amqp.Error) {
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
// the relay's patience with one that has proven nothing.
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
