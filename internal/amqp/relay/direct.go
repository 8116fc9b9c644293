// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"syscall"
)

// A directWriter gives a socket what it takes at once and never waits for it, so that read loops can
// write what they have caused: to have the side's writer woken for it would cost more than the
// write. The zero value takes nothing.
type directWriter struct {
	conn syscall.RawConn
	once func(fd uintptr) bool // attempt, made once so that no write allocates it
	buf  []byte
	n    int
}

// open begins to write to nc if that is a socket, or says with a method Socket which one its writes go to as they are.
// What writes through a layer of its own, as TLS, may have to wait.
func (d *directWriter) open(nc net.Conn) {
	tcp, _ := nc.(*net.TCPConn)
	if c, ok := nc.(interface{ Socket() *net.TCPConn }); ok {
		tcp = c.Socket()
	}
	if tcp == nil {
		return
	}
	conn, err := tcp.SyscallConn()
	if err != nil {
		return // it is closed, which the read loop notices
	}
	d.conn, d.once = conn, d.attempt
}

func (d *directWriter) attempt(fd uintptr) bool {
	n, err := writeSocket(fd, d.buf)
	if err == nil {
		d.n = n
	}
	return true // whatever came of it: not to wait
}

// write returns how many bytes the socket has taken. What it fails with shows again in the write
// of what is left.
func (d *directWriter) write(b []byte) int {
	d.buf, d.n = b, 0
	_ = d.conn.Write(d.once) // see above
	d.buf = nil
	return d.n
}
