// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"overdue/internal/amqp"
)

// sinkHandler hands its links to the test and defers their answers.
type sinkHandler struct {
	conns     chan *Conn
	sinks     chan *SinkLink
	sources   chan *SourceLink
	delivered chan *Delivery
}

func setupSink(sc *scene) *sinkHandler {
	h := &sinkHandler{make(chan *Conn, 10), make(chan *SinkLink, 10), make(chan *SourceLink, 10), make(chan *Delivery, 100)}
	sc.srv.cfg.Handler = h
	return h
}

func (h *sinkHandler) Connect(c *Conn) (ConnHandler, *amqp.Error) { h.conns <- c; return h, nil }
func (h *sinkHandler) Closed(error)                               {}
func (h *sinkHandler) AttachSink(l *SinkLink) (Sink, *amqp.Error) {
	h.sinks <- l
	return nil, nil
}
func (h *sinkHandler) AttachSource(l *SourceLink) (Source, *amqp.Error) {
	h.sources <- l
	return nil, nil
}
func (h *sinkHandler) Deliver(d *Delivery)    { h.delivered <- d }
func (h *sinkHandler) Detached(e *amqp.Error) {}

func TestConnectionDescribesItsPeer(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		h := setupSink(sc)
		nc := sc.pipe()
		go func() {
			_, _ = io.Copy(io.Discard, nc)
		}()
		b := append([]byte(nil), amqp.ProtoSASL[:]...)
		b = amqp.AppendSASLFrame(b, &amqp.SASLInit{Mechanism: "PLAIN", InitialResponse: []byte("\x00user\x00key")})
		b = append(b, amqp.ProtoAMQP[:]...)
		b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "me", Hostname: "you", MaxFrameSize: 512}, nil)
		b = amqp.AppendFrame(b, 7, &amqp.Begin{IncomingWindow: 10, HandleMax: 10}, nil)
		b = amqp.AppendFrame(b, 7, rawAttach(3, amqp.RoleSender, "q"), nil)
		if _, err := nc.Write(b); err != nil {
			t.Fatalf("Write: %v", err)
		}
		c, l := <-h.conns, <-h.sinks
		mechanism, response := c.SASL()
		got := fmt.Sprint(c.ID(), c.Open().ContainerID, c.Hostname(), c.Open().MaxFrameSize, mechanism, string(response), c.RemoteAddr() == c.NetConn().RemoteAddr())
		if want := fmt.Sprint(1, "me", "you", 512, "PLAIN", "\x00user\x00key", true); got != want {
			t.Errorf("connection says %q, want %q", got, want)
		}
		if l.Conn() != c || l.Session().Conn() != c || l.Session().Channel() != 7 || l.Name() != "q-3-sender" || l.Attach().Handle != 3 {
			t.Errorf("link %q on channel %d of connection %d", l.Name(), l.Session().Channel(), l.Conn().ID())
		}
	})
}

func TestDeferredAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		h := setupSink(sc)
		p := sc.raw()
		p.open()
		p.begin(0)
		p.send(0, rawAttach(0, amqp.RoleSender, "q"), nil)
		l := <-h.sinks
		l.Refuse(amqp.Errorf(amqp.ErrCondNotAllowed, "Not now."))
		l.Refuse(amqp.Errorf(amqp.ErrCondNotAllowed, "Said already."))
		if l.Accept(h) {
			t.Error("Accept after Refuse = true, want false")
		}
		if a := expect[*amqp.Attach](p); a.Target != nil || a.Source != nil {
			t.Errorf("attach with target %v, source %v, want neither", a.Target, a.Source)
		}
		if d := expect[*amqp.Detach](p); d.Error == nil || d.Error.Description != "Not now." {
			t.Errorf("detach = %v", d.Error)
		}
		<-l.Done()

		// A transfer that does not wait for the answer has no credit.
		p.send(0, rawAttach(1, amqp.RoleSender, "q"), nil)
		p.send(0, message(1, 0), []byte("x"))
		expect[*amqp.Attach](p)
		if d := expect[*amqp.Detach](p); cond(d.Error) != string(amqp.ErrCondLinkTransferLimitExceeded) {
			t.Errorf("detach = %v, want transfer-limit-exceeded", d.Error)
		}
		if l := <-h.sinks; l.Accept(h) {
			t.Error("Accept of a link that is over = true, want false")
		}

		// Refusing a source, by Detach.
		p.send(0, rawAttach(2, amqp.RoleReceiver, "q"), nil)
		(<-h.sources).Detach(amqp.Errorf(amqp.ErrCondNotFound, "Nothing here."))
		if a := expect[*amqp.Attach](p); a.Source != nil || a.Target != nil {
			t.Errorf("attach with source %v, target %v, want neither", a.Source, a.Target)
		}
		if d := expect[*amqp.Detach](p); cond(d.Error) != string(amqp.ErrCondNotFound) {
			t.Errorf("detach = %v, want not-found", d.Error)
		}
	})
}

func TestReplyIsWhatTheHandlerSets(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		h := setupSink(sc)
		p := sc.raw()
		p.open()
		p.begin(0)
		p.send(0, rawAttach(0, amqp.RoleSender, "q"), nil)
		l := <-h.sinks
		l.Reply.Properties = amqp.Raw{0xc1, 1, 0}
		l.Reply.MaxMessageSize = 1234
		l.Reply.Credit = 10
		l.Reply.Target = &amqp.Target{Address: "elsewhere", HasAddress: true}
		if !l.Accept(h) {
			t.Fatal("Accept = false, want true")
		}
		a := expect[*amqp.Attach](p)
		if a.MaxMessageSize != 1234 || a.Target.Address != "elsewhere" || string(a.Properties) != "\xc1\x01\x00" {
			t.Errorf("attach = %s", amqp.Trace(a, 0))
		}
		if f := expect[*amqp.Flow](p); f.LinkCredit != 10 {
			t.Errorf("credit = %d, want 10", f.LinkCredit)
		}
		// The peer gives up six credits, and gets them again.
		f := linkFlow(0, 6, 4)
		p.send(0, f, nil)
		if f := expect[*amqp.Flow](p); f.LinkCredit != 10 || f.DeliveryCount != 6 {
			t.Errorf("flow = %s, want credit 10 from delivery-count 6", amqp.Trace(f, 0))
		}
		f.Echo = true
		p.send(0, f, nil)
		if f := expect[*amqp.Flow](p); f.LinkCredit != 10 || !f.HasHandle {
			t.Errorf("echo = %s, want credit 10", amqp.Trace(f, 0))
		}
	})
}

func TestRecordsOfADelivery(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		h := setupSink(sc)
		p := sc.raw()
		p.open()
		p.begin(0)
		p.send(0, rawAttach(0, amqp.RoleSender, "q"), nil)
		l := <-h.sinks
		l.Accept(h)
		m := message(0, 0)
		m.MessageFormat, m.State, m.More = amqp.BatchMessageFormat, &amqp.TransactionalState{TxnID: []byte("txn")}, true
		p.send(0, m, []byte("he"))
		p.send(0, &amqp.Transfer{Settled: true, HasSettled: true}, []byte("llo"))
		d := <-h.delivered
		st, ok := d.State.(*amqp.TransactionalState)
		if d.Format != amqp.BatchMessageFormat || !ok || string(st.TxnID) != "txn" || !d.Settled || string(d.Payload) != "hello" || cap(d.Payload) > 8 || d.Link() != l {
			t.Errorf("delivery = %+v", d)
		}
	})
}

func TestStatesThatSayTheSameMerge(t *testing.T) {
	txn := func(id string, st amqp.DeliveryState) amqp.DeliveryState {
		return &amqp.TransactionalState{TxnID: []byte(id), Outcome: st}
	}
	tests := []struct {
		a, b amqp.DeliveryState
		want bool
	}{
		{amqp.Accepted{}, amqp.Accepted{}, true},
		{amqp.Accepted{}, amqp.Released{}, false},
		{amqp.Accepted{}, nil, false},
		{&amqp.Rejected{}, &amqp.Rejected{}, true},
		{&amqp.Rejected{}, &amqp.Rejected{Error: &amqp.Error{}}, false},
		{&amqp.Modified{}, &amqp.Modified{}, true},
		{&amqp.Modified{UndeliverableHere: true}, &amqp.Modified{}, false},
		{&amqp.Modified{MessageAnnotations: amqp.Map{{Key: "a"}}}, &amqp.Modified{}, false},
		{txn("a", amqp.Accepted{}), txn("a", amqp.Accepted{}), true},
		{txn("a", amqp.Accepted{}), txn("b", amqp.Accepted{}), false},
		{txn("a", amqp.Accepted{}), txn("a", nil), false},
	}
	for _, tc := range tests {
		if got := sameState(tc.a, tc.b); got != tc.want {
			t.Errorf("sameState(%#v, %#v) = %v, want %v", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestErrorsAreCutToTheSmallestFrame(t *testing.T) {
	e := &amqp.Error{Condition: amqp.Symbol(strings.Repeat("c", 400)), Description: strings.Repeat("日", 400), Info: amqp.Map{{Key: "k", Value: strings.Repeat("v", 1000)}}}
	for _, p := range []amqp.Performative{
		&amqp.Detach{Handle: 1<<32 - 1, Closed: true, Error: e}, &amqp.End{Error: e}, &amqp.Close{Error: e},
		&amqp.Disposition{Role: amqp.RoleSender, First: 1 << 31, Last: 1<<32 - 1, Settled: true, State: &amqp.Rejected{Error: e}},
	} {
		b := amqp.AppendFrame(nil, 65535, amqp.Shortened(p), nil)
		if len(b) > 512 {
			t.Errorf("%T has %d bytes, want 512 at most", p, len(b))
		}
		if _, _, err := amqp.DecodePerformative(b[8:]); err != nil {
			t.Errorf("%T: %v", p, err)
		}
	}
	if got := amqp.Shortened(&amqp.End{}); got != nil {
		t.Errorf("shortened without an error = %v, want nil", got)
	}
}

func TestTraceNamesEveryFrameAndNoPayload(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleSender, "sink")
		p.send(0, message(0, 0), []byte("secret"))
		expect[*amqp.Disposition](p)
		mu.Lock()
		defer mu.Unlock()
		var kinds []string
		for _, l := range lines {
			f := strings.Fields(l)
			kinds = append(kinds, f[0]+" "+strings.ToLower(strings.Trim(f[2], "@{}():")))
			if strings.Contains(l, "secret") {
				t.Errorf("line %q shows a payload", l)
			}
		}
		for i, want := range []string{"in open", "out open", "in begin", "out begin", "in attach", "out attach", "out flow", "in transfer", "out disposition"} {
			if i >= len(kinds) || !has(kinds[i], want) {
				t.Fatalf("frames = %q, want %q as number %d", lines, want, i)
			}
		}
	}, func(c *Config) {
		c.Trace = func(dir, line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, dir+" "+line)
		}
	})
}
