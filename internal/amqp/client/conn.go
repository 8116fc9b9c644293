// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"overdue/internal/amqp"
)

const (
	// maxFrame bounds a frame of the peer.
	maxFrame = 64 << 10
	// idleTimeout is how long the peer may be silent. Peers send a keep-alive in half of that.
	idleTimeout = time.Minute
	// leastKeepAlive bounds the keep-alives that a peer can ask for.
	leastKeepAlive = 100 * time.Millisecond
	// maxChannel is the highest channel of Service Bus.
	maxChannel = 4999
)

// A Conn is a connection. It is safe for concurrent use.
type Conn struct {
	nc      net.Conn
	frames  *amqp.FrameReader // of the reader
	decoder amqp.Decoder      // of the reader
	done    chan struct{}     // closed when the connection has ended

	mu sync.Mutex // guards the fields below; never held while something waits
	output
	err        *EndedError // why the connection has ended; nil: it has not
	channelMax uint16
	sessions   []*session          // by our channel; nil: free
	free       []uint16            // channels of sessions that are over
	byPeer     map[uint16]*session // by the peer's channel, which it chooses itself
	heard      time.Time           // of the latest frame
	keepAlive  time.Duration       // between our frames; 0 = the peer asks for none
	timer      *time.Timer         // armed for the next keep-alive, or the end of the peer's silence
}

// Open opens a connection over nc, with SASL ANONYMOUS. host is the name of the peer in the open.
// If Open succeeds, the Conn owns nc; otherwise the caller has to close it.
func Open(ctx context.Context, nc net.Conn, host string) (*Conn, error) {
	c := &Conn{nc: nc, done: make(chan struct{}), byPeer: map[uint16]*session{}}
	c.socket.Open(nc)
	c.frames = amqp.NewFrameReader(c.source(), maxFrame)
	if err := c.handshake(ctx, host); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	c.wrote = c.heard
	c.timer = time.AfterFunc(c.untilTickLocked(c.heard), c.tick)
	go c.read() // until nc is closed, which end does
	return c, nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close closes the connection. It waits for closeTimeout at most.
func (c *Conn) Close() error { return c.end(errClosed) }

// end ends the connection for this reason, unless it has ended. It first wakes all waiting callers:
// the last frame may have to wait for a peer that does not read.
func (c *Conn) end(why error) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil
	}
	c.err = ended(why)
	for _, s := range c.sessions {
		if s != nil {
			s.endLocked(c.err)
		}
	}
	close(c.done)
	c.timer.Stop()
	p := goodbye(why)
	if p == nil || c.writing { // the writing goroutine may never return
		c.mu.Unlock()
		return c.nc.Close()
	}
	c.writing = true // so that no other goroutine writes
	c.putLocked(0, p)
	out := c.out
	c.mu.Unlock()
	_ = c.write(out, time.Now().Add(closeTimeout)) // best effort
	return c.nc.Close()
}

// fail is end for callers that cannot wait for the close: TLS and WebSockets send a goodbye to a
// peer that may be frozen.
func (c *Conn) fail(why error) {
	_ = c.end(why) // the connection has failed already
}

// read takes frames until the connection ends.
func (c *Conn) read() {
	for {
		f, err := c.frames.Next()
		if err == nil {
			err = c.take(f)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// take handles a frame.
func (c *Conn) take(f amqp.Frame) error {
	if f.Type != amqp.FrameAMQP {
		return fmt.Errorf("%w: type %d in an open connection", amqp.ErrFraming, f.Type)
	}
	var p amqp.Performative
	var payload []byte
	if len(f.Body) > 0 {
		var err error
		if p, payload, err = c.decoder.Decode(f.Body); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.frames.Ready() {
		c.heard = time.Now()
	}
	if p == nil {
		return nil // a keep-alive
	}
	if err := c.takeLocked(f.Channel, p, payload); err != nil {
		return err
	}
	if c.answers > maxAnswers {
		return violation("the peer does not read, and %d answers wait for it", c.answers)
	}
	if len(c.out) > 0 && !c.writing && c.err == nil {
		c.writing = true
		go c.writeQueued(time.Now().Add(writeTimeout)) // until it is written; see the package comment
	}
	return nil
}

func (c *Conn) takeLocked(channel uint16, p amqp.Performative, payload []byte) error {
	switch p := p.(type) {
	case *amqp.Begin:
		return c.beganLocked(channel, p)
	case *amqp.Close:
		return &EndedError{Scope: Connection, Remote: p.Error}
	}
	s := c.byPeer[channel]
	if s == nil {
		return violation("%T on channel %d, which has no session", p, channel)
	}
	switch p := p.(type) {
	case *amqp.Attach:
		return s.attachedLocked(p)
	case *amqp.Flow:
		s.flowLocked(p)
	case *amqp.Disposition:
		s.dispositionLocked(p)
	case *amqp.Transfer:
		return s.transferLocked(p, payload)
	case *amqp.Detach:
		s.detachedLocked(p)
	case *amqp.End:
		s.peerEndedLocked(p)
	default:
		return violation("%T in an open connection", p)
	}
	return nil
}

// tick sends a keep-alive if one is due, and ends the connection if the peer was silent for too
// long.
func (c *Conn) tick() {
	c.mu.Lock()
	now := time.Now()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if now.Sub(c.heard) >= idleTimeout {
		c.mu.Unlock()
		c.fail(errSilent)
		return
	}
	if c.keepAlive > 0 && now.Sub(c.wrote) >= c.keepAlive {
		if c.wrote = now; len(c.out) == 0 && !c.writing {
			c.out = amqp.AppendFrame(c.out, 0, nil, nil)
		}
	}
	c.timer.Reset(c.untilTickLocked(now))
	c.flushLocked(now.Add(writeTimeout))
}

// untilTickLocked returns the time until the next keep-alive or the end of the peer's silence.
func (c *Conn) untilTickLocked(now time.Time) time.Duration {
	next := c.heard.Add(idleTimeout).Sub(now)
	if c.keepAlive > 0 {
		next = min(next, c.wrote.Add(c.keepAlive).Sub(now))
	}
	return max(next, time.Millisecond) // never spin, even if a clock jumps
}
