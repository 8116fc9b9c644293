// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/testing/brokertest"
)

// passOn watches every link, hears of every outcome and holds nothing.
type passOn struct{}

func (passOn) Deliver(*Delivery) (DeliveryHandler, *amqp.Error) { return passOn{}, nil }
func (passOn) Detached()                                        {}
func (passOn) Settled(_ amqp.DeliveryState, answerer Answerer)  { answerer.Answer(nil) }

// BenchmarkSend measures what a relay costs: 16 senders, 256 bytes, over loopback, straight to the
// broker and through the relay. Clients and broker allocate the same in both; the difference is the
// relay's. On one connection many frames share a write; on connections of their own each send costs
// two more reads and writes.
func BenchmarkSend(b *testing.B) {
	for _, conns := range []int{1, 16} {
		for _, way := range []string{"direct", "relayed", "watched"} {
			b.Run(fmt.Sprintf("conns=%d/%s", conns, way), func(b *testing.B) { benchmark(b, way, conns, sendAll) })
		}
	}
}

// BenchmarkLatency is one sender.
func BenchmarkLatency(b *testing.B) {
	for _, way := range []string{"direct", "relayed", "watched"} {
		b.Run(way, func(b *testing.B) {
			benchmark(b, way, 1, func(b *testing.B, senders []*goamqp.Sender) { sendAll(b, senders[:1]) })
		})
	}
}

func sendAll(b *testing.B, senders []*goamqp.Sender) {
	var wg sync.WaitGroup
	payload := make([]byte, 256)
	for i, sender := range senders {
		n := b.N / len(senders)
		if i < b.N%len(senders) {
			n++
		}
		wg.Go(func() {
			for range n {
				if err := sender.Send(context.Background(), goamqp.NewMessage(payload), nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func benchmark(b *testing.B, way string, conns int, run func(*testing.B, []*goamqp.Sender)) {
	ns := brokertest.NewTCP(b)
	dial := ns.Dial
	if way != "direct" {
		cfg := Config{Dial: ns.Dial, Hostname: "overdue.test"}
		if way == "watched" {
			cfg.Watch = func(Link) Watcher { return passOn{} }
		}
		r := New(cfg)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- r.Serve(ln) }()
		defer func() {
			if err := r.Close(); err != nil {
				b.Error(err)
			}
			<-done
		}()
		dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", ln.Addr().String())
		}
	}
	var open []*goamqp.Conn
	var senders []*goamqp.Sender
	for i := range 16 {
		if i < conns {
			nc, err := dial(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			c, err := goamqp.NewConn(b.Context(), nc, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			open = append(open, c)
		}
		session, err := open[i%conns].NewSession(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		sender, err := session.NewSender(b.Context(), "orders", nil)
		if err != nil {
			b.Fatal(err)
		}
		senders = append(senders, sender)
	}
	b.ReportAllocs()
	b.ResetTimer()
	run(b, senders)
	b.StopTimer()
}
