// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"io"
	"net"
	"os"
	"syscall"
)

// A socket reads and writes a TCP connection without telling Go's scheduler of each system call.
// None of these calls blocks, so there is nothing to tell. The scheduler would take each for one
// that may block, and wake its monitor thread whenever the process was idle before: with one
// message at a time, that thread used nearly half of the relay's time.
//
// The zero value has no socket. What goes through a layer of its own, as TLS, has none.
type socket struct {
	in  socketReader
	out socketWriter
}

// open finds the socket of nc: nc itself, or what it says with a method Socket that its bytes pass
// through as they are.
func (s *socket) open(nc net.Conn) {
	tcp, _ := nc.(*net.TCPConn)
	if c, ok := nc.(interface{ Socket() *net.TCPConn }); ok {
		tcp = c.Socket()
	}
	if tcp == nil || !rawSockets {
		return
	}
	conn, err := tcp.SyscallConn()
	if err != nil {
		return // it is closed, which the read loop notices
	}
	s.in.conn, s.in.attempt = conn, s.in.once
	s.out.conn, s.out.attempt = conn, s.out.once
}

// A socketReader belongs to the read loop.
type socketReader struct {
	conn    syscall.RawConn
	attempt func(fd uintptr) bool // once, made once so that no read allocates it
	buf     []byte
	n       int
	errno   syscall.Errno
}

// read is Read of a net.Conn, deadlines included.
func (r *socketReader) read(b []byte) (int, error) {
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
func (r *socketReader) once(fd uintptr) bool {
	r.n, r.errno = readSocket(fd, r.buf)
	return r.errno != syscall.EAGAIN
}

// A socketWriter gives the socket what it takes at once and never waits for it, so that read loops
// can write what they have caused: to have the side's writer woken for it would cost more than the
// write.
type socketWriter struct {
	conn    syscall.RawConn
	attempt func(fd uintptr) bool // once, as above
	buf     []byte
	n       int
}

// write returns how many bytes the socket has taken. What it fails with shows again in the write
// of what is left.
func (w *socketWriter) write(b []byte) int {
	w.buf, w.n = b, 0
	_ = w.conn.Write(w.attempt) // see above
	w.buf = nil
	return w.n
}

func (w *socketWriter) once(fd uintptr) bool {
	w.n = writeSocket(fd, w.buf)
	return true // whatever came of it: not to wait
}
