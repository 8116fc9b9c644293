// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net"

	"overdue/internal/amqp"
)

// maxIncoming bounds a frame that is decoded: what the AMQP client asks for is much less.
const maxIncoming = 1 << 20

// framed is a connection whose frames are looked at before the AMQP client reads them.
type framed struct {
	net.Conn
	// filter says how much of a frame, whose body begins at begin, the client gets, and what after it.
	filter func(frame []byte, begin int) (keep int, payload []byte)
	in     []byte // read, and not a whole frame yet
	out    []byte // for the client
	rest   []byte // of out
	blind  bool   // what came is no AMQP; the client will say so
}

// Read is for the one goroutine of the client that reads.
func (c *framed) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// fill reads once and passes on the frames that are whole.
func (c *framed) fill() error {
	const chunk = 16 << 10
	at := len(c.in)
	if cap(c.in)-at < chunk {
		c.in = append(make([]byte, 0, 2*cap(c.in)+chunk), c.in...)
	}
	n, err := c.Conn.Read(c.in[at : at+chunk])
	c.in = c.in[:at+n]
	c.out = c.out[:0]
	done := 0
	for {
		frame := c.next(c.in[done:])
		if len(frame) == 0 {
			break
		}
		done += len(frame)
		c.pass(frame)
	}
	if done > 0 { // else a frame that comes in small pieces would be copied with each
		c.in = append(c.in[:0], c.in[done:]...)
	}
	if c.rest = c.out; len(c.rest) > 0 {
		return nil // an error comes again with the next read
	}
	return err
}

// next is the frame or protocol header that b begins with, empty as long as it is not whole.
func (c *framed) next(b []byte) []byte {
	switch {
	case c.blind || len(b) < amqp.FrameHeaderSize:
		if c.blind {
			return b
		}
		return nil
	case string(b[:4]) == "AMQP":
		return b[:len(amqp.ProtoAMQP)]
	}
	size := binary.BigEndian.Uint32(b)
	if size < amqp.FrameHeaderSize || size > maxIncoming {
		c.blind = true
		return b
	}
	if uint32(len(b)) < size {
		return nil
	}
	return b[:size]
}

// pass gives the client what filter leaves of a frame.
func (c *framed) pass(frame []byte) {
	keep := len(frame)
	var payload []byte
	if !c.blind && string(frame[:4]) != "AMQP" && frame[5] == amqp.FrameAMQP {
		if begin := 4 * int(frame[4]); begin >= amqp.FrameHeaderSize && begin < len(frame) {
			keep, payload = c.filter(frame, begin)
		}
	}
	start := len(c.out)
	c.out = append(append(c.out, frame[:keep]...), payload...)
	if keep < len(frame) {
		binary.BigEndian.PutUint32(c.out[start:], uint32(len(c.out)-start))
	}
}
