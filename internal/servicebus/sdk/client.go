// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	// failureTimeout is how long a client may fail, or keep an operation waiting, before it is
	// replaced.
	failureTimeout = 15 * time.Second
	// Between two renewals there is a pause, which doubles from shortestPause up to longestPause and
	// begins again with a client that has lasted.
	shortestPause = time.Second
	longestPause  = time.Minute
	lasted        = 5 * time.Minute
	// replacedGracePeriod is how long what is under way on a client that was replaced may take to end.
	replacedGracePeriod = 30 * time.Second
	// maxReplaced bounds the clients that were replaced and have connections still.
	maxReplaced = 4
	// closeTime bounds the goodbye to a client or a link.
	closeTime = 5 * time.Second
	// hangTime is how long after the end of its context an operation may still hold locks of the SDK.
	hangTime = 5 * time.Second
	// againPause is between two tries with a client that is not replaced yet.
	againPause = 250 * time.Millisecond
)

// A Dialer is how a client of the SDK comes to its connections.
type Dialer = func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error)

// Config says how clients are made.
type Config struct {
	// Dial opens a connection to the namespace on which AMQP can begin; TLS, if any, is done.
	Dial func(context.Context) (net.Conn, error)
	// Make makes a client of the SDK that dials with dial, its NewWebSocketConn.
	Make func(dial Dialer) (*azservicebus.Client, error)
	// Renewed is called with the reason when a client was replaced. It must not block. May be nil.
	Renewed func(why error)
}

// A Client is a client of the SDK, then another one in its place. It is safe for concurrent use.
type Client struct {
	cfg     Config
	current atomic.Pointer[generation]

	mu       sync.Mutex
	closed   bool
	renewed  time.Time // when current was made; zero: it is the first
	pause    time.Duration
	replaced []*generation // those that still have connections, oldest first
	closing  sync.WaitGroup
}

// A generation is one client of the SDK and its connections.
type generation struct {
	sdk     *azservicebus.Client
	failing atomic.Int64  // since when nothing has succeeded, in Unix nanoseconds; 0 = the last did
	retire  chan struct{} // closed when its time is over

	mu      sync.Mutex
	retired bool
	dialled bool // the last dial that has ended succeeded
	dialing int  // dials that have not ended
	conns   map[*conn]struct{}
}

// New makes a Client. It does not dial yet.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg}
	g, err := c.make()
	if err != nil {
		return nil, err
	}
	c.current.Store(g)
	return c, nil
}

// make makes a client of the SDK.
func (c *Client) make() (*generation, error) {
	g := &generation{retire: make(chan struct{}), conns: map[*conn]struct{}{}}
	var err error
	g.sdk, err = c.cfg.Make(func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		return g.dial(ctx, c.cfg.Dial)
	})
	return g, err
}

// Current is the client to use. It MUST be asked for each time, and what is made with it, senders
// and receivers, is of use only as long as it is.
func (c *Client) Current() *azservicebus.Client { return c.current.Load().sdk }

// Watch begins an operation on used, which came from Current. done MUST be called with what became
// of it, once; it reports whether that is only the end of a connection that the client did not
// replace, whatever err says. When the operation has not ended some time after its context, the
// connections of the client are cut: what it waits for does not heed the context.
func (c *Client) Watch(ctx context.Context, used *azservicebus.Client) (done func(err error) (lost bool)) {
	g, began := c.current.Load(), time.Now()
	if g.sdk != used {
		return func(error) bool { return false } // it has been replaced meanwhile
	}
	stop := func() bool { return true }
	if deadline, ok := ctx.Deadline(); ok {
		stop = time.AfterFunc(time.Until(deadline)+hangTime, func() {
			c.renew(g, errHangs)
			g.cut()
		}).Stop
	}
	return func(err error) bool {
		stop()
		if err == nil {
			g.succeeded()
			return false
		}
		why := g.beyondRecovery(err, began)
		if why != nil {
			c.renew(g, why)
		}
		return errors.Is(why, ErrConnectionEnded)
	}
}

// Do has f do something with the current client, which MUST end with ctx. The client may fail and
// not the operation, since its connection has ended, or it was replaced and closed meanwhile. In
// that case f is called again with the current one as long as ctx has time. Messages that f sends
// may then arrive twice, as with the tries of the SDK. Without a deadline there is one try. When
// time runs out over this, the error is [ErrConnectionEnded].
func (c *Client) Do(ctx context.Context, f func(context.Context, *azservicebus.Client) error) error {
	for {
		used := c.Current()
		done := c.Watch(ctx, used)
		err := f(ctx, used)
		lost := done(err)
		if err == nil || !lost && (ctx.Err() != nil || c.Current() == used || answered(err)) {
			return err
		}
		ended := fmt.Errorf("%w: %v", ErrConnectionEnded, err) //nolint:errorlint // the condition with which a connection was closed says nothing of what was asked, nor may it be found
		if _, bounded := ctx.Deadline(); !bounded {
			return ended
		}
		pause := time.Duration(0)
		if c.Current() == used {
			pause = againPause // it was replaced too often lately
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return ended
		}
	}
}

// renew replaces old, unless that was done, or has been too often lately.
func (c *Client) renew(old *generation, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.current.Load() != old {
		return
	}
	age := time.Since(c.renewed)
	if age < c.pause {
		return
	}
	g, err := c.make()
	if err != nil {
		return // it is made of the same as the first, whose making failed then, too
	}
	c.pause = min(max(2*c.pause, shortestPause), longestPause)
	if age > lasted {
		c.pause = shortestPause
	}
	c.renewed = time.Now()
	c.current.Store(g)
	if c.replaced = append(c.replaced, old); len(c.replaced) > maxReplaced {
		close(c.replaced[0].retire)
		c.replaced = c.replaced[1:]
	}
	c.closing.Add(1)
	go c.bury(old)
	if c.cfg.Renewed != nil {
		c.cfg.Renewed(why)
	}
}

// bury closes a client that was replaced, after some time for what is under way on it. One without
// a connection has nothing under way, and may spin: the SDK asks a link again at once whose
// connection was closed with server-busy.
func (c *Client) bury(g *generation) {
	defer c.closing.Done()
	wait := replacedGracePeriod
	if g.idle() {
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.retire:
	}
	c.mu.Lock()
	for i, r := range c.replaced {
		if r == g {
			c.replaced = append(c.replaced[:i:i], c.replaced[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
	g.end() // first: the SDK closes its links with locks that somebody may hold who waits for an answer
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = g.sdk.Close(ctx) // its connections are closed already
}

// Close closes the current client in order as far as ctx allows, and those before it at once.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for _, g := range c.replaced {
			close(g.retire)
		}
		c.replaced = nil
	}
	c.mu.Unlock()
	g := c.current.Load()
	ended := make(chan error, 1)
	go func() {
		err := g.sdk.Close(ctx)
		c.closing.Wait()
		ended <- err
	}()
	select {
	case err := <-ended:
		g.end()
		return err
	case <-ctx.Done():
		g.end()
		return fmt.Errorf("sdk: close: %w", context.Cause(ctx))
	}
}

// later does what may have to wait for a lock of the SDK.
func (c *Client) later(do func(context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return // with it, all is closed
	}
	c.closing.Add(1)
	go func() {
		defer c.closing.Done()
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		do(ctx)
	}()
}

// errRetired is what a client that was replaced gets when it dials.
var errRetired = errors.New("sdk: this client has been replaced")

func (g *generation) dial(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	g.mu.Lock()
	g.dialing++
	g.mu.Unlock()
	nc, err := dial(ctx)
	c := &conn{Conn: nc, g: g}
	g.mu.Lock()
	g.dialing--
	g.dialled = err == nil
	retired := g.retired
	if err == nil && !retired {
		g.conns[c] = struct{}{}
	}
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if retired {
		_ = nc.Close() // nothing was said over it
		return nil, errRetired
	}
	return c, nil
}

// sitsOnDead reports whether the client had a connection, which has ended, and has not tried to
// open another.
func (g *generation) sitsOnDead() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dialled && g.idleLocked()
}

// idle reports whether the client has no connection.
func (g *generation) idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.idleLocked()
}

func (g *generation) idleLocked() bool { return g.dialing == 0 && len(g.conns) == 0 }

// cut closes the connections that there are.
func (g *generation) cut() {
	g.mu.Lock()
	conns := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	g.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // that is all there is to it
	}
}

// end closes the connections, and lets no other be opened.
func (g *generation) end() {
	g.mu.Lock()
	g.retired = true
	g.mu.Unlock()
	g.cut()
}

// A conn is a connection of a generation.
type conn struct {
	net.Conn
	g *generation
}

func (c *conn) Close() error {
	c.g.mu.Lock()
	delete(c.g.conns, c)
	c.g.mu.Unlock()
	return c.Conn.Close()
}
