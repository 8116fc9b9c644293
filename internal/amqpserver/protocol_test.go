// SPDX-License-Identifier: Apache-2.0

package amqpserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
)

// linkFlow grants credit on a link from which deliveryCount deliveries have been seen.
func linkFlow(handle, deliveryCount, credit uint32) *amqp.Flow {
	return &amqp.Flow{
		HasNextIncomingID: true, NextIncomingID: deliveryCount, IncomingWindow: 1000, OutgoingWindow: 1000,
		HasHandle: true, Handle: handle, HasDeliveryCount: true, DeliveryCount: deliveryCount, HasLinkCredit: true, LinkCredit: credit,
	}
}

// message is a transfer of a whole delivery.
func message(handle, id uint32) *amqp.Transfer {
	return &amqp.Transfer{Handle: handle, HasDeliveryID: true, DeliveryID: id, DeliveryTag: fmt.Append(nil, id), HasMessageFormat: true}
}

func TestDrainComesAfterTheDeliveriesBeforeIt(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		q := sc.echo.queue("q")
		for i := range 3 {
			q.put(encode(fmt.Sprint(i)))
		}
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		f := linkFlow(0, 0, 10)
		f.Drain = true
		p.send(0, f, nil)
		for i := range uint32(3) {
			if tr := expect[*amqp.Transfer](p); tr.DeliveryID != i {
				t.Errorf("delivery-id = %d, want %d", tr.DeliveryID, i)
			}
		}
		check := func(got *amqp.Flow, count uint32) {
			t.Helper()
			if !got.Drain || got.LinkCredit != 0 || got.DeliveryCount != count || !got.HasHandle {
				t.Errorf("answer = %s, want drain, no credit, delivery-count %d", amqp.Trace(got, 0), count)
			}
		}
		check(expect[*amqp.Flow](p), 10)
		f = linkFlow(0, 10, 0) // again, without credit
		f.NextIncomingID, f.Drain = 3, true
		p.send(0, f, nil)
		check(expect[*amqp.Flow](p), 10)
		f = linkFlow(0, 10, 1) // the link goes on
		f.NextIncomingID = 3
		p.send(0, f, nil)
		q.put(encode("later"))
		expect[*amqp.Transfer](p)
	})
}

func TestTransfersStopAtTheRemoteIncomingWindow(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		q := sc.echo.queue("q")
		q.put(make([]byte, 3000)) // seven frames or so
		q.put(make([]byte, 10))
		p := sc.raw()
		p.open(func(o *amqp.Open) { o.MaxFrameSize = 512 })
		p.send(0, &amqp.Begin{IncomingWindow: 2, OutgoingWindow: 10, HandleMax: 10}, nil)
		expect[*amqp.Begin](p)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		f := linkFlow(0, 0, 10)
		f.IncomingWindow = 2
		p.send(0, f, nil)
		seen, deliveries := uint32(0), 0
		for deliveries < 2 {
			for range 2 {
				if tr := expect[*amqp.Transfer](p); !tr.More {
					deliveries++
				}
				seen++
			}
			synctest.Wait()
			if n := len(p.frames); n != 0 {
				t.Fatalf("%d frames came beyond the window", n)
			}
			p.send(0, &amqp.Flow{HasNextIncomingID: true, NextIncomingID: seen, IncomingWindow: 2, OutgoingWindow: 10}, nil)
		}
	})
}

func TestEchoIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.send(0, &amqp.Flow{HasNextIncomingID: true, IncomingWindow: 5, OutgoingWindow: 5, Echo: true}, nil)
		if f := expect[*amqp.Flow](p); f.HasHandle || f.IncomingWindow != 5000 || f.NextIncomingID != 0 || !f.HasNextIncomingID {
			t.Errorf("session echo = %s", amqp.Trace(f, 0))
		}
		p.attach(0, 0, amqp.RoleReceiver, "q")
		f := linkFlow(0, 0, 7)
		f.Echo = true
		p.send(0, f, nil)
		if f := expect[*amqp.Flow](p); !f.HasHandle || f.LinkCredit != 7 || f.Drain || f.Echo {
			t.Errorf("link echo = %s, want credit 7", amqp.Trace(f, 0))
		}
	})
}

func TestIncomingWindowIsReplenishedAndEnforced(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "sink")
		var batch []byte
		for i := range uint32(6) { // in one write, so that no flow can come between
			m := message(0, i)
			m.Settled, m.HasSettled = true, true
			batch = amqp.AppendFrame(batch, 0, m, []byte("x"))
		}
		p.write(batch)
		if f := expect[*amqp.Flow](p); f.NextIncomingID != 6 || f.IncomingWindow != 10 {
			t.Errorf("flow = %s, want next-incoming-id 6 and the full window", amqp.Trace(f, 0))
		}
		batch = batch[:0]
		for i := uint32(6); i < 17; i++ {
			m := message(0, i)
			m.Settled, m.HasSettled = true, true
			batch = amqp.AppendFrame(batch, 0, m, []byte("x"))
		}
		p.write(batch)
		if e := p.awaitEnd(); cond(e.Error) != string(amqp.ErrCondSessionWindowViolation) {
			t.Errorf("end = %v, want window-violation", e.Error)
		}
	}, func(c *Config) { c.IncomingWindow = 10 })
}

// awaitEnd passes over flows and dispositions.
func (p *rawPeer) awaitEnd() *amqp.End {
	p.t.Helper()
	for {
		switch f := p.next().(type) {
		case *amqp.Flow, *amqp.Disposition, *amqp.Detach:
		case *amqp.End:
			return f
		default:
			p.t.Fatalf("got %T (%v), want end", f, p.err)
		}
	}
}

func TestDispositionsMerge(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "sink")
		p.attach(0, 1, amqp.RoleSender, "sink2")
		var batch []byte
		for i := range uint32(100) {
			batch = amqp.AppendFrame(batch, 0, message(i%2, i), []byte("x"))
		}
		p.write(batch)
		if d := expect[*amqp.Disposition](p); d.First != 0 || d.Last != 99 || !d.Settled || d.Role != amqp.RoleReceiver {
			t.Errorf("disposition = %s, want 0 to 99 settled", amqp.Trace(d, 0))
		}
		// Settled out of order by the handler, in two states.
		p.attach(0, 2, amqp.RoleSender, "hold")
		batch = batch[:0]
		for i := uint32(100); i < 110; i++ {
			batch = amqp.AppendFrame(batch, 0, message(2, i), []byte("x"))
		}
		p.write(batch)
		synctest.Wait()
		held := sc.echo.takeHeld()
		sc.srvLocked(func() {
			for _, i := range []int{9, 1, 0, 2, 4, 3} {
				settleLocked(held[i], amqp.Accepted{})
			}
			for _, i := range []int{5, 7, 6} {
				settleLocked(held[i], amqp.Released{})
			}
		}, held[0].Link().Conn())
		var got []string
		for range 3 {
			d := expect[*amqp.Disposition](p)
			got = append(got, fmt.Sprintf("%d-%d %T", d.First, d.Last, d.State))
		}
		if want := "[100-104 amqp.Accepted 105-107 amqp.Released 109-109 amqp.Accepted]"; fmt.Sprint(got) != want {
			t.Errorf("dispositions = %v, want %s", got, want)
		}
	})
}

// srvLocked keeps the writer away while f runs, so that a test can tell what is merged.
func (sc *scene) srvLocked(f func(), c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func settleLocked(d *Delivery, st amqp.DeliveryState) {
	d.done = true
	d.link.forgetLocked(d)
	d.link.s.ackLocked(amqp.RoleReceiver, d.id, true, st)
}

func TestHostileRangesCostNoMoreThanWhatIsUnsettled(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		q := sc.echo.queue("q")
		for i := range 5 {
			q.put(encode(fmt.Sprint(i)))
		}
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		p.attach(0, 1, amqp.RoleSender, "hold")
		p.send(0, linkFlow(0, 0, 3), nil)
		for range 3 {
			expect[*amqp.Transfer](p)
		}
		p.send(0, message(1, 0), []byte("x"))
		for _, r := range [][2]uint32{{1 << 31, 1<<32 - 1}, {3, 1 << 31}, {1<<32 - 1, 1<<32 - 1}, {0, 1<<32 - 1}} {
			for _, role := range []amqp.Role{amqp.RoleReceiver, amqp.RoleSender} {
				for range 1000 {
					p.send(0, &amqp.Disposition{Role: role, First: r[0], Last: r[1], Settled: true, State: amqp.Accepted{}}, nil)
				}
			}
		}
		p.send(0, &amqp.Flow{HasNextIncomingID: true, IncomingWindow: 5, OutgoingWindow: 5, Echo: true}, nil)
		expect[*amqp.Flow](p)
		if got := len(q.states()); got != 3 {
			t.Errorf("%d outcomes were told, want 3", got)
		}
		d := sc.echo.takeHeld()[0]
		d.Link().Settle(d, amqp.Accepted{}) // its sender has settled it: nothing to say
		p.send(0, &amqp.Detach{Handle: 1, Closed: true}, nil)
		expect[*amqp.Detach](p)
	})
}

func TestInterleavedAndAbortedDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "hold")
		p.attach(0, 1, amqp.RoleSender, "hold2")
		more := func(handle, id uint32) *amqp.Transfer { m := message(handle, id); m.More = true; return m }
		p.send(0, more(0, 0), []byte("a1"))
		p.send(0, more(1, 1), []byte("b1"))
		p.send(0, &amqp.Transfer{Handle: 0, More: true}, []byte("a2"))
		p.send(0, &amqp.Transfer{Handle: 1, Aborted: true, More: true}, []byte("never"))
		p.send(0, message(1, 2), []byte("c"))
		p.send(0, &amqp.Transfer{Handle: 0}, []byte("a3"))
		held := sc.awaitHeld(2)
		if got := fmt.Sprintf("%s %s", held[0].Payload, held[1].Payload); got != "c a1a2a3" {
			t.Errorf("delivered %q, want %q", got, "c a1a2a3")
		}
		if got := string(held[1].Tag); got != "0" {
			t.Errorf("tag = %q, want 0", got)
		}
	})
}

func TestLinkOfTheSameNameIsStolen(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.begin(1)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		p.send(1, rawAttach(0, amqp.RoleReceiver, "q"), nil)
		if d := expect[*amqp.Detach](p); cond(d.Error) != string(amqp.ErrCondLinkStolen) || !d.Closed {
			t.Errorf("detach = %v, want link:stolen", d.Error)
		}
		if a := expect[*amqp.Attach](p); a.Source == nil {
			t.Errorf("the new link was refused")
		}
		// A sender of that name is another link.
		a := rawAttach(1, amqp.RoleSender, "q")
		a.Name = "q-0-receiver"
		p.send(1, a, nil)
		if a := expect[*amqp.Attach](p); a.Target == nil {
			t.Errorf("the sender was refused")
		}
	})
}

func TestLimitsOfLinks(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		if b := p.begin(0); b.HandleMax != 2 {
			t.Errorf("handle-max = %d, want 2", b.HandleMax)
		}
		p.begin(1)
		for h := range uint32(3) {
			p.attach(0, h, amqp.RoleReceiver, "q")
		}
		if a := p.attach(1, 0, amqp.RoleReceiver, "p"); a.Source != nil {
			t.Errorf("the fourth link has a source, want a refusal")
		}
		if d := expect[*amqp.Detach](p); cond(d.Error) != string(amqp.ErrCondResourceLimitExceeded) {
			t.Errorf("detach = %v, want resource-limit-exceeded", d.Error)
		}
		p.send(1, &amqp.Detach{Handle: 0, Closed: true}, nil)
		p.send(0, &amqp.Detach{Handle: 1, Closed: true}, nil)
		expect[*amqp.Detach](p)
		if a := p.attach(1, 0, amqp.RoleReceiver, "p"); a.Source == nil {
			t.Errorf("a link was refused though one had gone")
		}
	}, func(c *Config) { c.MaxLinks = 3 })
}

func TestUnfinishedDeliveriesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		for h := range uint32(4) {
			p.attach(0, h, amqp.RoleSender, "hold")
			m := message(h, h)
			m.More = true
			p.send(0, m, make([]byte, 300))
		}
		if d := expect[*amqp.Detach](p); d.Handle != 3 || cond(d.Error) != string(amqp.ErrCondResourceLimitExceeded) {
			t.Errorf("detach = %s, want handle 3 and resource-limit-exceeded", amqp.Trace(d, 0))
		}
		p.send(0, &amqp.Transfer{Handle: 0, Aborted: true}, nil) // makes room
		p.send(0, &amqp.Transfer{Handle: 1, More: true}, make([]byte, 300))
		p.send(0, &amqp.Transfer{Handle: 1}, make([]byte, 300))
		if got := len(sc.awaitHeld(1)[0].Payload); got != 900 {
			t.Errorf("delivery has %d bytes, want 900", got)
		}
	}, func(c *Config) { c.MaxBuffered = 1000 })
}

func TestHandlerIsToldOfItsDetachThoughThePeerIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "hold")
		p.attach(0, 1, amqp.RoleReceiver, "q")
		p.send(0, message(0, 0), []byte("x"))
		d := sc.awaitHeld(1)[0]
		d.Link().Detach(nil)
		synctest.Wait()
		if got := fmt.Sprint(sc.echo.notes()); got != "[sink hold: -]" {
			t.Errorf("handler noted %s, want [sink hold: -]", got)
		}
		d.Link().Session().End(nil)
		synctest.Wait()
		if got := fmt.Sprint(sc.echo.notes()); got != "[sink hold: - source q: -]" {
			t.Errorf("handler noted %s, want the source's end too", got)
		}
	})
}

func TestHeaderNegotiation(t *testing.T) {
	tests := []struct {
		name, sent string
		want       string // prefix of what comes before the end
	}{
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "AMQP\x03\x01\x00\x00"},
		{"AMQP 0-9-1", "AMQP\x00\x00\x09\x01", "AMQP\x03\x01\x00\x00"},
		{"AMQP 2", "AMQP\x00\x02\x00\x00", "AMQP\x03\x01\x00\x00"},
		{"TLS layer", "AMQP\x02\x01\x00\x00", "AMQP\x03\x01\x00\x00"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "AMQP\x03\x01\x00\x00"},
		{"nothing", "", ""},
		{"half a header", "AMQ", ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, sc *scene) {
				nc := sc.pipe()
				go func() {
					_, _ = io.WriteString(nc, tc.sent) // the server may refuse before the end
				}()
				start := time.Now()
				got, err := io.ReadAll(nc)
				if err != nil {
					t.Fatalf("reading: %v", err)
				}
				if string(got) != tc.want {
					t.Errorf("server said % x, want % x", got, tc.want)
				}
				if took := time.Since(start); took > 35*time.Second {
					t.Errorf("server hung up after %v, want 35s at most", took)
				}
				if err := <-sc.errs; err == nil {
					t.Errorf("ServeConn = nil, want an error")
				}
			})
		})
	}
}

func TestSASL(t *testing.T) {
	tests := []struct {
		mechanism amqp.Symbol
		code      uint8
	}{{"MSSBCBS", 0}, {"PLAIN", 0}, {"ANONYMOUS", 0}, {"EXTERNAL", 0}, {"SCRAM-SHA-1", 1}}
	for _, tc := range tests {
		t.Run(string(tc.mechanism), func(t *testing.T) {
			bubble(t, func(t *testing.T, sc *scene) {
				nc := sc.pipe()
				b := append([]byte(nil), amqp.ProtoSASL[:]...)
				b = amqp.AppendSASLFrame(b, &amqp.SASLInit{Mechanism: tc.mechanism, InitialResponse: []byte("\x00a\x00b")})
				b = append(b, amqp.ProtoAMQP[:]...)
				b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "c", MaxFrameSize: 512}, nil)
				go func() {
					_, _ = nc.Write(b)
				}()
				fr := amqp.NewFrameReader(nc, 1<<16)
				if proto, err := fr.ReadProto(); err != nil || proto != amqp.ProtoSASL {
					t.Fatalf("header % x, %v, want SASL", proto, err)
				}
				read := func() amqp.Performative {
					f, err := fr.Next()
					if err != nil {
						t.Fatalf("Next: %v", err)
					}
					p, _, err := amqp.DecodePerformative(f.Body)
					if err != nil {
						t.Fatalf("Decode: %v", err)
					}
					return p
				}
				if m, ok := read().(*amqp.SASLMechanisms); !ok || fmt.Sprint(m.Mechanisms) != "[MSSBCBS PLAIN ANONYMOUS EXTERNAL]" {
					t.Errorf("mechanisms = %v", m)
				}
				o, ok := read().(*amqp.SASLOutcome)
				if !ok || o.Code != tc.code {
					t.Fatalf("outcome = %+v, want code %d", o, tc.code)
				}
				if tc.code != 0 {
					if _, err := fr.Next(); !errors.Is(err, io.EOF) {
						t.Errorf("after a refusal: %v, want EOF", err)
					}
					return
				}
				if string(o.AdditionalData) != "Welcome!" {
					t.Errorf("additional-data = %q, want Welcome!", o.AdditionalData)
				}
				if proto, err := fr.ReadProto(); err != nil || proto != amqp.ProtoAMQP {
					t.Fatalf("header % x, %v, want AMQP", proto, err)
				}
				if open, ok := read().(*amqp.Open); !ok || open.ChannelMax != 4999 || open.IdleTimeout != 240000 || open.MaxFrameSize != 65536 {
					t.Errorf("open = %+v", open)
				}
			})
		})
	}
}

func TestMalformedInputIsRefusedWithTheConditionOfTheSpec(t *testing.T) {
	frame := func(ch uint16, p amqp.Performative, payload string) []byte {
		return amqp.AppendFrame(nil, ch, p, []byte(payload))
	}
	begin := frame(0, &amqp.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10}, "")
	attach := frame(0, rawAttach(0, amqp.RoleSender, "hold"), "")
	receive := frame(0, rawAttach(0, amqp.RoleReceiver, "q"), "")
	join := func(bs ...[]byte) []byte { return bytes.Join(bs, nil) }
	noTag := message(0, 0)
	noTag.DeliveryTag = nil
	noID := message(0, 0)
	noID.HasDeliveryID = false
	first := message(0, 0)
	first.More = true
	resume := message(0, 0)
	resume.Resume = true
	tests := []struct {
		name string
		sent []byte
		want string // kind of frame and condition of the refusal
	}{
		{"frame larger than max-frame-size", []byte{0x7f, 0, 0, 0, 2, 0, 0, 0}, "close amqp:connection:framing-error"},
		{"frame smaller than its header", []byte{0, 0, 0, 4, 2, 0, 0, 0}, "close amqp:connection:framing-error"},
		{"data offset beyond the frame", []byte{0, 0, 0, 8, 9, 0, 0, 0}, "close amqp:connection:framing-error"},
		{"data offset within the header", []byte{0, 0, 0, 8, 1, 0, 0, 0}, "close amqp:connection:framing-error"},
		{"SASL frame after open", []byte{0, 0, 0, 8, 2, 1, 0, 0}, "close amqp:connection:framing-error"},
		{"no performative", []byte{0, 0, 0, 9, 2, 0, 0, 0, 0x40}, "close amqp:decode-error"},
		{"unknown performative", []byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x99, 0x45}, "close amqp:decode-error"},
		{"list longer than the frame", []byte{0, 0, 0, 13, 2, 0, 0, 0, 0, 0x53, 0x11, 0xc0, 0xff}, "close amqp:decode-error"},
		{"begin without mandatory fields", []byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x11, 0x45}, "close amqp:decode-error"},
		{"second open", frame(0, &amqp.Open{ContainerID: "x"}, ""), "close amqp:not-allowed"},
		{"channel above channel-max", frame(5000, &amqp.Begin{}, ""), "close amqp:connection:framing-error"},
		{"second begin on a channel", join(begin, begin), "close amqp:not-allowed"},
		{"answer to a begin that was never sent", frame(0, &amqp.Begin{HasRemoteChannel: true}, ""), "close amqp:not-allowed"},
		{"flow without a session", frame(7, &amqp.Flow{}, ""), "close amqp:not-allowed"},
		{"end without a session", frame(7, &amqp.End{}, ""), "close amqp:not-allowed"},
		{"handle above handle-max", join(begin, frame(0, rawAttach(1<<31, amqp.RoleSender, "q"), "")), "close amqp:connection:framing-error"},
		{"handle in use", join(begin, attach, frame(0, rawAttach(0, amqp.RoleSender, "other"), "")), "end amqp:session:handle-in-use"},
		{"flow of an unattached handle", join(begin, frame(0, linkFlow(3, 0, 1), "")), "end amqp:session:unattached-handle"},
		{"transfer on an unattached handle", join(begin, frame(0, message(3, 0), "x")), "end amqp:session:unattached-handle"},
		{"detach of an unattached handle", join(begin, frame(0, &amqp.Detach{Handle: 3}, "")), "end amqp:session:unattached-handle"},
		{"transfer without delivery-id", join(begin, attach, frame(0, noID, "x")), "detach amqp:invalid-field"},
		{"transfer without delivery-tag", join(begin, attach, frame(0, noTag, "x")), "detach amqp:invalid-field"},
		{"transfer that resumes", join(begin, attach, frame(0, resume, "x")), "detach amqp:not-implemented"},
		{"transfer from a receiver", join(begin, receive, frame(0, message(0, 0), "x")), "detach amqp:not-allowed"},
		{"delivery within a delivery", join(begin, attach, frame(0, first, "x"), frame(0, message(0, 1), "x")), "detach amqp:not-allowed"},
		{"delivery-id that falls", join(begin, attach, frame(0, message(0, 5), "x"), frame(0, message(0, 4), "x")), "end amqp:invalid-field"},
		{"transfer without credit", join(begin, frame(0, rawAttach(0, amqp.RoleSender, "hold two"), ""), frame(0, message(0, 0), "x"), frame(0, message(0, 1), "x"), frame(0, message(0, 2), "x")), "detach amqp:link:transfer-limit-exceeded"},
		{"no target", join(begin, frame(0, &amqp.Attach{Name: "n", Role: amqp.RoleSender}, "")), "detach amqp:invalid-field"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, sc *scene) {
				p := sc.raw()
				p.open()
				p.write(tc.sent)
				for {
					var got string
					var e *amqp.Error
					switch f := p.next().(type) {
					case *amqp.Begin, *amqp.Attach, *amqp.Flow:
						continue
					case *amqp.Detach:
						got, e = "detach", f.Error
					case *amqp.End:
						got, e = "end", f.Error
					case *amqp.Close:
						got, e = "close", f.Error
					default:
						t.Fatalf("got %T (%v), want %s", f, p.err, tc.want)
					}
					if got += " " + cond(e); got != tc.want {
						t.Fatalf("got %s (%v), want %s", got, e, tc.want)
					}
					if len(e.Description) < 10 {
						t.Errorf("description = %q, want a sentence", e.Description)
					}
					return
				}
			}, func(c *Config) { c.IncomingWindow = 100 })
		})
	}
}

func TestBadOpensAreAnsweredByOpenAndClose(t *testing.T) {
	tests := []struct {
		name string
		sent []byte
		want amqp.Symbol
	}{
		{"max-frame-size too small", amqp.AppendFrame(nil, 0, &amqp.Open{ContainerID: "x", MaxFrameSize: 100}, nil), amqp.ErrCondInvalidField},
		{"idle-time-out too short", amqp.AppendFrame(nil, 0, &amqp.Open{ContainerID: "x", IdleTimeout: 1}, nil), amqp.ErrCondNotAllowed},
		{"begin in place of open", amqp.AppendFrame(nil, 0, &amqp.Begin{}, nil), amqp.ErrCondNotAllowed},
		{"frame too large", []byte{0x7f, 0, 0, 0, 2, 0, 0, 0}, amqp.ErrCondConnectionFramingError},
		{"empty frame", []byte{0, 0, 0, 8, 2, 0, 0, 0}, amqp.ErrCondDecodeError},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, sc *scene) {
				p := sc.raw()
				p.listen()
				p.write(amqp.ProtoAMQP[:])
				p.write(tc.sent)
				expect[*amqp.Open](p)
				if c := expect[*amqp.Close](p); cond(c.Error) != string(tc.want) {
					t.Errorf("close = %v, want %s", c.Error, tc.want)
				}
			})
		})
	}
}

func TestSerialNumbersWrap(t *testing.T) {
	var u unsettled[*int]
	v := new(int)
	start := uint32(math.MaxUint32 - 50)
	for i := range uint32(100) {
		u.add(start+i, v)
	}
	for i := range uint32(100) {
		if i%3 == 0 && !u.remove(start+i, v) {
			t.Fatalf("remove %d = false, want true", start+i)
		}
	}
	n := 0
	u.each(start+10, start+89, func(*int) bool { n++; return true })
	if want := 80 - 26; n != want || u.live != 100-34-want {
		t.Errorf("each met %d and left %d, want %d and %d", n, u.live, want, 100-34-want)
	}
	u.all(func(*int) bool { return true })
	if u.live != 0 || len(u.entries) != 0 {
		t.Errorf("%d entries, %d live after all were removed", len(u.entries), u.live)
	}
}

func TestUnsettledSpaceIsThatOfTheLiving(t *testing.T) {
	var u unsettled[*int]
	v := new(int)
	u.add(0, v) // stays
	for i := uint32(1); i < 1_000_000; i++ {
		u.add(i, v)
		u.remove(i, v)
	}
	if cap(u.entries) > 64 {
		t.Errorf("room for %d entries is kept for one delivery", cap(u.entries))
	}
}
