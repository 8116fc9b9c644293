// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/slack"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// The cost of the slack of a settlement, beside that of its observation.
func BenchmarkSettle(b *testing.B) {
	message := &goamqp.Message{
		Header: &goamqp.MessageHeader{TTL: time.Minute}, Properties: &goamqp.MessageProperties{MessageID: "0f8fad5b-d9cb-469f-a165-70867728950e"},
		Annotations: goamqp.Annotations{"x-opt-enqueued-time": time.Now(), "x-opt-sequence-number": int64(7), "x-opt-locked-until": time.Now()},
		Data:        [][]byte{make([]byte, 256)},
	}
	payload, err := message.MarshalBinary()
	if err != nil {
		b.Fatal(err)
	}
	ns := brokertest.New(b)
	for _, expected := range []bool{true, false} {
		for name, meter := range map[string]*slack.Meter{"without slack": nil, "with slack": slack.NewMeter(nil)} {
			kind := "slots"
			if expected {
				kind = "each"
			}
			b.Run(kind+", "+name, func(b *testing.B) {
				s, err := scheduler.New(scheduler.Config{MonitorQueue: monitorQueue, Links: ns.Links(b)})
				if err != nil {
					b.Fatal(err)
				}
				if err := s.MeasureClock(b.Context()); err != nil {
					b.Fatal(err)
				}
				if now := time.Now(); expected {
					s.Expect("orders", []scheduler.Reference{{MessageID: "0f8fad5b-d9cb-469f-a165-70867728950e", From: now, Until: now.Add(time.Hour), Deadline: now.Add(2 * time.Hour)}})
				}
				l := &settleLink{p: &Proxy{cfg: Config{Scheduler: s, Slack: meter, Settings: func(string) Settings { return Settings{Monitored: true} }}}, entity: "orders", path: "orders", slack: meter.Link("orders")}
				b.ReportAllocs()
				for b.Loop() {
					if n, ok := l.Delivered(payload); ok {
						l.Settled(n)
					}
				}
			})
		}
	}
}

// BenchmarkReceiveAndComplete takes messages off a queue through the endpoint, over TCP. A profile
// says which part of the relay's time settleLink takes.
func BenchmarkReceiveAndComplete(b *testing.B) {
	for _, kind := range []string{"each", "slot"} {
		for _, measured := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s, measured %v", kind, measured), func(b *testing.B) {
				sc := settleScene(b, kind, measured)
				sc.fill(b, b.N)
				work := make(chan *goamqp.Message, 1000)
				var workers sync.WaitGroup
				for range 64 {
					workers.Go(func() {
						for m := range work {
							if err := sc.receiver.AcceptMessage(b.Context(), m); err != nil {
								b.Error(err)
							}
						}
					})
				}
				b.ResetTimer()
				for range b.N {
					m, err := sc.receiver.Receive(b.Context(), nil)
					if err != nil {
						b.Fatal(err)
					}
					work <- m
				}
				close(work)
				workers.Wait()
			})
		}
	}
}

// A settleApp receives through the AMQP endpoint of a proxy, all over TCP.
type settleApp struct {
	sender   *goamqp.Sender
	receiver *goamqp.Receiver
}

func settleScene(b *testing.B, kind string, measured bool) *settleApp {
	ns := brokertest.NewTCP(b, func(c *broker.Config) { c.AutoCreate = true })
	s, err := scheduler.New(scheduler.Config{MonitorQueue: monitorQueue, Links: ns.Links(b), Companions: kind})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.MeasureClock(b.Context()); err != nil {
		b.Fatal(err)
	}
	cfg := Config{
		Links: ns.Links(b), Scheduler: s, AMQP: relay.Config{Dial: ns.Dial, Hostname: "overdue.test"}, MonitorQueue: monitorQueue,
		Settings: func(string) Settings { return Settings{Monitored: true, StampTTL: true, Findable: true} },
	}
	if measured {
		cfg.Slack = slack.NewMeter(nil)
	}
	p, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = p.Serve(ln) }() // that it serves, the app shows
	b.Cleanup(func() { _ = p.Close(context.Background()) })
	conn, err := goamqp.Dial(b.Context(), "amqp://"+ln.Addr().String(), &goamqp.ConnOptions{HostName: "overdue.test", SASLType: goamqp.SASLTypeAnonymous()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	session, err := conn.NewSession(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	sc := &settleApp{}
	if sc.sender, err = session.NewSender(b.Context(), "orders", nil); err != nil {
		b.Fatal(err)
	}
	if sc.receiver, err = session.NewReceiver(b.Context(), "orders", &goamqp.ReceiverOptions{Credit: 500, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr()}); err != nil {
		b.Fatal(err)
	}
	return sc
}

// fill sends messages in batches.
func (sc *settleApp) fill(b *testing.B, n int) {
	for n > 0 {
		batch := &goamqp.Message{Format: amqp.BatchMessageFormat}
		for range min(n, 100) {
			m, err := (&goamqp.Message{
				Header: &goamqp.MessageHeader{TTL: time.Hour}, Properties: &goamqp.MessageProperties{MessageID: fmt.Sprint("message-", n)}, Data: [][]byte{make([]byte, 256)},
			}).MarshalBinary()
			if err != nil {
				b.Fatal(err)
			}
			batch.Data = append(batch.Data, m)
			n--
		}
		if err := sc.sender.Send(b.Context(), batch, nil); err != nil {
			b.Fatal(err)
		}
	}
}
