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

// protocol is what a client speaks, by its first bytes.
type protocol int

const (
	speaksAMQP protocol = iota
	speaksHTTP
	speaksTLS
)

// speaks returns the protocol of a client by its first four bytes.
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

// ErrNoTLS is why a client that begins with TLS is refused: the server has no certificate.
var ErrNoTLS = errors.New("the client wants TLS, and no certificate is configured")

// ErrPlain is why a client without TLS is refused: see Server.ServeTLS.
var ErrPlain = errors.New("the client does not use TLS, which this port requires")

var (
	errTLSInTLS = errors.New("TLS within TLS")
	errNoBytes  = errors.New("the client said nothing")
)

// handshakeFailure is a TLS alert, so that the client shows a useful error.
var handshakeFailure = []byte{21, 3, 3, 0, 2, 2, 40}

// recognise finds the protocol of nc, within TLS if that comes first. The connection that
// it returns still has all its bytes.
func (s *Server) recognise(nc net.Conn, quota *accept.Quota, plain bool) (net.Conn, protocol, error) {
	// SetDeadline fails only on a closed connection, which the read below reports.
	_ = nc.SetDeadline(time.Now().Add(s.cfg.FirstByteTimeout))
	c, what, err := peek(nc, quota)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case what == speaksTLS:
		if c, what, err = s.unwrap(c, quota); err != nil {
			return nil, 0, err
		}
	case !plain:
		refusePlain(c, what)
		return nil, 0, ErrPlain
	}
	_ = nc.SetDeadline(time.Time{})
	return c, what, nil
}

// tlsCost is the cost of TLS in bytes: its buffers, which hold a record each way.
const tlsCost = 32 << 10

// unwrap does the TLS handshake and peeks at the bytes within.
func (s *Server) unwrap(c net.Conn, quota *accept.Quota) (net.Conn, protocol, error) {
	if s.cfg.TLS == nil {
		return nil, 0, errors.Join(ErrNoTLS, refuseTLS(c))
	}
	tc := tls.Server(tlsrecord.Whole(c), s.cfg.TLS)
	if err := tc.Handshake(); err != nil {
		if end := endOf(s.cfg.TLS); !end.IsZero() && time.Now().After(end) { // some clients refuse it in a way that tells nothing
			err = fmt.Errorf("%w; the certificate that is served ended at %s", err, end.UTC().Format(time.RFC3339))
		}
		return nil, 0, fmt.Errorf("TLS: %w", err)
	}
	if err := quota.Spend(tlsCost); err != nil {
		return nil, 0, fmt.Errorf("TLS: %w", err)
	}
	inner, what, err := peek(tc, quota)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("within TLS: %w", err)
	case what == speaksTLS:
		return nil, 0, errTLSInTLS
	}
	return secured{inner, tc, quota}, what, nil
}

// refuseTLS answers a client's first record, after reading it: closing with unread bytes would drop
// the answer.
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

// amqpOverTLS is the AMQP header that asks for TLS, the answer to a plain one by part 2
// section 2.2 of the standard.
var amqpOverTLS = []byte{'A', 'M', 'Q', 'P', 2, 1, 0, 0}

// httpOverTLS is the answer to a request.
var httpOverTLS = func() []byte {
	const text = "This port speaks TLS only. Begin the URL with https.\n"
	return fmt.Appendf(nil, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}()

// maxUnheard bounds the bytes that are read from a refused client.
const maxUnheard = maxHead

// refusePlain tells a client in its own protocol to use TLS. It reads the client's bytes
// before it closes the connection: closing with unread bytes would drop the answer.
func refusePlain(c net.Conn, what protocol) {
	answer := amqpOverTLS
	if what == speaksHTTP {
		answer = httpOverTLS
	}
	if _, err := c.Write(answer); err != nil {
		return // the client is gone
	}
	if p, ok := c.(*peeked); ok {
		if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // if it is closed already, the next read fails
		}
	}
	_, _ = io.CopyN(io.Discard, c, maxUnheard)
}

// peek reads the first four bytes of nc, which every protocol has, and returns a
// connection that begins with them.
func peek(nc net.Conn, quota *accept.Quota) (net.Conn, protocol, error) {
	c := &peeked{Conn: nc, quota: quota}
	n, err := io.ReadFull(nc, c.head[:])
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return nil, 0, errNoBytes
	case err != nil:
		return nil, 0, fmt.Errorf("after %d bytes: %w", n, err)
	}
	return c, speaks(c.head), nil
}

// A peeked connection repeats its first bytes. One goroutine at a time reads it.
type peeked struct {
	net.Conn
	quota *accept.Quota
	head  [4]byte
	used  int
}

// Quota returns the quota of the connection.
func (c *peeked) Quota() *accept.Quota { return c.quota }

// Socket returns the TCP connection that takes writes unchanged, or nil.
func (c *peeked) Socket() *net.TCPConn {
	socket, _ := c.Conn.(*net.TCPConn)
	return socket
}

// Read returns the first bytes alone, and then the following ones.
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
	quota *accept.Quota
}

// Quota returns the quota of the connection.
func (c secured) Quota() *accept.Quota { return c.quota }

// ConnectionState returns the state of the TLS connection.
func (c secured) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }
