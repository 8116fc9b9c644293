// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"overdue/internal/amqp"
	"overdue/internal/amqp/client"
	"overdue/internal/servicebus/sas"
)

// A keeper has one connection, made when it is wanted and made again after it has ended.
type keeper struct {
	open    func(context.Context) (*wire, error)
	dialing turn // all who come meanwhile want that very connection

	mu     sync.Mutex
	conn   *conn
	closed bool
	down   error     // why the last dial failed; nil: it did not
	tried  time.Time // when it had
}

// conn is one connection and what was negotiated on it.
type conn struct {
	wire *wire

	claiming turn // $cbs takes one pair of links per connection
	mu       sync.Mutex
	claims   map[string]claimed
	wanted   map[string]int // callers that wait for an audience
}

// claimed is what the broker has accepted for an audience.
type claimed struct {
	until    time.Time       // when to claim it again; zero: never
	replaced <-chan struct{} // of the token
}

// lasts reports whether there is no need for another token yet.
func (c claimed) lasts() bool {
	select {
	case <-c.replaced:
		return false
	default:
		return c.until.IsZero() || time.Now().Before(c.until)
	}
}

// dialRest is the time between two dials that fail, even if a connection is wanted meanwhile, and
// however long it has been down. The first call after the namespace has come back finds it within
// that time. Calls in between get the error of the last.
const dialRest = 400 * time.Millisecond

// claimMargin is how long before its expiry a token is replaced.
const claimMargin = 5 * time.Minute

// turn lets one through at a time. Unlike a mutex it can be waited for under a context, and a
// goroutine that waits for it does not stop fake time.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { <-t }

// connect is the connection that is up, or a new one.
func (k *keeper) connect(ctx context.Context) (*conn, error) {
	if err := k.dialing.take(ctx); err != nil {
		return nil, err
	}
	defer k.dialing.give()
	if c, err := k.current(); c != nil || err != nil {
		return c, err
	}
	if err := k.resting(); err != nil {
		return nil, err
	}
	opened, err := k.open(ctx)
	c := &conn{wire: opened, claiming: newTurn(), claims: map[string]claimed{}, wanted: map[string]int{}}
	k.mu.Lock()
	if k.down, k.tried = nil, time.Now(); ctx.Err() == nil {
		k.down = err // else it is the caller that has no more time
	}
	closed := k.closed
	if err == nil && !closed {
		k.conn = c
	}
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if closed {
		return nil, errors.Join(ErrClosed, opened.Close()) // nobody uses it
	}
	return c, nil
}

// resting is why the last dial failed, while another is not tried yet.
func (k *keeper) resting() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down != nil && time.Since(k.tried) < dialRest {
		return k.down
	}
	return nil
}

// current is the connection that is up, nil when there is none.
func (k *keeper) current() (*conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, ErrClosed
	}
	if k.conn != nil {
		select {
		case <-k.conn.wire.Done():
			k.conn = nil
		default:
		}
	}
	return k.conn, nil
}

// drop forgets c after an error that leaves its state in doubt.
func (k *keeper) drop(c *conn) {
	k.mu.Lock()
	if k.conn == c {
		k.conn = nil
	}
	k.mu.Unlock()
	_ = c.wire.Close() // it is in doubt already
}

// close closes the connection. None is made any more.
func (k *keeper) close() error {
	k.mu.Lock()
	c := k.conn
	k.conn, k.closed = nil, true
	k.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.wire.Close()
}

// claim makes sure that c may use audience: it puts a token to $cbs unless one that still lasts was
// put before. One caller at a time does so, for itself and for those that wait. The same request
// claims others, which the caller will use next. It is their first use that shows a refusal.
func (c *conn) claim(ctx context.Context, tokens TokenSource, audience string, others ...string) error {
	if c.has(audience) {
		return nil
	}
	for _, a := range append(others, audience) {
		c.want(a, 1)
		defer c.want(a, -1)
	}
	if err := c.claiming.take(ctx); err != nil {
		return err
	}
	defer c.claiming.give()
	if c.has(audience) {
		return nil
	}
	var claims []claim
	var failed error // for this audience; the callers that wait for others try themselves
	for _, a := range c.missing(audience) {
		token, err := tokens.Token(ctx, a)
		if err == nil {
			claims = append(claims, claim{a, token})
		} else if a == audience {
			return fmt.Errorf("%w for %s: %w", errNoToken, audience, err)
		}
	}
	err := c.wire.putTokens(ctx, claims, func(i int, err error) {
		if err == nil {
			c.accept(claims[i])
		} else if claims[i].audience == audience {
			failed = err
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("link: put a token for %s: %w", audience, err)
	}
	return nil
}

// maxClaims bounds the tokens that are put at once.
const maxClaims = 32

// missing returns audience, and others that callers wait for.
func (c *conn) missing(audience string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []string{audience}
	for a := range c.wanted {
		if len(all) == maxClaims {
			break
		}
		if a != audience && !c.hasLocked(a) {
			all = append(all, a)
		}
	}
	return all
}

func (c *conn) has(audience string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasLocked(audience)
}

func (c *conn) hasLocked(audience string) bool {
	accepted, ok := c.claims[audience]
	return ok && accepted.lasts()
}

// accept records that the broker has accepted a token.
func (c *conn) accept(put claim) {
	var until time.Time
	if !put.token.Expires.IsZero() {
		until = put.token.Expires.Add(-claimMargin)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims[put.audience] = claimed{until, put.token.Replaced}
}

// want counts the callers that wait for audience.
func (c *conn) want(audience string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wanted[audience] += n; c.wanted[audience] == 0 {
		delete(c.wanted, audience)
	}
}

// Token is a claim to use one audience.
type Token struct {
	Value   string
	Type    string    // "servicebus.windows.net:sastoken" or "jwt"
	Expires time.Time // zero: it cannot be renewed and is used as long as it lasts

	// Replaced is closed when the source begins to make others: see [ReplaceableTokens]. nil: never.
	Replaced <-chan struct{}
}

// Authorization is the token as a header of that name has it.
func (t Token) Authorization() string {
	if t.Type == typeJWT {
		return "Bearer " + t.Value
	}
	return t.Value
}

// A TokenSource makes tokens for audiences such as amqps://contoso.servicebus.windows.net/orders.
type TokenSource interface {
	Token(ctx context.Context, audience string) (Token, error)
}

const (
	typeSAS = "servicebus.windows.net:sastoken"
	typeJWT = "jwt"

	sasLifetime = time.Hour
	// entraScope is what Service Bus asks a Microsoft Entra token to be made for.
	entraScope = "https://servicebus.azure.net/.default"
)

// SAS signs tokens with a shared access key.
func SAS(keyName, key string) TokenSource { return sasKey{keyName, key} }

type sasKey struct{ name, key string }

func (k sasKey) Token(_ context.Context, audience string) (Token, error) {
	expires := time.Now().Add(sasLifetime).Truncate(time.Second)
	return Token{Value: sas.Make(k.name, k.key, audience, expires), Type: typeSAS, Expires: expires}, nil
}

// Signature uses a shared access signature that somebody else made.
func Signature(value string) TokenSource { return signature(value) }

type signature string

func (s signature) Token(context.Context, string) (Token, error) {
	return Token{Value: string(s), Type: typeSAS}, nil
}

// Credential asks c for a token of Microsoft Entra.
func Credential(c azcore.TokenCredential) TokenSource { return credential{c} }

type credential struct{ azcore.TokenCredential }

func (c credential) Token(ctx context.Context, _ string) (Token, error) {
	t, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{entraScope}})
	if err != nil {
		return Token{}, err
	}
	return Token{Value: t.Token, Type: typeJWT, Expires: t.ExpiresOn}, nil
}

// A wire is a connection, and the links to its $cbs. They stay open: opening them costs two round
// trips, and a monitor claims an entity and its sub-queues one by one.
type wire struct {
	*client.Conn

	// Of whose turn it is to claim.
	cbs   *client.Node // nil: not open
	alone bool         // several requests at once have failed: one at a time from now on
}

// A claim is a token for an audience.
type claim struct {
	audience string
	token    Token
}

// putTokens makes a request to $cbs for each claim, all of them at once, and calls put with each
// outcome. The first claim matters most: if the broker does not take several at once, there is no
// request for the others. Service Bus detaches idle links after ten minutes, so links that fail are
// opened once more.
func (w *wire) putTokens(ctx context.Context, claims []claim, put func(i int, err error)) error {
	for {
		if w.alone {
			claims = claims[:1]
		}
		kept := w.cbs != nil
		err := w.request(ctx, claims, put)
		if err == nil {
			return nil
		}
		if !kept && len(claims) > 1 && ctx.Err() == nil {
			w.alone = true
		}
		// They cannot be used any more. A second pair on the connection is refused, so they have to be
		// closed.
		if w.cbs != nil {
			w.cbs.Close(ctx)
			w.cbs = nil
		}
		if !kept || ctx.Err() != nil {
			return err
		}
	}
}

// request puts tokens over the links that are open, or opens them.
func (w *wire) request(ctx context.Context, claims []claim, put func(i int, err error)) (err error) {
	if w.cbs == nil {
		if w.cbs, err = w.Node(ctx, "$cbs"); err != nil {
			return clientError(err)
		}
	}
	requests := make([]client.Request, len(claims))
	for i, c := range claims {
		expiry := "0" // unknown
		if !c.token.Expires.IsZero() {
			expiry = strconv.FormatInt(c.token.Expires.Unix(), 10)
		}
		requests[i] = client.Request{Properties: amqp.Map{
			{Key: "operation", Value: "put-token"}, {Key: "type", Value: c.token.Type},
			{Key: "name", Value: c.audience}, {Key: "expiration", Value: expiry},
		}, Body: amqp.AppendString(nil, c.token.Value)}
	}
	return clientError(w.cbs.CallEach(ctx, requests, func(i int, a *amqp.Answer) error {
		put(i, status(a))
		return nil
	}))
}

// status returns how a request ended, as an error.
func status(a *amqp.Answer) error {
	if a.Status/100 == http.StatusOK/100 {
		return nil
	}
	return &StatusError{Code: int(a.Status), Condition: string(a.Condition), Description: a.Description}
}
