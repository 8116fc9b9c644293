// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A wire is a connection of either kind: one to receive over, or one to send over.
type wire interface {
	putToken(ctx context.Context, audience string, token Token) error
	Done() <-chan struct{} // closed when it has ended
	Close() error
}

// A keeper has one connection, made when it is wanted and made again after it has ended.
type keeper[W wire] struct {
	open    func(context.Context) (W, error)
	dialing turn // all who come meanwhile want that very connection

	mu     sync.Mutex
	conn   *conn[W]
	closed bool
	down   error     // why the last dial failed; nil: it did not
	tried  time.Time // when it had
}

// conn is one connection and what was negotiated on it.
type conn[W wire] struct {
	wire W

	claiming turn                 // $cbs takes one pair of links per connection, so claims go one by one
	claims   map[string]time.Time // when to claim an audience again; of whose turn it is
}

// dialRest is between two dials that fail, even if a connection is wanted meanwhile, and however
// long it has been down: the first that is wanted after it has come back finds it within that time.
// Calls in between get the error of the last.
const dialRest = 400 * time.Millisecond

// claimMargin is how long before its expiry a token is replaced.
const claimMargin = 5 * time.Minute

// turn lets one through at a time. Unlike a mutex it can be waited for under a context.
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
func (k *keeper[W]) connect(ctx context.Context) (*conn[W], error) {
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
	c := &conn[W]{wire: opened, claiming: newTurn(), claims: map[string]time.Time{}}
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
func (k *keeper[W]) resting() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down != nil && time.Since(k.tried) < dialRest {
		return k.down
	}
	return nil
}

// current is the connection that is up, nil when there is none.
func (k *keeper[W]) current() (*conn[W], error) {
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
func (k *keeper[W]) drop(c *conn[W]) {
	k.mu.Lock()
	if k.conn == c {
		k.conn = nil
	}
	k.mu.Unlock()
	_ = c.wire.Close() // it is in doubt already
}

// close closes the connection. None is made any more.
func (k *keeper[W]) close() error {
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
// put before.
func (c *conn[W]) claim(ctx context.Context, tokens TokenSource, audience string) error {
	if err := c.claiming.take(ctx); err != nil {
		return err
	}
	defer c.claiming.give()
	if until, ok := c.claims[audience]; ok && (until.IsZero() || time.Now().Before(until)) {
		return nil
	}
	token, err := tokens.Token(ctx, audience)
	if err != nil {
		return fmt.Errorf("%w for %s: %w", errNoToken, audience, err)
	}
	if err := c.wire.putToken(ctx, audience, token); err != nil {
		return fmt.Errorf("link: put a token for %s: %w", audience, err)
	}
	var until time.Time
	if !token.Expires.IsZero() {
		until = token.Expires.Add(-claimMargin)
	}
	c.claims[audience] = until
	return nil
}
