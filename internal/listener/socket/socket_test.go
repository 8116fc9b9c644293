// SPDX-License-Identifier: Apache-2.0

//go:build linux || freebsd || netbsd || dragonfly

package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// tcpPair is the two ends of a TCP connection.
func tcpPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near, far = c.(*net.TCPConn), d.(*net.TCPConn)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() }) // some tests have closed them
	return near, far
}

func openSocket(t *testing.T, nc net.Conn) *Socket {
	t.Helper()
	s := new(Socket)
	s.Open(nc)
	if !s.Exists() {
		t.Fatal("a TCP connection has no socket")
	}
	return s
}

func TestReadBehavesAsThatOfTheConnection(t *testing.T) {
	near, far := tcpPair(t)
	s := openSocket(t, near)
	b := make([]byte, 8)
	read := make(chan error, 1)
	go func() { // it waits: nothing is there yet
		n, err := s.Read(b)
		if err == nil && string(b[:n]) != "hello" {
			err = errors.New("read " + string(b[:n]))
		}
		read <- err
	}()
	if _, err := far.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Errorf("read = %v, want hello", err)
	}
	if err := near.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read behind the deadline = %v, want a timeout", err)
	}
	if err := near.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := far.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Read(b); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read behind the end = %d, %v, want EOF", n, err)
	}
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed connection = %v, want %v", err, net.ErrClosed)
	}
}

func TestReadReportsAResetByThePeer(t *testing.T) {
	near, far := tcpPair(t)
	s := openSocket(t, near)
	if err := far.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	if err := far.Close(); err != nil { // with a reset
		t.Fatal(err)
	}
	var failed *os.SyscallError
	if _, err := s.Read(make([]byte, 8)); !errors.As(err, &failed) {
		t.Errorf("read = %v, want the error of the system call", err)
	}
}

func TestWriteTakesAsMuchAsFitsAndDoesNotWait(t *testing.T) {
	near, far := tcpPair(t)
	s := openSocket(t, near)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than the buffers of both ends hold
	n := s.Write(want)
	if n == 0 || n == len(want) {
		t.Fatalf("the socket takes %d bytes of %d, want a part", n, len(want))
	}
	got := make([]byte, n)
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, want[:n]) {
		t.Errorf("%v, want the %d bytes that the socket has taken", err, n)
	}
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.Write(want); n != 0 {
		t.Errorf("a closed socket takes %d bytes, want none", n)
	}
}

func TestOnlyTCPConnectionsHaveASocket(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	var s Socket
	if s.Open(near); s.Exists() {
		t.Error("a pipe has a socket")
	}
}
