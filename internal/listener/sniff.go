// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"overdue/internal/listener/accept"
	"overdue/internal/listener/tlsrecord"
)

// What a client speaks, by the first of its bytes.
type protocol int

const (
	speaksAMQP protocol = iota
	speaksHTTP
	speaksTLS
)

// speaks tells the protocol of a client by its first four bytes.
func speaks(head [4]byte) protocol {
	first := head[0]
	switch {
	case first == 0x16: // TLS record of a handshake
		return speaksTLS
	case head == [4]byte{'A', 'M', 'Q', 'P'}:
		return speaksAMQP
	case 'A' <= first && first <= 'Z' || 'a' <= first && first <= 'z':
		return speaksHTTP
	}
	return speaksAMQP
}

// ErrNoTLS is why a client is turned away that wants TLS where there is no
// certificate.
var ErrNoTLS = errors.New("the client wants TLS, and there is no certificate")

// ErrPlain is why a client is turned away that does not want TLS where it has to:
// see Server.ServeTLS.
var ErrPlain = errors.New("the client does not speak TLS, and nothing else is taken here")

var (
	errTLSInTLS    = errors.New("TLS within TLS")
	errNothingSaid = errors.New("the client said nothing")
)

// handshakeFailure is the alert of TLS that says so: a client that is merely
// hung up on would show a riddle.
var handshakeFailure = []byte{21, 3, 3, 0, 2, 2, 40}

// recognise finds out what nc speaks, through TLS if that comes first. The
// connection that it returns still has everything to say.
func (s *Server) recognise(nc net.Conn, guest *accept.Guest, plain bool) (net.Conn, protocol, error) {
	// A deadline that cannot be set is one of a connection that is closed, which shows below.
	_ = nc.SetDeadline(time.Now().Add(s.cfg.FirstByteTimeout))
	c, what, err := peek(nc, guest)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case what == speaksTLS:
		if c, what, err = s.unwrap(c, guest); err != nil {
			return nil, 0, err
		}
	case !plain:
		refusePlain(c, what)
		return nil, 0, ErrPlain
	}
	_ = nc.SetDeadline(time.Time{})
	return c, what, nil
}

// tlsCost is what is reckoned for TLS, in bytes: its buffers, which hold a record each way.
const tlsCost = 32 << 10

// unwrap does the handshake of TLS, and peeks at what is inside.
func (s *Server) unwrap(c net.Conn, guest *accept.Guest) (net.Conn, protocol, error) {
	if s.cfg.TLS == nil {
		return nil, 0, errors.Join(ErrNoTLS, refuseTLS(c))
	}
	tc := tls.Server(tlsrecord.Whole(c), s.cfg.TLS)
	if err := tc.Handshake(); err != nil {
		return nil, 0, fmt.Errorf("TLS: %w", err)
	}
	// Its buffers and keys.
	if err := guest.Spend(tlsCost); err != nil {
		return nil, 0, fmt.Errorf("TLS: %w", err)
	}
	inner, what, err := peek(tc, guest)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("within TLS: %w", err)
	case what == speaksTLS:
		return nil, 0, errTLSInTLS
	}
	return secured{inner, tc, guest}, what, nil
}

// refuseTLS answers a client's first record. It is read before: closing on what
// is unread would take the answer with it.
func refuseTLS(c net.Conn) error {
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(head[3:]))); err != nil {
		return err
	}
	_, err := c.Write(handshakeFailure)
	return err
}

// amqpOverTLS is the header of AMQP that asks for TLS: the answer to another one,
// says part 2 section 2.2 of the standard.
var amqpOverTLS = []byte{'A', 'M', 'Q', 'P', 2, 1, 0, 0}

// httpOverTLS is the answer to a request.
var httpOverTLS = func() []byte {
	const text = "This port speaks TLS only. Begin the URL with https.\n"
	return fmt.Appendf(nil, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}()

// maxUnheard bounds what is read of a client that has been refused, in bytes.
const maxUnheard = maxHead

// refusePlain tells a client in its own protocol that it has to speak TLS. What it
// has sent is read before the connection is closed, which would take the answer
// with it otherwise.
func refusePlain(c net.Conn, what protocol) {
	answer := amqpOverTLS
	if what == speaksHTTP {
		answer = httpOverTLS
	}
	if _, err := c.Write(answer); err != nil {
		return // the client is gone, which is what it was to be
	}
	if p, ok := c.(*peeked); ok {
		if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // if it is closed already, the next read says so
		}
	}
	_, _ = io.CopyN(io.Discard, c, maxUnheard)
}

// peek reads the first four bytes of nc, which every protocol here has, and
// returns a connection that begins with them.
func peek(nc net.Conn, guest *accept.Guest) (net.Conn, protocol, error) {
	c := &peeked{Conn: nc, guest: guest}
	n, err := io.ReadFull(nc, c.head[:])
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return nil, 0, errNothingSaid
	case err != nil:
		return nil, 0, fmt.Errorf("after %d bytes: %w", n, err)
	}
	return c, speaks(c.head), nil
}

// A peeked connection gives its first bytes once more. Like every connection
// here it is read by one goroutine at a time.
type peeked struct {
	net.Conn
	guest *accept.Guest
	head  [4]byte
	used  int
}

// Guest is its place among the strangers.
func (c *peeked) Guest() *accept.Guest { return c.guest }

// Socket is what writes go to as they are; nil if that is no TCP connection.
func (c *peeked) Socket() *net.TCPConn {
	socket, _ := c.Conn.(*net.TCPConn)
	return socket
}

// Read reads the first bytes alone: who has just got them reads on.
func (c *peeked) Read(b []byte) (int, error) {
	if c.used < len(c.head) {
		n := copy(b, c.head[c.used:])
		c.used += n
		return n, nil
	}
	return c.Conn.Read(b)
}

// secured is a peeked connection within TLS.
type secured struct {
	net.Conn
	tls   *tls.Conn
	guest *accept.Guest
}

// Guest is its place among the strangers.
func (c secured) Guest() *accept.Guest { return c.guest }

// ConnectionState is that of the TLS around it.
func (c secured) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }
