// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
	"overdue/internal/testing/racetest"
)

// A loop is a connection of the relay without its goroutines: what would be read is handed over,
// what would be written is thrown away.
type loop struct {
	t        testing.TB
	c        *conn
	payload  []byte
	transfer amqp.Transfer
	outcome  amqp.Disposition
	next     uint32
	sinks    [2]sink
}

// newLoop is a loop with one sender of the client's.
func newLoop(t testing.TB, watch func(Link) Watcher) *loop {
	t.Helper()
	r := New(Config{Dial: func(context.Context) (net.Conn, error) { return nil, net.ErrClosed }, Watch: watch})
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	l := &loop{t: t, c: newConn(r, near, 1), payload: make([]byte, 300), sinks: [2]sink{{Conn: near}, {Conn: near}}}
	for i := range l.c.sides {
		s := &l.c.sides[i]
		s.connect(&l.sinks[i], time.Minute)
		s.State, s.MaxFrame, s.Peer = transport.Open, 1<<16, &amqp.Open{ChannelMax: 10}
	}
	const window = math.MaxInt32
	l.put(client, &amqp.Begin{IncomingWindow: window, OutgoingWindow: window, HandleMax: 10})
	l.put(upstream, &amqp.Begin{HasRemoteChannel: true, IncomingWindow: window, OutgoingWindow: window, HandleMax: 10})
	target := &amqp.Target{Address: "orders", HasAddress: true}
	l.put(client, &amqp.Attach{Name: "s", Role: amqp.RoleSender, Target: target})
	l.put(upstream, &amqp.Attach{Name: "s", Role: amqp.RoleReceiver, Target: target, MaxMessageSize: 1 << 20})
	l.put(upstream, &amqp.Flow{HasHandle: true, IncomingWindow: 1 << 30, LinkCredit: 1 << 30, HasLinkCredit: true, HasDeliveryCount: true})
	return l
}

// put hands over a frame that comes from that side.
func (l *loop) put(from int, p amqp.Performative) { l.hand(from, p, nil) }

func (l *loop) hand(from int, p amqp.Performative, payload []byte) {
	if err := l.c.sides[from].dispatch(0, p, payload); err != nil {
		l.t.Fatal(err)
	}
}

// written is how many bytes a side has to write, which go nowhere.
func (l *loop) written(side int) int {
	l.c.mu.Lock()
	before := l.sinks[side].taken
	l.c.sides[side].Flush(time.Time{})
	return l.sinks[side].taken - before
}

// A sink is a transport that takes everything.
type sink struct {
	net.Conn
	taken int
}

func (s *sink) Write(b []byte) (int, error) {
	s.taken += len(b)
	return len(b), nil
}

func (*sink) SetWriteDeadline(time.Time) error { return nil }

// pass sends one delivery through the relay, and its outcome back.
func (l *loop) pass() {
	id := l.next
	l.next++
	var tag [4]byte
	binary.BigEndian.PutUint32(tag[:], id)
	l.transfer = amqp.Transfer{DeliveryID: id, HasDeliveryID: true, DeliveryTag: append(l.transfer.DeliveryTag[:0], tag[:]...), HasMessageFormat: true}
	l.hand(client, &l.transfer, l.payload)
	if n := l.written(upstream); n < len(l.payload) {
		l.t.Fatalf("delivery %d: %d bytes go on, want at least %d", id, n, len(l.payload))
	}
	l.outcome = amqp.Disposition{Role: amqp.RoleReceiver, First: id, Last: id, Settled: true, State: amqp.Accepted{}}
	l.hand(upstream, &l.outcome, nil)
	if l.written(client) == 0 {
		l.t.Fatalf("delivery %d: the client got no outcome", id)
	}
	l.c.mu.Lock()
	l.c.payLocked() // of windows that are due
	l.c.unlock()
	l.written(client)
}

var ways = []struct {
	name   string
	watch  func(Link) Watcher
	allocs float64
}{
	{"passing", nil, 0},
	{"watched", func(Link) Watcher { return passOn{} }, 2},
}

func TestWhatADeliveryAllocates(t *testing.T) {
	racetest.Skip(t, "a pool loses some under the race detector")
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			l := newLoop(t, way.watch)
			for range 2000 { // until all buffers have grown
				l.pass()
			}
			if got := testing.AllocsPerRun(2000, l.pass); got > way.allocs {
				t.Errorf("a delivery and its outcome cost %v allocations, want at most %v", got, way.allocs)
			}
		})
	}
}

// BenchmarkDelivery is what the relay itself does for a delivery and its outcome, without sockets,
// goroutines and decoding.
func BenchmarkDelivery(b *testing.B) {
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			l := newLoop(b, way.watch)
			b.ReportAllocs()
			for b.Loop() {
				l.pass()
			}
		})
	}
}
