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
	// admissionTimeout is how long a client may stay that has proven nothing. The
	// service waits as long for a first token.
	admissionTimeout = accept.FirstTokenTimeout
	// maxGrants bounds the audiences of one client; it needs two per entity.
	maxGrants = 20_000
)

// grants are what a client has proven to be let in for, where the relay judges
// it. nil grants judge nothing.
type grants struct {
	admit   func(Credentials) (sas.Grant, error)
	remote  net.Addr
	lapsed  func(never bool) // something that was proven holds no longer, or nothing has been proven in time
	proof   func()           // something good was proven; must not block
	mu      sync.Mutex
	over    bool
	waiting bool                 // for the first proof
	proven  map[string]sas.Grant // by the path of what it is for, in lower case
	timer   *time.Timer          // a wake-up
	due     time.Time            // of timer
}

// newGrants returns what a client has proven, nothing yet. lapsed is called
// without locks, from a goroutine of its own: the owner closes a connection that
// has never proven anything, else detaches the links that may no longer be.
func newGrants(admit func(Credentials) (sas.Grant, error), remote net.Addr, lapsed func(never bool)) *grants {
	if admit == nil {
		return nil
	}
	return &grants{admit: admit, remote: remote, lapsed: lapsed, proven: make(map[string]sas.Grant)}
}

// onProof has f called with every good proof, under g's lock. It comes before the first.
func (g *grants) onProof(f func()) {
	if g != nil {
		g.proof = f
	}
}

// wait starts waiting for a first proof, if there was none.
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

// wanting reports whether the client has yet to prove anything.
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

// password judges what SASL PLAIN says.
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

// token judges a token put for an audience. The error is the admitter's, or an
// *amqp.Error when there is no room for more.
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

// refuse says why a client may not do at a plain path what any one of the rights
// allows, nil when it may.
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

// judge answers a request to $cbs, where the tokens of clients end here. It does
// not block.
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

// dropExpired forgets what has expired.
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
