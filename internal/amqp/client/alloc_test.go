// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
	"overdue/internal/testing/racetest"
)

// An accepting connection accepts whatever is written to it.
type accepting struct {
	net.Conn
	written chan struct{}
	frame   []byte
	says    amqp.Disposition
}

func (a *accepting) Write(b []byte) (int, error) {
	a.written <- struct{}{}
	return len(b), nil
}

func (a *accepting) Read(b []byte) (int, error) {
	if _, ok := <-a.written; !ok {
		return 0, io.EOF
	}
	a.frame = amqp.AppendFrame(a.frame[:0], 0, &a.says, nil)
	a.says.First++
	a.says.Last++
	return copy(b, a.frame), nil
}

func (a *accepting) Close() error { return nil }

func (a *accepting) SetWriteDeadline(time.Time) error { return nil }

func TestSendAllocatesNothing(t *testing.T) {
	racetest.Skip(t, "a pool loses some under the race detector")
	nc := &accepting{written: make(chan struct{}, 10), says: amqp.Disposition{Role: amqp.RoleReceiver, Settled: true, State: amqp.Accepted{}}}
	c := newConn(nc)
	c.wire.State, c.wire.MaxFrame, c.wire.Peer = transport.Open, 65536, &amqp.Open{}
	s := &session{c: c, changed: make(chan struct{}, 1), windows: transport.Windows{Outgoing: 1 << 30}}
	l := &link{session: s, attached: true, credit: 1 << 30, changed: make(chan struct{}, 1)}
	s.links, c.sessions, c.byPeer[0] = []*link{l}, []*session{s}, s
	go c.read()
	defer func() {
		close(nc.written)
		<-c.done
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	payload := []byte(strings.Repeat("x", 3000))
	got := testing.AllocsPerRun(1000, func() {
		if err := (&Sender{l}).Send(ctx, amqp.BatchMessageFormat, payload); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations for a transfer, want none", got)
	}
}
