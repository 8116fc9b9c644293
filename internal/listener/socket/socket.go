// SPDX-License-Identifier: Apache-2.0

// Package socket reads and writes TCP connections with system calls that bypass Go's scheduler.
//
// None of these calls blocks, so the scheduler has nothing to do for them. It would take each for
// one that may block, and wake its monitor thread whenever the process was idle before. With one
// message at a time, that thread used nearly half of the processor time of the relay. Decision
// 0036 has the figures.
package socket

import (
	"io"
	"net"
	"os"
	"syscall"
)

// A Socket is the socket of a TCP connection. The zero value has none.
type Socket struct {
	in  reader
	out writer
}

// Open finds the socket of nc: nc itself, or the connection that its method Socket returns. A
// connection with a layer of its own, such as TLS, has no socket.
func (s *Socket) Open(nc net.Conn) {
	tcp, _ := nc.(*net.TCPConn)
	if c, ok := nc.(interface{ Socket() *net.TCPConn }); ok {
		tcp = c.Socket()
	}
	if tcp == nil || !supported {
		return
	}
	conn, err := tcp.SyscallConn()
	if err != nil {
		return // it is closed, which the next read of nc reports
	}
	s.in.conn, s.in.attempt = conn, s.in.once
	s.out.conn, s.out.attempt = conn, s.out.once
}

// Exists reports whether there is a socket. Otherwise Read and Write must not be called.
func (s *Socket) Exists() bool { return s.in.conn != nil }

// Read is Read of a net.Conn, deadlines included. One goroutine at a time may call it.
func (s *Socket) Read(b []byte) (int, error) { return s.in.read(b) }

// Write gives the socket what it takes at once and returns how many bytes that is. It never waits.
// So a read loop can write what it has caused: to wake another goroutine for it would cost more
// than the write. An error recurs when the connection writes the remaining bytes. One goroutine at
// a time may call it.
func (s *Socket) Write(b []byte) int { return s.out.write(b) }

type reader struct {
	conn    syscall.RawConn
	attempt func(fd uintptr) bool // once, made once so that no read allocates it
	buf     []byte
	n       int
	errno   syscall.Errno
}

func (r *reader) read(b []byte) (int, error) {
	r.buf, r.n, r.errno = b, 0, 0
	err := r.conn.Read(r.attempt)
	r.buf = nil
	switch {
	case err != nil:
		return 0, err
	case r.errno != 0:
		return 0, os.NewSyscallError("read", r.errno)
	case r.n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return r.n, nil
}

// once reports false when there is nothing to read yet.
func (r *reader) once(fd uintptr) bool {
	r.n, r.errno = sysRead(fd, r.buf)
	return r.errno != syscall.EAGAIN
}

type writer struct {
	conn    syscall.RawConn
	attempt func(fd uintptr) bool // once, as above
	buf     []byte
	n       int
}

func (w *writer) write(b []byte) int {
	w.buf, w.n = b, 0
	_ = w.conn.Write(w.attempt) // an error recurs, see Socket.Write
	w.buf = nil
	return w.n
}

func (w *writer) once(fd uintptr) bool {
	w.n = sysWrite(fd, w.buf)
	return true // done, even after a partial write: it does not wait
}
