// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"overdue/internal/amqp"
	amqpclient "overdue/internal/amqp/client"
	"overdue/internal/listener/accept"
	"overdue/internal/servicebus/rights"
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

// A tokenRequest is a client's request to $cbs. It shares no memory with the payload that it was
// read from.
type tokenRequest struct {
	returnAddress
	operation string
	audience  string
	kind      string // of token
	token     string
	ambiguous *amqp.Error // it states something twice
}

// readTokenRequest reads a message sent to $cbs. It returns an error for messages that cannot be
// answered; the error quotes nothing of them.
func readTokenRequest(payload []byte) (tokenRequest, *amqp.Error) {
	m, err := amqp.ParseMessage(payload)
	if err == nil {
		err = amqp.CheckProperties(m.Properties)
	}
	if err != nil {
		return tokenRequest{}, amqp.Errorf(amqp.ErrCondDecodeError, "The request is malformed.")
	}
	var req tokenRequest
	req.returnAddress = returnAddressOf(&m)
	req.ambiguous = rights.AmbiguousRequest(&m)
	req.operation = textProperty(m.ApplicationProperties, "operation")
	req.audience = textProperty(m.ApplicationProperties, "name")
	req.kind = textProperty(m.ApplicationProperties, "type")
	if r, ok := m.Value(); ok {
		req.token = textOrBytes(r)
	}
	return req, nil
}

// textProperty returns a string property, "" when there is none.
func textProperty(properties amqp.Raw, name string) string {
	r, ok := amqp.MapLookup(properties, name)
	if !ok {
		return ""
	}
	return r.String()
}

// textOrBytes returns a string, or the bytes of a binary as one: Python puts a token as binary.
func textOrBytes(r amqp.Reader) string {
	probe := r
	if s := r.String(); r.Err() == nil {
		return s
	}
	if b := probe.Binary(); probe.Err() == nil {
		return string(b)
	}
	return ""
}

// errPairLost is wrapped by the error of a put whose links ended before the answer came.
var errPairLost = errors.New("the links to $cbs were lost")

const (
	addressCBS = "$cbs"
	opPutToken = "put-token"
)

// A pair is the relay's own pair of links to $cbs on one upstream connection, on a session that
// no client sees. The first token opens it. The service ends links that idle; the next token
// opens the pair again.
type pair struct {
	conn *amqpclient.Conn // over the transport of upstream
	turn chan struct{}    // has the token of the put that opens or drops the links
	node *amqpclient.Node // nil: the links are not open
}

func newPair(conn *amqpclient.Conn) *pair { return &pair{conn: conn, turn: make(chan struct{}, 1)} }

// put puts a token for audience and returns the answer. The error wraps
// errPairLost when the links ended meanwhile.
//
// The relay puts a token of its own for each that a client puts, and the client gets this answer:
// SDKs learn from $cbs that an entity does not exist. That of Go has an error code for it there,
// and none for a link that is refused with amqp:not-found.
func (p *pair) put(ctx context.Context, audience string, t Token) (response, error) {
	node, err := p.open(ctx)
	if err != nil {
		return response{}, err
	}
	expiry := "0" // unknown
	if !t.Expires.IsZero() {
		expiry = strconv.FormatInt(t.Expires.Unix(), 10)
	}
	a, err := node.Call(ctx, amqpclient.Request{
		Properties: amqp.Map{
			{Key: "operation", Value: opPutToken},
			{Key: "type", Value: t.Type},
			{Key: "name", Value: audience},
			{Key: "expiration", Value: expiry},
		},
		Body: amqp.AppendString(nil, t.Text),
	})
	if err == nil {
		return response{a.Status, a.Description, a.Condition}, nil
	}
	return response{}, p.lost(ctx, node, err)
}

// open returns the links, and attaches them if they are not there.
func (p *pair) open(ctx context.Context) (*amqpclient.Node, error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.turn }()
	for p.node == nil {
		var err error
		p.node, err = p.conn.Node(ctx, addressCBS)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, amqpclient.ErrNoChannel):
			return nil, fmt.Errorf("%w: %w", errPairLost, err)
		default: // upstream has yet to end the session of the links before
			select {
			case <-p.conn.Freed():
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return p.node, nil
}

// lost returns the error of a put, and drops the links if they have ended.
func (p *pair) lost(ctx context.Context, node *amqpclient.Node, err error) error {
	var ended *amqpclient.EndedError
	var rejected *amqp.Error
	switch {
	case errors.As(err, &ended):
		p.turn <- struct{}{} // the put that has it does not wait for this one
		if p.node == node {
			p.node = nil
			node.Close(ctx)
		}
		<-p.turn
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &rejected):
		return err
	}
	return fmt.Errorf("%w: %w", errPairLost, err)
}
