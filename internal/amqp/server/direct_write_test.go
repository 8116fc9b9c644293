// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// overTCP returns an open connection over TCP whose goroutines do not run, and its peer.
func overTCP(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = peer.Close(), nc.Close() }) // some tests have closed them
	c := newConn(New(Config{Handler: new(echo)}), nc, 1)
	if !c.socket.Exists() {
		t.Skip("no sockets without Go's scheduler on this system")
	}
	c.state = connOpen
	return c, peer
}

// woken reports whether the writer has been woken, and takes the token.
func (c *Conn) woken() bool {
	select {
	case <-c.wake:
		return true
	default:
		return false
	}
}

func TestReadLoopWritesAnswersItself(t *testing.T) {
	c, peer := overTCP(t)
	c.out = []byte("answer")
	if state := c.beforeRead(); state != connOpen {
		t.Fatalf("state = %d, want open", state)
	}
	if c.woken() {
		t.Error("the writer is woken for an answer that the socket has taken")
	}
	got := make([]byte, len("answer"))
	if _, err := io.ReadFull(peer, got); err != nil || string(got) != "answer" {
		t.Errorf("the peer reads %q, %v, want the answer", got, err)
	}
}

func TestWriterGetsTheRestThatTheSocketDoesNotTake(t *testing.T) {
	c, peer := overTCP(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than the buffers of both ends hold
	c.out = bytes.Clone(want)
	c.mu.Lock()
	c.writeDirectLocked()
	c.out = append(c.out, "behind"...)
	c.mu.Unlock()
	if !c.woken() {
		t.Error("the writer is not woken for the rest")
	}
	rest := c.takeOutput()
	if len(rest.buf) == 0 || len(rest.buf) >= len(want) {
		t.Fatalf("the writer takes %d bytes of %d, want a part", len(rest.buf), len(want))
	}
	got := make([]byte, len(want)-len(rest.buf))
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	if all := append(got, rest.buf...); !bytes.Equal(all, want) {
		t.Error("what the socket has taken and what the writer takes are not what was queued")
	}
	if c.writeDirectLocked(); len(c.out) == 0 {
		t.Error("the read loop writes while the writer does, so the frames may change places")
	}
	c.wroteLocked(rest.buf)
	if next := c.takeOutput(); string(next.buf) != "behind" {
		t.Errorf("the writer takes %q next, want what was queued behind", next.buf)
	}
}

func TestWriterGetsAllWhenTheSocketIsClosed(t *testing.T) {
	c, _ := overTCP(t)
	if err := c.nc.Close(); err != nil {
		t.Fatal(err)
	}
	c.out = []byte("answer")
	c.mu.Lock()
	c.writeDirectLocked()
	c.mu.Unlock()
	if taken := c.takeOutput(); !c.woken() || string(taken.buf) != "answer" {
		t.Errorf("the writer takes %q, want the answer, whose write fails", taken.buf)
	}
}
