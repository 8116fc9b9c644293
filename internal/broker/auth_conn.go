// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/server"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
	"overdue/internal/servicebus/sas"
)

// tokenTimeout is how long a connection may live until it has put a token.
const tokenTimeout = server.FirstTokenTimeout

// maxGrants bounds the audiences of one connection; a client needs two per
// entity.
const maxGrants = 20_000

// access is what one connection has proven to be allowed, by audience. It is
// used by the read loop and by the responder of $cbs.
type access struct {
	b    *Broker
	peer *server.Conn

	mu      sync.Mutex
	over    bool
	waiting bool             // for the first token
	grants  map[string]grant // by key(path)
	timer   *time.Timer      // a wake-up: the first token has to be there, or one may have expired
	due     time.Time        // of timer
	home    home
}

// begin takes in what the peer has proven by SASL, and starts waiting for its
// first token.
func (a *access) begin(b *Broker, peer *server.Conn) {
	a.b, a.peer = b, peer
	a.home.begin(b, peer)
	if !b.Secured() {
		peer.Admit()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.grants = make(map[string]grant)
	if r := b.plainRule(peer.SASL()); r != nil {
		a.grants[""] = grant{claims: r.claims()}
		peer.Admit()
		return
	}
	a.waiting = true
	a.armLocked(time.Now().Add(tokenTimeout))
}

func (a *access) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	if a.timer != nil {
		a.timer.Stop()
	}
}

// put adds what a token has proven for path. The latest one counts.
func (a *access) put(path string, g grant) *amqp.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return nil
	}
	if _, again := a.grants[key(path)]; !again && len(a.grants) >= maxGrants {
		return amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "There are tokens for %d audiences on this connection.", len(a.grants))
	}
	a.grants[key(path)] = g
	if a.waiting {
		a.waiting = false
		a.armLocked(g.expires)
	} else if a.due.IsZero() || !g.expires.IsZero() && g.expires.Before(a.due) {
		a.armLocked(g.expires)
	}
	return nil
}

// may reports whether one of the claims is proven for path: by a token for it or
// for something that it lies below.
func (a *access) may(path string, oneOf sas.Rights) bool {
	if !a.b.Secured() {
		return true
	}
	now, owner := time.Now(), ownerOf(path)
	a.mu.Lock()
	defer a.mu.Unlock()
	for p := key(path); ; {
		if g, ok := a.grants[p]; ok && g.claims&oneOf != 0 && g.holds(now) && g.opens(owner) {
			return true
		}
		if p == "" {
			return false
		}
		p = p[:max(strings.LastIndexByte(p, '/'), 0)]
	}
}

// armLocked sets the timer; the zero time stops it.
func (a *access) armLocked(due time.Time) {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if a.due = due; !due.IsZero() {
		a.timer = time.AfterFunc(time.Until(due), a.checkExpiry)
	}
}

// checkExpiry forgets the tokens that have expired, and parts with the links that are
// no longer allowed. A client that has renewed its token keeps them.
func (a *access) checkExpiry() {
	now := time.Now()
	a.mu.Lock()
	if a.over {
		a.mu.Unlock()
		return
	}
	never := a.waiting
	var last, next time.Time // to expire
	for p, g := range a.grants {
		switch {
		case !g.holds(now):
			delete(a.grants, p)
			if g.expires.After(last) {
				last = g.expires
			}
		case !g.expires.IsZero() && (next.IsZero() || g.expires.Before(next)):
			next = g.expires
		}
	}
	a.armLocked(next)
	a.mu.Unlock()
	if never {
		a.peer.Close(amqp.Errorf(amqp.ErrCondUnauthorizedAccess,
			"The connection was closed: no valid token was put within %v of its opening. %s", tokenTimeout, tracking(noSystemTracker)))
		return
	}
	for _, l := range a.peer.Links() {
		class, err := rights.Classify(l.Attach())
		if err == nil && slices.ContainsFunc(class.Needs, func(n rights.Need) bool { return !a.may(n.Path, n.OneOf) }) {
			l.Detach(amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "%s %s", sas.Expired(last), tracking(noSystemTracker)))
		}
	}
}

// admit says what a link is, or why it is not let in. It comes before the search
// for the entity, as in the service: a client without the right does not learn whether it exists.
func (c *conn) admit(at *amqp.Attach) (rights.Class, *amqp.Error) {
	class, err := rights.Classify(at)
	if err != nil {
		return class, err
	}
	if len(class.Needs) > 0 || class.Kind == rights.Coordinator {
		c.settle()
		c.ns.host.last.Store(new(c.peer.Hostname()))
	}
	return class, c.lacks(&class)
}

// lacks refuses a link that needs a claim which is not proven, nil when there is
// none.
func (c *conn) lacks(class *rights.Class) *amqp.Error {
	for _, n := range class.Needs {
		if !c.access.may(n.Path, n.OneOf) {
			return c.denied(n.Path, n.OneOf)
		}
	}
	return nil
}

func (c *conn) denied(path string, oneOf sas.Rights) *amqp.Error {
	return amqp.Errorf(amqp.ErrCondUnauthorizedAccess,
		"Unauthorized access. '%v' claim(s) are required to perform this operation. Resource: 'sb://%.260s/%.300s'. %s",
		oneOf, c.peer.Hostname(), path, tracking(noSystemTracker))
}

// guarded asks for the claims of an operation before f answers.
func (c *conn) guarded(a address.Address, f answerer) answerer {
	if !c.b.Secured() {
		return f
	}
	path := a.String()
	return func(req *request) response {
		// An unknown operation needs no claim: f refuses it for being unknown.
		if oneOf, known := rights.ForOperation(req.operation); known && !c.access.may(path, oneOf) {
			return refused(c.denied(path, oneOf))
		}
		return f(req)
	}
}

// authenticator judges what a client says by SASL: with PLAIN the name and the
// key of a rule of the namespace. All other mechanisms say nothing here; their
// clients put tokens.
func (b *Broker) authenticator() func(amqp.Symbol, []byte) bool {
	if !b.Secured() {
		return nil
	}
	return func(mechanism amqp.Symbol, response []byte) bool {
		return mechanism != plain || b.plainRule(mechanism, response) != nil
	}
}

const plain amqp.Symbol = "PLAIN"

// plainRule returns the rule whose name and key are presented.
func (b *Broker) plainRule(mechanism amqp.Symbol, response []byte) *AuthorizationRule {
	parts := bytes.Split(response, []byte{0}) // who to be, who one is, password
	if mechanism != plain || len(parts) != 3 {
		return nil
	}
	return b.ruleOf(string(parts[1]), string(parts[2]))
}

// ruleOf returns the rule of that name whose key is presented. It tells by its time nothing of the
// key.
func (b *Broker) ruleOf(name, presented string) *AuthorizationRule {
	keys := *b.keys.Load()
	for i := range keys {
		r := &keys[i]
		if strings.EqualFold(r.KeyName, name) && (sas.SameKey(presented, r.PrimaryKey) || sas.SameKey(presented, r.SecondaryKey)) {
			return r
		}
	}
	return nil
}
