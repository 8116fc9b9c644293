// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
)

// oddFrame returns a frame that is well-formed and, given the few numbers it draws from, often
// about something that exists, in an order that makes no sense.
func oddFrame(draw func(n uint32) uint32) []byte {
	ch := uint16(draw(3))
	state := []amqp.DeliveryState{nil, amqp.Accepted{}, amqp.Released{}, &amqp.Rejected{}, &amqp.Modified{DeliveryFailed: true}, &amqp.Received{}, &amqp.TransactionalState{TxnID: []byte("t")}}
	flag := func() bool { return draw(2) == 1 }
	number := func() uint32 {
		return []uint32{0, 1, 2, 3, 4, 5, 10, 100, 1<<31 - 1, 1 << 31, 1<<32 - 1}[draw(11)]
	}
	var p amqp.Performative
	var payload []byte
	switch draw(16) {
	case 0:
		p = &amqp.Begin{NextOutgoingID: number(), IncomingWindow: number(), OutgoingWindow: number(), HandleMax: number()}
	case 1:
		p = &amqp.End{}
	case 2, 3:
		a := rawAttach(draw(4), amqp.Role(flag()), []string{"q", "hold", "sink", "refuse", "defer"}[draw(5)])
		a.RcvSettleMode, a.SndSettleMode, a.InitialDeliveryCount = amqp.RcvSettleMode(draw(2)), amqp.SndSettleMode(draw(3)), number()
		p = a
	case 4:
		p = &amqp.Detach{Handle: draw(4), Closed: flag()}
	case 5, 6, 7:
		p = &amqp.Flow{
			HasNextIncomingID: flag(), NextIncomingID: number(), IncomingWindow: number(), NextOutgoingID: number(), OutgoingWindow: number(),
			HasHandle: flag(), Handle: draw(4), HasDeliveryCount: flag(), DeliveryCount: number(), HasLinkCredit: flag(), LinkCredit: number(),
			Drain: flag(), Echo: flag(),
		}
	case 8, 9, 10, 11:
		t := message(draw(4), draw(50))
		t.HasDeliveryID = flag()
		t.More, t.Settled, t.Aborted = flag(), flag(), draw(8) == 0
		t.HasSettled = t.Settled
		t.State = state[draw(7)]
		if !t.HasDeliveryID {
			t.DeliveryTag, t.HasMessageFormat = nil, false
		}
		p, payload = t, make([]byte, draw(300))
	case 12, 13, 14:
		p = &amqp.Disposition{Role: amqp.Role(flag()), First: number(), Last: number(), Settled: flag(), State: state[draw(7)]}
	default:
		return []byte{0, 0, 0, 8, 2, 0, 0, 0}
	}
	return amqp.AppendFrame(nil, ch, p, payload)
}

// FuzzFrames has a peer say well-formed things out of order while the handler settles, sends and
// detaches.
func FuzzFrames(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, uint16(100))
	}
	f.Fuzz(func(t *testing.T, seed uint64, frames uint16) {
		synctest.Test(t, func(t *testing.T) { playOddFrames(t, seed, int(frames%1000)) })
	})
}

func playOddFrames(t *testing.T, seed uint64, frames int) {
	e := &echo{}
	q := e.queue("q")
	for range 20 {
		q.put(make([]byte, 700))
	}
	srv := New(Config{Handler: e, MaxLinks: 10, MaxUnsettled: 8, IncomingWindow: 20, MaxMessageSize: 1000})
	client, server := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- srv.ServeConn(server) }()
	var reading sync.WaitGroup
	fr := amqp.NewFrameReader(client, 1<<20)
	reading.Go(func() { checkServer(t, fr) })

	rnd := rand.New(rand.NewPCG(seed, 0))
	b := append([]byte(nil), amqp.ProtoAMQP[:]...)
	b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "fuzz", MaxFrameSize: 512}, nil)
	for ch := range uint16(2) {
		b = amqp.AppendFrame(b, ch, &amqp.Begin{IncomingWindow: 100, OutgoingWindow: 10, HandleMax: 10}, nil)
	}
	for range frames {
		if _, err := client.Write(b); err != nil {
			break // refused: that is an end too
		}
		b = oddFrame(rnd.Uint32N)
		switch rnd.IntN(10) {
		case 0:
			synctest.Wait()
		case 1:
			time.Sleep(time.Second)
		case 2:
			for _, d := range e.takeDeliveries() {
				d.Link().Settle(d, amqp.Released{})
			}
		case 3:
			if held := e.takeDeliveries(); len(held) > 0 {
				held[0].Link().Detach(nil)
			}
		}
	}
	synctest.Wait()
	client.Close()
	<-done
	reading.Wait()
	e.wg.Wait()
}

// checkServer reads the server's frames and checks the rules that hold for any peer. Frames are
// well-formed and not too large, none uses a channel or handle that is not open on the server's
// side, and nothing follows close.
func checkServer(t *testing.T, fr *amqp.FrameReader) {
	if _, err := fr.ReadProto(); err != nil {
		return
	}
	type handle struct {
		ch     uint16
		handle uint32
	}
	channels, handles, closed := map[uint16]bool{}, map[handle]bool{}, false
	for {
		f, err := fr.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("server's frame: %v", err)
			}
			return
		}
		if len(f.Body)+8 > 512 {
			t.Errorf("server sent a frame of %d bytes, want 512 at most", len(f.Body)+8)
		}
		if closed {
			t.Errorf("server sent a frame after close")
		}
		if len(f.Body) == 0 {
			continue
		}
		p, _, err := amqp.DecodePerformative(f.Body)
		if err != nil {
			t.Errorf("server's performative: %v", err)
			return
		}
		on := func(h uint32, want bool) {
			if !channels[f.Channel] || handles[handle{f.Channel, h}] != want {
				t.Errorf("server sent %s, which does not fit the state of its channel (open %v) and handle (attached %v)",
					amqp.Trace(p, 0), channels[f.Channel], handles[handle{f.Channel, h}])
			}
		}
		switch p := p.(type) {
		case *amqp.Begin:
			if channels[f.Channel] {
				t.Errorf("server began channel %d twice", f.Channel)
			}
			channels[f.Channel] = true
		case *amqp.Attach:
			on(p.Handle, false)
			handles[handle{f.Channel, p.Handle}] = true
		case *amqp.Transfer:
			on(p.Handle, true)
		case *amqp.Detach:
			on(p.Handle, true)
			delete(handles, handle{f.Channel, p.Handle})
		case *amqp.Flow:
			if p.HasHandle {
				on(p.Handle, true)
			}
		case *amqp.Disposition:
			if !channels[f.Channel] {
				t.Errorf("server sent a disposition on channel %d, which has no session", f.Channel)
			}
		case *amqp.End:
			if !channels[f.Channel] {
				t.Errorf("server ended channel %d, which has no session", f.Channel)
			}
			channels[f.Channel] = false
			for h := range handles {
				if h.ch == f.Channel {
					delete(handles, h)
				}
			}
		case *amqp.Close:
			closed = true
		}
	}
}
