// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/listener/accept"
	"overdue/internal/servicebus/sas"
)

const (
	// admissionTimeout is how long a client may stay without proof. The service waits as long for
	// a first token.
	admissionTimeout = accept.FirstTokenTimeout
	// maxGrants bounds the audiences of one client; it needs two per entity.
	maxGrants = 20_000
)

// grants are the rights that a client has proven, if the relay checks them. nil grants allow
// everything.
type grants struct {
	admit   func(Credentials) (sas.Grant, error)
	remote  net.Addr
	lapsed  func(never bool) // called when a grant has expired, or, with never, when no proof came in time
	proof   func()           // called after each good proof; must not block
	mu      sync.Mutex
	over    bool
	waiting bool                 // for the first proof
	proven  map[string]sas.Grant // by path in lower case
	timer   *time.Timer          // a wake-up
	due     time.Time            // of timer
}

// newGrants returns the empty grants of a client. lapsed is called without locks, from a
// goroutine of its own. The owner then closes a connection that has never proven anything, or
// detaches the links that have lost their right.
func newGrants(admit func(Credentials) (sas.Grant, error), remote net.Addr, lapsed func(never bool)) *grants {
	if admit == nil {
		return nil
	}
	return &grants{admit: admit, remote: remote, lapsed: lapsed, proven: make(map[string]sas.Grant)}
}

// onProof sets f to be called at every good proof, under g's lock. Call it before the first.
func (g *grants) onProof(f func()) {
	if g != nil {
		g.proof = f
	}
}

// wait starts the time limit for the first proof, unless one has come.
func (g *grants) wait() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.proven) == 0 {
		g.waiting = true
		g.armLocked(time.Now().Add(admissionTimeout))
	}
}

// wanting reports whether the client has proven nothing yet.
func (g *grants) wanting() bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

func (g *grants) close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	g.armLocked(time.Time{})
}

// password checks a name and a password of SASL PLAIN.
func (g *grants) password(username, password string) error {
	if g == nil {
		return nil
	}
	proven, err := g.admit(Credentials{Username: username, Password: password, RemoteAddr: g.remote})
	if err != nil {
		return err
	}
	g.put(proven) // the first of all
	return nil
}

// token checks a token put for an audience. The error comes from admit, or is an *amqp.Error when
// there are too many grants.
func (g *grants) token(req *tokenRequest) error {
	if g == nil {
		return nil
	}
	proven, err := g.admit(Credentials{Audience: req.audience, Token: req.token, TokenType: req.kind, RemoteAddr: g.remote})
	if err != nil {
		return err
	}
	if !g.put(proven) {
		return amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "There are tokens for %d audiences on this connection.", maxGrants)
	}
	return nil
}

func (g *grants) put(proven sas.Grant) bool {
	path, expires := strings.ToLower(strings.Trim(proven.Path, "/")), proven.Expires
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, again := g.proven[path]; !again && len(g.proven) >= maxGrants || len(path) > maxAddress {
		return false
	}
	g.proven[path] = proven
	if g.proof != nil {
		g.proof()
	}
	if g.waiting || !expires.IsZero() && (g.due.IsZero() || expires.Before(g.due)) {
		g.waiting = false
		g.armLocked(expires)
	}
	return true
}

// refuse returns the error for a client that has none of the rights oneOf at a plain path, or nil
// if it has one.
func (g *grants) refuse(path string, oneOf sas.Rights) *amqp.Error {
	if g == nil {
		return nil
	}
	now, some := time.Now(), false
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := strings.ToLower(path); ; {
		proven := g.proven[p]
		if proven.Holds(now, oneOf) {
			return nil
		}
		some = some || proven.Holds(now, sas.All)
		if p == "" {
			break
		}
		p = p[:max(strings.LastIndexByte(p, '/'), 0)]
	}
	if some {
		return amqp.Errorf(amqp.ErrCondUnauthorizedAccess, "%v", sas.Missing(oneOf, path))
	}
	return amqp.Errorf(amqp.ErrCondUnauthorizedAccess,
		"Unauthorized access. A token that is in effect is required to perform this operation. Resource: '%.300s'.", path)
}

// judge answers a request to $cbs, if the relay checks the tokens of clients. It does not block.
func (g *grants) judge(req *tokenRequest) response {
	switch {
	case req.operation == "":
		return failure(statusBadRequest, condArgumentError, "The request names no operation.")
	case req.operation != opPutToken:
		return failure(statusNotImplemented, amqp.ErrCondNotImplemented, "The operation '%.128s' is not supported.", req.operation)
	case req.audience == "":
		return failure(statusBadRequest, condArgumentError, "The put-token request names no audience.")
	}
	err := g.token(req)
	var full *amqp.Error
	switch {
	case err == nil:
		return response{status: statusAccepted, description: "Accepted"}
	case errors.As(err, &full):
		return failure(statusForbidden, full.Condition, "%s", full.Description)
	}
	return failure(statusUnauthorized, condAuthFailed, "%s", err)
}

// armLocked sets the timer; the zero time stops it.
func (g *grants) armLocked(due time.Time) {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if g.due = due; !due.IsZero() && !g.over {
		g.timer = time.AfterFunc(time.Until(due), g.dropExpired)
	}
}

// dropExpired drops expired grants.
func (g *grants) dropExpired() {
	now := time.Now()
	var next time.Time
	g.mu.Lock()
	if g.over || now.Before(g.due) {
		g.mu.Unlock()
		return
	}
	for p, proven := range g.proven {
		switch until := proven.Expires; {
		case until.IsZero():
		case !now.Before(until):
			delete(g.proven, p)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	never := g.waiting
	g.armLocked(next)
	g.mu.Unlock()
	g.lapsed(never)
}
