// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of all that answers what was asked together. go-redis has none, and makes room for what a
// header states before any of it has come: with thirteen bytes, *2000000000, it ends the process.
const (
	// maxAnswer is in bytes. A page of companions that are as long as they may be has 25 MiB
	// (scanMost).
	maxAnswer = 32 << 20
	// maxElements bounds what all arrays state together, and how deep they can be. COMMAND, which a
	// cluster is asked, has 12,000 in Redis 7.0.
	maxElements = 1 << 18
	// maxHeader is longer than any length with its type.
	maxHeader = 24
)

var errAnswerTooLong = errors.New("redis sent, or announced, more than any answer has")

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// boundedDial has every connection of dial fail where Redis sends more than the answer to any of
// our questions. A server that is hostile or broken costs bounded memory, and is as one that is
// gone. That goes for the connections to sentinels, for those that listen, and for the exchange
// while a connection begins.
func boundedDial(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &boundedConn{Conn: nc}
		c.reset()
		if raw, ok := nc.(syscall.Conn); ok {
			return &boundedSocket{c, raw}, nil
		}
		return c, nil
	}
}

// A boundedConn is a connection to Redis of which no more is read than an answer can have.
type boundedConn struct {
	net.Conn

	mu       sync.Mutex
	since    time.Time // the last question
	bytes    int       // read since then
	elements int       // stated since then
	line     []byte    // the beginning of the present line
}

// Write asks. Its answers have bounds of their own.
func (c *boundedConn) Write(b []byte) (int, error) {
	c.reset()
	return c.Conn.Write(b)
}

func (c *boundedConn) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.bytes, c.elements = time.Now(), 0, 0
}

func (c *boundedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.admit(b[:n]) {
		_ = c.Close() // what it would send yet is of no use either
		return 0, errAnswerTooLong
	}
	return n, err
}

// admit reports whether b is within the bounds. It looks at each line that could be a header, in
// strings too: none of ours has lines.
func (c *boundedConn) admit(b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.since) > callMost { // a listener asks rarely and hears often
		c.since, c.bytes, c.elements = time.Now(), 0, 0
	}
	c.bytes += len(b)
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		c.line = append(c.line, line[:min(len(line), maxHeader-len(c.line))]...)
		if whole {
			c.elements += elementsStated(c.line)
			c.line = c.line[:0]
		}
		b = rest
	}
	return c.bytes <= maxAnswer && c.elements <= maxElements
}

// elementsStated returns how many elements a line announces, and more than any answer has for a
// length beyond all bounds.
func elementsStated(line []byte) int {
	if len(line) == 0 || !strings.ContainsRune("$!=*~>%|", rune(line[0])) {
		return 0
	}
	n, err := strconv.Atoi(string(bytes.TrimSuffix(line[1:], []byte{'\r'})))
	switch isLength := err == nil; {
	case errors.Is(err, strconv.ErrRange), isLength && (n > maxAnswer || len(line) == maxHeader):
		return maxElements + 1
	case !isLength, strings.ContainsRune("$!=", rune(line[0])): // a string has none
		return 0
	case line[0] == '%', line[0] == '|': // of pairs
		n *= 2
	}
	return 1 + max(n, 0)
}

// A boundedSocket can be asked by the client's pool whether its peer has hung up.
type boundedSocket struct {
	*boundedConn
	raw syscall.Conn
}

func (c *boundedSocket) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }
