// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/testing/pipenet"
)

// A frame is what a peer has read; nil performatives are keep-alives.
type frame struct {
	channel uint16
	p       amqp.Performative
	payload []byte
}

// A peer answers as a test wants.
type peer struct {
	*testing.T
	net    *pipenet.Network
	nc     net.Conn
	frames chan frame // closed at the end of the connection
}

// play runs a test on fake time with a connection to a peer whose open is as given.
func play(t *testing.T, open *amqp.Open, act func(*peer, *Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, nc := connect(t)
		go p.handshake(open)
		c, err := Open(t.Context(), nc, "overdue.test")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }() // a test may have ended it
		act(p, c)
	})
}

func connect(t *testing.T) (*peer, net.Conn) {
	t.Helper()
	p := &peer{T: t, net: pipenet.New(), frames: make(chan frame, 1000)}
	ln, err := p.net.Listen("peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	nc, err := p.net.Dial(t.Context(), "peer")
	if err != nil {
		t.Fatal(err)
	}
	if p.nc, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.nc.Close() })
	return p, nc
}

// handshake opens the connection, and reads frames until its end.
func (p *peer) handshake(open *amqp.Open) {
	defer close(p.frames)
	frames := amqp.NewFrameReader(p.nc, 1<<30)
	if _, err := frames.ReadProto(); err != nil {
		return
	}
	p.write(amqp.AppendSASLFrame(amqp.ProtoSASL[:], &amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"MSSBCBS", "ANONYMOUS"}}))
	if _, err := frames.Next(); err != nil {
		return
	}
	p.write(amqp.AppendSASLFrame(nil, &amqp.SASLOutcome{}))
	if _, err := frames.ReadProto(); err != nil {
		return
	}
	p.write(amqp.ProtoAMQP[:])
	if _, err := frames.Next(); err != nil {
		return
	}
	p.send(0, open, nil)
	for {
		f, err := frames.Next()
		if err != nil {
			return
		}
		got := frame{channel: f.Channel}
		if len(f.Body) > 0 {
			if got.p, got.payload, err = amqp.DecodePerformative(bytes.Clone(f.Body)); err != nil {
				p.Errorf("the client writes %x: %v", f.Body, err)
				return
			}
		}
		p.frames <- got
	}
}

func (p *peer) write(b []byte) {
	if _, err := p.nc.Write(b); err != nil {
		p.Logf("peer: %v", err)
	}
}

func (p *peer) send(channel uint16, what amqp.Performative, payload []byte) {
	p.write(amqp.AppendFrame(nil, channel, what, payload))
}

// next returns the next performative, which is a T.
func next[T amqp.Performative](p *peer) (T, frame) {
	p.Helper()
	for f := range p.frames {
		if f.p == nil {
			continue
		}
		got, ok := f.p.(T)
		if !ok {
			p.Fatalf("the client sends %s, want %T", amqp.Trace(f.p, len(f.payload)), got)
		}
		return got, f
	}
	var none T
	p.Fatalf("the connection has ended, want %T", none)
	return none, frame{}
}

// The peer numbers channels and handles otherwise than the client.
const (
	peerChannel = 7
	peerHandle  = 9
	// peerDeliveryCount is the delivery-count that its senders begin with.
	peerDeliveryCount = 40
)

// begin answers a begin.
func (p *peer) begin(window uint32) {
	p.Helper()
	_, f := next[*amqp.Begin](p)
	p.send(peerChannel+f.channel, &amqp.Begin{RemoteChannel: f.channel, HasRemoteChannel: true, IncomingWindow: window, HandleMax: 10}, nil)
}

// attach answers an attach.
func (p *peer) attach(maxMessage uint64) *amqp.Attach {
	p.Helper()
	a, f := next[*amqp.Attach](p)
	p.send(peerChannel+f.channel, &amqp.Attach{
		Name: a.Name, Handle: peerHandle + a.Handle, Role: !a.Role, Source: a.Source, Target: a.Target, MaxMessageSize: maxMessage, InitialDeliveryCount: peerDeliveryCount,
	}, nil)
	return a
}

func (p *peer) credit(n, seen uint32) {
	p.send(peerChannel, &amqp.Flow{
		IncomingWindow: 1000, NextIncomingID: seen, HasNextIncomingID: true,
		Handle: peerHandle, HasHandle: true, DeliveryCount: seen, HasDeliveryCount: true, LinkCredit: n, HasLinkCredit: true,
	}, nil)
}

// attachSender attaches a sender and grants it credit.
func attachSender(p *peer, c *Conn, maxMessage uint64, credit uint32) *Sender {
	p.Helper()
	go func() {
		p.begin(1000)
		p.attach(maxMessage)
		if credit > 0 {
			p.credit(credit, 0)
		}
	}()
	s, err := c.Sender(p.Context(), "orders")
	if err != nil {
		p.Fatal(err)
	}
	synctest.Wait()
	return s
}

// sendAll sends every payload, one after the other, and waits for none.
func sendAll(ctx context.Context, s *Sender, payloads ...string) []chan error {
	results := make([]chan error, len(payloads))
	for i, payload := range payloads {
		results[i] = make(chan error, 1)
		go func() { results[i] <- s.Send(ctx, 0, []byte(payload)) }()
		synctest.Wait()
	}
	return results
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func (p *peer) settle(first, last uint32, settled bool, state amqp.DeliveryState) {
	p.send(peerChannel, &amqp.Disposition{Role: amqp.RoleReceiver, First: first, Last: last, Settled: settled, State: state}, nil)
	synctest.Wait()
}

// kinds returns the names of what has come.
func (p *peer) kinds() (all []string) {
	for {
		select {
		case f, ok := <-p.frames:
			if !ok {
				return append(all, "end")
			}
			if f.p != nil {
				all = append(all, amqp.Trace(f.p, len(f.payload)))
			} else {
				all = append(all, "keep-alive")
			}
		default:
			return slices.Clip(all)
		}
	}
}
