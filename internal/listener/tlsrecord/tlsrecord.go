// SPDX-License-Identifier: Apache-2.0

// Package tlsrecord keeps the input buffers of TLS small.
//
// crypto/tls reads as much as its buffer takes. A record of the usual 16 KiB may begin behind
// others. Then the buffer is too short for its end and doubles for the life of the connection: to
// 40 KiB instead of 18. A sidecar has two such buffers for each client, and most clients are idle.
package tlsrecord

import (
	"encoding/binary"
	"net"
	"sync"
)

// headerLen is the length of a record's header: its type, a version, and two bytes that say how
// long the rest is.
const headerLen = 5

// Whole is nc for tls.Client or tls.Server. It keeps bytes beyond the end of a record for the next
// read, so that TLS begins every record in an empty buffer.
func Whole(nc net.Conn) net.Conn { return &conn{Conn: nc} }

// conn is read by one goroutine at a time, as TLS does.
type conn struct {
	net.Conn
	head [headerLen]byte // of the record that has come last, as far as it has
	have int             // bytes of head
	left int             // of the record behind its head
	kept *kept           // what was read beyond the end of a record; nil: nothing
}

// kept is the beginning of a record. It has no end, or it would have been given.
type kept struct {
	b     []byte
	given int
}

var keeps = sync.Pool{New: func() any { return new(kept) }}

// Read reads up to the end of a record where one ends within b, and all that there is otherwise.
func (c *conn) Read(b []byte) (int, error) {
	if k := c.kept; k != nil {
		n := copy(b, k.b[k.given:])
		if k.given += n; k.given == len(k.b) {
			c.kept = nil
			keeps.Put(k)
		}
		return n, nil
	}
	n, err := c.Conn.Read(b)
	end := c.follow(b[:n])
	if err != nil || end == 0 || end == n {
		return n, err
	}
	k := keeps.Get().(*kept)
	k.b, k.given = append(k.b[:0], b[end:n]...), 0
	c.kept = k
	return end, nil
}

// follow takes the next bytes of the stream, and returns where the last record ends that ends in
// them; 0 = none does.
func (c *conn) follow(b []byte) (end int) {
	for at := 0; at < len(b); {
		if c.have < headerLen {
			n := copy(c.head[c.have:], b[at:])
			at += n
			if c.have += n; c.have < headerLen {
				return end
			}
			c.left = int(binary.BigEndian.Uint16(c.head[3:]))
		}
		n := min(c.left, len(b)-at)
		at += n
		if c.left -= n; c.left == 0 {
			c.have, end = 0, at
		}
	}
	return end
}
