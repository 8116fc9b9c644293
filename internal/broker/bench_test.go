// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/brokertest"
)

// transports runs a benchmark over both kinds of network. A pipe shows what
// the broker and the SDK cost, TCP what an application sees.
func transports(b *testing.B, f func(b *testing.B, ns *brokertest.Namespace)) {
	b.Run("pipe", func(b *testing.B) { f(b, brokertest.New(b)) })
	b.Run("tcp", func(b *testing.B) { f(b, brokertest.NewTCP(b)) })
}

func newSender(b *testing.B, ns *brokertest.Namespace) *azservicebus.Sender {
	b.Helper()
	s, err := ns.Client(b).NewSender("q", nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.SendMessage(b.Context(), message(), nil); err != nil { // opens the link
		b.Fatal(err)
	}
	return s
}

// message is one of 1 kB, as most are smaller.
func message() *azservicebus.Message { return &azservicebus.Message{Body: make([]byte, 1024)} }

func BenchmarkSend(b *testing.B) {
	transports(b, func(b *testing.B, ns *brokertest.Namespace) {
		s := newSender(b, ns)
		m := message()
		b.ReportAllocs()
		for b.Loop() {
			if err := s.SendMessage(context.Background(), m, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSendFrom16(b *testing.B) {
	transports(b, func(b *testing.B, ns *brokertest.Namespace) {
		s := newSender(b, ns)
		b.ReportAllocs()
		b.SetParallelism(8) // times two processors
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			m := message()
			for pb.Next() {
				if err := s.SendMessage(context.Background(), m, nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkSendBatch100(b *testing.B) {
	transports(b, func(b *testing.B, ns *brokertest.Namespace) {
		s := newSender(b, ns)
		batch, err := s.NewMessageBatch(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		for range 100 {
			if err := batch.AddMessage(message(), nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := s.SendMessageBatch(context.Background(), batch, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "messages/s")
	})
}

func BenchmarkReceiveComplete(b *testing.B) {
	transports(b, func(b *testing.B, ns *brokertest.Namespace) {
		s := newSender(b, ns)
		fill(b, s, b.N)
		r, err := ns.Client(b).NewReceiverForQueue("q", nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.ResetTimer()
		for done := 0; done < b.N; {
			ms, err := r.ReceiveMessages(context.Background(), min(100, b.N-done), nil)
			if err != nil {
				b.Fatal(err)
			}
			errs := make(chan error, len(ms))
			for _, m := range ms {
				go func() { errs <- r.CompleteMessage(context.Background(), m, nil) }()
			}
			for range ms {
				if err := <-errs; err != nil {
					b.Fatal(err)
				}
			}
			done += len(ms)
		}
	})
}

// fill sends n messages in batches.
func fill(b *testing.B, s *azservicebus.Sender, n int) {
	b.Helper()
	for n > 0 {
		batch, err := s.NewMessageBatch(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		for ; n > 0; n-- {
			if err := batch.AddMessage(message(), nil); errors.Is(err, azservicebus.ErrMessageTooLarge) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
		if err := s.SendMessageBatch(b.Context(), batch, nil); err != nil {
			b.Fatal(err)
		}
	}
}
