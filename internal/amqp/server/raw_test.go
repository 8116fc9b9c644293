// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"overdue/internal/amqp"
)

// rawPeer is a client that says exactly what a test wants.
type rawPeer struct {
	t      testing.TB
	nc     net.Conn
	frames chan amqp.Performative // what comes, keep-alives as nil; closed at the end
	err    error                  // why it ended
}

// raw connects one over a pipe. It reads all the time, so it never holds up the server.
func (sc *scene) raw() *rawPeer { return sc.rawOver(sc.pipe()) }

func (sc *scene) rawOver(nc net.Conn) *rawPeer {
	p := &rawPeer{t: sc.t, nc: nc, frames: make(chan amqp.Performative, 100_000)}
	return p
}

// pipeEnd returns one end of a pipe whose other end is closed when the test ends.
func (sc *scene) pipeEnd() net.Conn {
	a, b := net.Pipe()
	sc.t.Cleanup(func() { a.Close() })
	return b
}

// write writes raw bytes. The server may close while it still goes on, which is for the test to
// find in what it reads.
func (p *rawPeer) write(b []byte) {
	if _, err := p.nc.Write(b); err != nil && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, net.ErrClosed) {
		p.t.Logf("write: %v", err)
	}
}

func (p *rawPeer) send(ch uint16, f amqp.Performative, payload []byte) {
	p.write(amqp.AppendFrame(nil, ch, f, payload))
}

// listen starts reading frames.
func (p *rawPeer) listen() {
	fr := amqp.NewFrameReader(p.nc, 1<<20)
	go func() {
		defer close(p.frames)
		proto, err := fr.ReadProto()
		if err == nil && proto != amqp.ProtoAMQP {
			err = fmt.Errorf("header % x, want AMQP", proto)
		}
		if err != nil {
			p.err = err
			return
		}
		for {
			f, err := fr.Next()
			if err != nil {
				p.err = err
				return
			}
			if len(f.Body) == 0 {
				p.frames <- nil
				continue
			}
			perf, _, err := amqp.DecodePerformative(f.Body)
			if err != nil {
				p.err = err
				return
			}
			if tr, ok := perf.(*amqp.Transfer); ok {
				tr.DeliveryTag = append([]byte(nil), tr.DeliveryTag...) // it aliases the frame
			}
			p.frames <- perf
		}
	}()
}

// open opens the connection without SASL.
func (p *rawPeer) open(change ...func(*amqp.Open)) {
	p.t.Helper()
	o := &amqp.Open{ContainerID: "raw", MaxFrameSize: 65536, ChannelMax: 65535}
	for _, f := range change {
		f(o)
	}
	p.listen()
	p.write(amqp.ProtoAMQP[:])
	p.send(0, o, nil)
	expect[*amqp.Open](p)
}

func (p *rawPeer) begin(ch uint16) *amqp.Begin {
	p.t.Helper()
	p.send(ch, &amqp.Begin{NextOutgoingID: 0, IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 100}, nil)
	return expect[*amqp.Begin](p)
}

// attach attaches a link; a sender also awaits its credit.
func (p *rawPeer) attach(ch uint16, handle uint32, role amqp.Role, address string) *amqp.Attach {
	p.t.Helper()
	p.send(ch, rawAttach(handle, role, address), nil)
	a := expect[*amqp.Attach](p)
	if role == amqp.RoleSender && a.Target != nil {
		expect[*amqp.Flow](p)
	}
	return a
}

func rawAttach(handle uint32, role amqp.Role, address string) *amqp.Attach {
	return &amqp.Attach{
		Name: fmt.Sprintf("%s-%d-%v", address, handle, role), Handle: handle, Role: role, SndSettleMode: amqp.SndMixed,
		Source: &amqp.Source{Address: address, HasAddress: true},
		Target: &amqp.Target{Address: address, HasAddress: true},
	}
}

// next returns the next performative, or nil when the connection has ended.
func (p *rawPeer) next() amqp.Performative {
	p.t.Helper()
	for {
		select {
		case f, ok := <-p.frames:
			if f == nil && ok {
				continue // keep-alive
			}
			return f
		case <-time.After(10 * time.Second):
			p.t.Fatalf("nothing came from the server for 10 s")
		}
	}
}

// expect returns the next performative, which must be a T.
func expect[T amqp.Performative](p *rawPeer) T {
	p.t.Helper()
	f := p.next()
	got, ok := f.(T)
	if !ok {
		var want T
		detail := ""
		if f != nil {
			detail = amqp.Trace(f, 0)
		}
		p.t.Fatalf("got %T %s (%v), want %T", f, detail, p.err, want)
	}
	return got
}
