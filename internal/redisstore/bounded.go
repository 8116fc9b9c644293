// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
)

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// boundedDial has every connection of dial fail where Redis sends more than any of our questions is
// answered with: one that is hostile or broken costs bounded memory, and is as one that is gone.
// That goes for the connections to sentinels, for those that listen, and for what is said while a
// connection begins.
func boundedDial(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &boundedConn{Conn: nc, meter: replyMeter{bounds: ourBounds}, since: time.Now()}
		if raw, ok := nc.(syscall.Conn); ok {
			return &boundedSocket{c, raw}, nil
		}
		return c, nil
	}
}

// A boundedConn is a connection to Redis of which no more is read than an answer can have.
type boundedConn struct {
	net.Conn

	mu     sync.Mutex
	meter  replyMeter
	read   int       // bytes since the last question
	since  time.Time // when that was
	failed error     // nothing is read any more
}

// Write asks. Its answers have bounds of their own.
func (c *boundedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.resetLocked()
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *boundedConn) resetLocked() {
	c.meter.reset()
	c.read, c.since = 0, time.Now()
}

func (c *boundedConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	failed := c.failed
	c.mu.Unlock()
	if failed != nil {
		return 0, failed
	}
	n, err := c.Conn.Read(b)
	if n == 0 {
		return n, err
	}
	c.mu.Lock()
	c.failed = c.countLocked(b[:n])
	failed = c.failed
	c.mu.Unlock()
	if failed != nil {
		_ = c.Close()    // what it would send yet is of no use either
		return 0, failed // and no byte of the header that states too much
	}
	return n, err
}

func (c *boundedConn) countLocked(b []byte) error {
	// A listener asks rarely and hears often. No answer takes as long as callMost, so later bytes
	// are none.
	if !c.meter.midway() && time.Since(c.since) > callMost {
		c.resetLocked()
	}
	if c.read += len(b); c.read > mostAnswer {
		return excess("more than %d bytes, which no answer has", mostAnswer)
	}
	return c.meter.feed(b)
}

// A boundedSocket can be asked by the client's pool whether its peer has hung up.
type boundedSocket struct {
	*boundedConn
	raw syscall.Conn
}

func (c *boundedSocket) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }
