// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
)

// connections names the ways to reach the server.
func connections(b *testing.B, f func(b *testing.B, sc *scene, dial func() net.Conn)) {
	b.Run("pipe", func(b *testing.B) {
		sc := setup(b)
		f(b, sc, sc.pipe)
	})
	b.Run("tcp", func(b *testing.B) {
		sc := setup(b)
		address := sc.listen()
		f(b, sc, func() net.Conn {
			nc, err := net.Dial("tcp", address)
			if err != nil {
				b.Fatalf("Dial: %v", err)
			}
			return nc
		})
	})
}

// BenchmarkTransfersInRaw measures what the server takes: the peer pumps encoded frames and counts
// dispositions.
func BenchmarkTransfersInRaw(b *testing.B) {
	connections(b, func(b *testing.B, sc *scene, dial func() net.Conn) {
		p := &pump{b: b, nc: dial()}
		p.open(amqp.RoleSender)
		payload := make([]byte, 100)
		b.ReportAllocs()
		b.ResetTimer()
		var buf []byte
		m := message(0, 0)
		m.DeliveryTag = make([]byte, 16)
		for sent := uint32(0); sent < uint32(b.N); {
			n := min(uint32(b.N), p.allowance())
			buf = buf[:0]
			for ; sent < n && len(buf) < 60_000; sent++ {
				m.DeliveryID = sent
				buf = amqp.AppendFrame(buf, 0, m, payload)
			}
			if len(buf) == 0 {
				p.await(func() bool { return p.limit > sent })
			} else if _, err := p.nc.Write(buf); err != nil {
				b.Fatalf("Write: %v", err)
			}
		}
		p.await(func() bool { return p.settled >= uint32(b.N) })
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transfers/s")
	})
}

// BenchmarkTransfersOutRaw measures what the server sends: the peer counts transfers, grants credit
// and settles.
func BenchmarkTransfersOutRaw(b *testing.B) {
	connections(b, func(b *testing.B, sc *scene, dial func() net.Conn) {
		h := &benchSource{ready: make(chan *SourceLink, 1), credit: make(chan struct{}, 1)}
		sc.srv.cfg.Handler = h
		p := &pump{b: b, nc: dial()}
		p.open(amqp.RoleReceiver)
		l := <-h.ready
		b.ReportAllocs()
		b.ResetTimer()
		payload, tag := make([]byte, 100), make([]byte, 16)
		for range b.N {
			for {
				_, err := l.SendOut(Outgoing{Tag: tag, Payload: payload})
				if err == nil {
					break
				}
				if !errors.Is(err, ErrNoCredit) {
					b.Fatalf("SendOut: %v", err)
				}
				<-h.credit
			}
		}
		p.await(func() bool { return p.received >= uint32(b.N) })
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transfers/s")
	})
}

type benchSource struct {
	ready   chan *SourceLink
	credit  chan struct{}
	settled atomic.Int64
}

func (h *benchSource) Connect(*Conn) (ConnHandler, *amqp.Error) { return h, nil }
func (h *benchSource) Closed(error)                             {}
func (h *benchSource) AttachSink(*SinkLink) (Sink, *amqp.Error) {
	return nil, &amqp.Error{Condition: amqp.ErrCondNotAllowed}
}
func (h *benchSource) AttachSource(l *SourceLink) (Source, *amqp.Error) {
	h.ready <- l
	return h, nil
}
func (h *benchSource) Flow(Flow) {
	select {
	case h.credit <- struct{}{}:
	default:
	}
}
func (h *benchSource) Disposition(ds []*Outgone, _ amqp.DeliveryState, _ bool) {
	h.settled.Add(int64(len(ds)))
}
func (h *benchSource) Detached(*amqp.Error) {}

// pump is a peer that costs as little as possible.
type pump struct {
	b  *testing.B
	nc net.Conn

	mu       sync.Mutex
	cond     *sync.Cond
	limit    uint32 // deliveries that may be sent
	settled  uint32
	received uint32
	err      error
}

func (p *pump) await(f func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !f() {
		if p.err != nil {
			p.b.Fatalf("peer: %v", p.err)
		}
		p.cond.Wait()
	}
}

func (p *pump) allowance() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

func (p *pump) open(role amqp.Role) {
	p.cond = sync.NewCond(&p.mu)
	const window = 1 << 20
	a := rawAttach(0, role, "sink")
	w := append([]byte(nil), amqp.ProtoAMQP[:]...)
	w = amqp.AppendFrame(w, 0, &amqp.Open{ContainerID: "pump", MaxFrameSize: 65536}, nil)
	w = amqp.AppendFrame(w, 0, &amqp.Begin{IncomingWindow: window, OutgoingWindow: window, HandleMax: 10}, nil)
	w = amqp.AppendFrame(w, 0, a, nil)
	go p.read(role)
	if role == amqp.RoleReceiver {
		w = amqp.AppendFrame(w, 0, p.grant(0), nil)
	}
	if _, err := p.nc.Write(w); err != nil {
		p.b.Fatalf("Write: %v", err)
	}
	if role == amqp.RoleSender {
		p.await(func() bool { return p.limit > 0 })
	}
}

func (p *pump) grant(received uint32) *amqp.Flow {
	f := linkFlow(0, received, 4000)
	f.IncomingWindow = 1 << 20
	return f
}

func (p *pump) read(role amqp.Role) {
	fr := amqp.NewFrameReader(p.nc, 1<<20)
	_, err := fr.ReadProto()
	var dec amqp.Decoder
	out := make(chan []byte, 100) // reading never waits for writing
	defer close(out)
	go func() {
		for b := range out {
			if _, err := p.nc.Write(b); err != nil {
				return // the reader finds the same
			}
		}
	}()
	received, acked := uint32(0), uint32(0)
	for err == nil {
		var f amqp.Frame
		if f, err = fr.Next(); err != nil {
			break
		}
		if role == amqp.RoleReceiver && len(f.Body) > 100 { // a transfer
			received++
			if !fr.Ready() || received-acked >= 1000 {
				w := amqp.AppendFrame(nil, 0, &amqp.Disposition{Role: amqp.RoleReceiver, First: acked, Last: received - 1, Settled: true, State: amqp.Accepted{}}, nil)
				w = amqp.AppendFrame(w, 0, p.grant(received), nil)
				acked = received
				out <- w
				p.mu.Lock()
				p.received = received
				p.cond.Broadcast()
				p.mu.Unlock()
			}
			continue
		}
		var perf amqp.Performative
		if perf, _, err = dec.Decode(f.Body); err != nil {
			break
		}
		p.mu.Lock()
		switch perf := perf.(type) {
		case *amqp.Flow:
			if perf.HasHandle {
				p.limit = perf.DeliveryCount + perf.LinkCredit
			}
		case *amqp.Disposition:
			p.settled += perf.Last - perf.First + 1
		}
		p.cond.Broadcast()
		p.mu.Unlock()
	}
	p.mu.Lock()
	if p.err = err; errors.Is(err, io.EOF) {
		p.err = io.ErrUnexpectedEOF
	}
	p.cond.Broadcast()
	p.mu.Unlock()
}

// BenchmarkSendGoAMQP is bound by the client: 64 goroutines that wait for their disposition.
func BenchmarkSendGoAMQP(b *testing.B) {
	connections(b, func(b *testing.B, sc *scene, dial func() net.Conn) {
		s := session(b, sc.dial(dial(), nil))
		sender, err := s.NewSender(ctx, "sink", nil)
		if err != nil {
			b.Fatalf("NewSender: %v", err)
		}
		m := goamqp.NewMessage(make([]byte, 100))
		var left atomic.Int64
		left.Store(int64(b.N))
		b.ResetTimer()
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if err := sender.Send(ctx, m, nil); err != nil {
						b.Errorf("Send: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transfers/s")
	})
}

// BenchmarkReceiveGoAMQP is bound by the client: it takes pre-settled deliveries on 1000 credits.
func BenchmarkReceiveGoAMQP(b *testing.B) {
	connections(b, func(b *testing.B, sc *scene, dial func() net.Conn) {
		h := &benchSource{ready: make(chan *SourceLink, 1), credit: make(chan struct{}, 1)}
		sc.srv.cfg.Handler = h
		s := session(b, sc.dial(dial(), nil))
		r, err := s.NewReceiver(ctx, "q", &goamqp.ReceiverOptions{Credit: 1000})
		if err != nil {
			b.Fatalf("NewReceiver: %v", err)
		}
		l := <-h.ready
		payload, err := goamqp.NewMessage(make([]byte, 100)).MarshalBinary()
		if err != nil {
			b.Fatalf("MarshalBinary: %v", err)
		}
		b.ResetTimer()
		sent := make(chan error, 1)
		go func() {
			for i := 0; i < b.N; {
				switch _, err := l.SendOut(Outgoing{Tag: []byte("t"), Payload: payload, Settled: true}); {
				case err == nil:
					i++
				case errors.Is(err, ErrNoCredit):
					<-h.credit
				default:
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		for range b.N {
			if _, err := r.Receive(ctx, nil); err != nil {
				b.Fatalf("Receive: %v", err)
			}
		}
		if err := <-sent; err != nil {
			b.Errorf("SendOut: %v", err)
		}
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transfers/s")
	})
}
