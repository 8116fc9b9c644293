// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"overdue/internal/amqp"
)

// A scene is an owner without states of its own.
type scene struct {
	sync.Mutex
	t      *testing.T
	conn   Conn
	failed chan error
}

func (*scene) Rest()                                        {}
func (*scene) Resume(int) error                             { return nil }
func (*scene) Due() bool                                    { return false }
func (*scene) Prepare()                                     {}
func (*scene) Taken()                                       {}
func (s *scene) Unsendable(e *amqp.Error)                   { s.conn.Close(e) }
func (s *scene) Failed(err error)                           { s.failed <- err }
func (*scene) Why(error) error                              { return nil }
func (*scene) Trace(string, uint16, amqp.Performative, int) {}

// opened is an open connection over TCP, and the frames that its peer reads.
func opened(t *testing.T) (*scene, net.Conn) {
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
	s := &scene{t: t, failed: make(chan error, 2)}
	s.conn.Connect(nc, s, sync.NewCond(s), Config{MaxFrameSize: 1 << 16, WriteTimeout: time.Minute, CloseTimeout: time.Minute, Silence: time.Hour})
	s.conn.State, s.conn.MaxFrame = Open, math.MaxInt32
	return s, peer
}

func (s *scene) put(payload []byte) {
	s.conn.PutTransfer(0, &amqp.Transfer{DeliveryTag: []byte("tag")}, payload)
}

// expect reads a frame with that payload.
func (s *scene) expect(frames *amqp.FrameReader, payload []byte) {
	s.t.Helper()
	f, err := frames.Next()
	if err != nil {
		s.t.Fatal(err)
	}
	if _, got, err := amqp.DecodePerformative(f.Body); err != nil || !bytes.Equal(got, payload) {
		s.t.Errorf("the peer reads %d bytes, %v, want %d", len(got), err, len(payload))
	}
}

func TestAReaderWritesAnswersItself(t *testing.T) {
	s, peer := opened(t)
	if !s.conn.socket.Exists() {
		t.Skip("no sockets without Go's scheduler on this system")
	}
	s.Lock()
	s.put([]byte("answer"))
	s.conn.WriteDirect()
	if s.conn.writing || s.conn.Queued() > 0 {
		t.Error("a writer is started for an answer that the socket takes")
	}
	s.Unlock()
	s.expect(amqp.NewFrameReader(peer, math.MaxInt32), []byte("answer"))
}

func TestAWriterGetsTheRestThatTheSocketDoesNotTake(t *testing.T) {
	s, peer := opened(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than the buffers of both ends hold
	s.Lock()
	s.put(large)
	s.conn.WriteDirect()
	s.put([]byte("behind"))
	s.conn.WriteDirect() // the writer is still busy, or the frames would change places
	s.Unlock()
	frames := amqp.NewFrameReader(peer, math.MaxInt32)
	s.expect(frames, large)
	s.expect(frames, []byte("behind"))
	if err := s.conn.Finish(); err != nil {
		t.Errorf("Finish = %v", err)
	}
}

func TestAFailedWriteIsReportedOnce(t *testing.T) {
	s, _ := opened(t)
	if err := s.conn.NetConn.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.Lock()
		s.put([]byte("answer"))
		s.conn.WriteDirect()
		s.Unlock()
		if err := s.conn.Finish(); err == nil {
			t.Error("Finish = nil, want the error of the write")
		}
	}
	if len(s.failed) != 1 {
		t.Errorf("Failed was called %d times, want once", len(s.failed))
	}
}

func TestATransferThatFitsIntoNoFrameClosesTheConnection(t *testing.T) {
	s, _ := opened(t)
	s.Lock()
	defer s.Unlock()
	s.conn.MaxFrame = amqp.MinMaxFrameSize
	state := &amqp.TransactionalState{TxnID: make([]byte, amqp.MinMaxFrameSize)}
	s.conn.PutTransfer(0, &amqp.Transfer{State: state}, []byte("x"))
	if e := s.conn.CloseErr; e == nil || e.Condition != amqp.ErrCondFrameSizeTooSmall {
		t.Errorf("the connection is closed with %v, want %s", e, amqp.ErrCondFrameSizeTooSmall)
	}
}

func TestAPayloadIsCutToTheFrameOfThePeer(t *testing.T) {
	for name, tr := range map[string]amqp.Transfer{
		"a first frame": {HasDeliveryID: true, DeliveryTag: make([]byte, 32), HasMessageFormat: true},
		"a later frame": {},
		"a long state":  {State: &amqp.TransactionalState{TxnID: make([]byte, 300), Outcome: amqp.Accepted{}}},
	} {
		s, _ := opened(t)
		s.Lock()
		s.conn.MaxFrame = 1024
		n := s.conn.PutTransfer(0, &tr, make([]byte, 2000))
		if got := s.conn.Queued(); got != 1024 || !tr.More {
			t.Errorf("%s has %d bytes, more: %v, want 1024 and more", name, got, tr.More)
		}
		if s.conn.PutTransfer(0, &tr, make([]byte, n)); s.conn.Queued() != 2048 {
			t.Errorf("%s: %d bytes do not fit, want that", name, n)
		}
		s.Unlock()
	}
}
