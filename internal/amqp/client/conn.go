// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

const (
	// maxFrame bounds a frame of the peer.
	maxFrame = 64 << 10
	// idleTimeout is how long the peer may be silent. Peers send a keep-alive in half of that.
	idleTimeout = time.Minute
	// maxChannel is the highest channel of Service Bus.
	maxChannel = 4999
	// maxQueued is how many bytes may wait to be written before transfers are blocked.
	maxQueued = 1 << 20
	// maxAnswers bounds the queued frames that the peer has caused, so that a peer which sends and
	// does not read cannot fill the memory.
	maxAnswers = 1000
	// writeTimeout bounds a write to a peer that does not read.
	writeTimeout = 10 * time.Second
	leastWrite   = 100 * time.Millisecond
	// closeTimeout bounds the write of the last frame.
	closeTimeout = time.Second
)

// A Conn is a connection. It is safe for concurrent use.
type Conn struct {
	done chan struct{} // closed when the connection has ended

	mu       sync.Locker // guards the fields below; never held while something waits
	wire     *transport.Conn
	shared   bool                // the transport is another's, see Over
	freed    chan struct{}       // one token: a channel became free
	err      *EndedError         // why the connection has ended; nil: it has not
	sessions []*session          // by our channel; nil: free
	free     []uint16            // channels of sessions that are over
	byPeer   map[uint16]*session // by the peer's channel, which it chooses itself
	answers  int                 // queued frames that the peer has caused
	blocked  []*link             // with deliveries that wait for credit, window or room in the output
	transfer amqp.Transfer       // encoded by every delivery, so that none allocates it
	tag      [4]byte
	spares   []*delivery // for reuse
}

func newConn(nc net.Conn) *Conn {
	c := Over(new(transport.Conn), new(sync.Mutex))
	c.shared = false
	c.wire.Connect(nc, (*owner)(c), sync.NewCond(c.mu), transport.Config{
		MaxFrameSize: maxFrame,
		WriteTimeout: writeTimeout,
		CloseTimeout: closeTimeout,
		Silence:      idleTimeout,
	})
	return c
}

// Over returns a Conn with one session at a time, on the first channel of a transport. lock is that
// of the transport, whose owner passes on what belongs to the session, see Serves.
func Over(wire *transport.Conn, lock sync.Locker) *Conn {
	return &Conn{
		done:   make(chan struct{}),
		mu:     lock,
		wire:   wire,
		shared: true,
		freed:  make(chan struct{}, 1),
		byPeer: map[uint16]*session{},
	}
}

// Serves reports whether a frame that the peer sends on this channel is for TakeLocked. The caller
// has the lock.
func (c *Conn) Serves(channel uint16, p amqp.Performative) bool {
	if b, ok := p.(*amqp.Begin); ok {
		return b.HasRemoteChannel && b.RemoteChannel == 0
	}
	return c.byPeer[channel] != nil
}

// Open opens a connection over nc, with SASL ANONYMOUS, until ctx ends. host is the name of the
// peer in the open. If Open succeeds, the Conn owns nc; otherwise the caller has to close it.
func Open(ctx context.Context, nc net.Conn, host string) (*Conn, error) {
	c := newConn(nc)
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) }) // an error means that nc is closed already
	err := c.handshake(host)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil: // of a write
		return nil, c.err
	case err != nil:
		return nil, err
	}
	c.wire.Opened()
	go c.read() // until nc is closed, which end does
	return c, nil
}

func (c *Conn) handshake(host string) error {
	err := c.wire.Introduce(func([]amqp.Symbol) *amqp.SASLInit {
		return &amqp.SASLInit{Mechanism: transport.Anonymous, InitialResponse: []byte("anonymous")}
	})
	if err != nil {
		return err
	}
	err = c.wire.Open(&amqp.Open{
		ContainerID:  rand.Text(),
		Hostname:     host,
		MaxFrameSize: maxFrame,
		ChannelMax:   maxChannel,
		IdleTimeout:  transport.IdleMillis(idleTimeout),
	})
	if closed := (*transport.PeerClosed)(nil); errors.As(err, &closed) {
		return &EndedError{Scope: Connection, Remote: closed.Reason}
	}
	return err
}

// Freed has a token when a session has ended, so that there may be a channel for another.
func (c *Conn) Freed() <-chan struct{} { return c.freed }

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
	if e, carries := goodbye(why); carries {
		c.wire.Close(e)
	} else {
		c.wire.State = transport.Dead
	}
	closing := c.wire.State == transport.Closing
	c.mu.Unlock()
	if closing {
		cut := time.AfterFunc(closeTimeout, func() { c.wire.NetConn.Close() }) // of a peer that reads slowly
		_ = c.wire.Finish()                                                    // best effort
		cut.Stop()
	}
	return c.wire.NetConn.Close()
}

// fail is end for callers that cannot wait for the close: TLS and WebSockets send a goodbye to a
// peer that may be frozen.
func (c *Conn) fail(why error) {
	_ = c.end(why) // the connection has failed already
}

// read takes frames until the connection ends.
func (c *Conn) read() { c.fail(c.wire.ReadLoop(c.take)) }

// take handles a frame.
func (c *Conn) take(channel uint16, p amqp.Performative, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.TakeLocked(channel, p, payload)
	if err == nil && c.wire.Queued() > 0 {
		c.wire.Signal()
	}
	return err
}

// TakeLocked handles a frame. An error is a breach of the protocol, or the peer's close.
func (c *Conn) TakeLocked(channel uint16, p amqp.Performative, payload []byte) error {
	if err := c.takeLocked(channel, p, payload); err != nil {
		return err
	}
	if c.answers > maxAnswers {
		return violation("the peer does not read, and %d answers wait for it", c.answers)
	}
	return nil
}

// TakenLocked encodes blocked deliveries, now that the output of the transport has been taken.
func (c *Conn) TakenLocked() {
	c.answers = 0
	c.pumpLocked()
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

// answerLocked queues a frame that the peer has caused.
func (c *Conn) answerLocked(channel uint16, p amqp.Performative) {
	c.wire.Put(channel, p)
	c.answers++
}

// writeUntil is the deadline of a write for a caller with this context. A peer that reads has at
// least leastWrite, or a caller whose time is up would end the connection for all others.
func writeUntil(ctx context.Context) time.Time {
	now := time.Now()
	until := now.Add(writeTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		return now.Add(max(deadline.Sub(now), leastWrite))
	}
	return until
}

// owner is a Conn for its transport. Callers write what they queue, and a goroutine of its own what
// the peer causes, so the reader never writes.
type owner Conn

func (o *owner) Lock()                                        { o.mu.Lock() }
func (o *owner) Unlock()                                      { o.mu.Unlock() }
func (o *owner) Rest()                                        {}
func (o *owner) Resume(int) error                             { return nil }
func (o *owner) Due() bool                                    { return false }
func (o *owner) Prepare()                                     {}
func (o *owner) Why(error) error                              { return nil }
func (o *owner) Trace(string, uint16, amqp.Performative, int) {}

// Taken encodes blocked deliveries.
func (o *owner) Taken() { (*Conn)(o).TakenLocked() }

// Unsendable ends the connection.
func (o *owner) Unsendable(e *amqp.Error) { go (*Conn)(o).fail(e) }

// Failed ends the connection. A caller that writes must not wait for that.
func (o *owner) Failed(err error) { go (*Conn)(o).fail(err) }
