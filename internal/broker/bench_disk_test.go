// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/broker/store"
	"overdue/internal/testing/brokertest"
)

// BenchmarkReceiveAndDelete receives messages of 1 kB with a credit of 1000, from memory, from a
// directory, and from one whose bodies are on disk alone.
func BenchmarkReceiveAndDelete(b *testing.B) {
	b.Run("memory", func(b *testing.B) { receiveAndDelete(b, brokertest.New(b)) })
	for name, inMemory := range map[string]int64{"directory": 1 << 40, "bodies on disk": 0} {
		b.Run(name, func(b *testing.B) {
			disk, err := store.Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := disk.Close(); err != nil {
					b.Error(err)
				}
			})
			disk.KeepInMemory(inMemory, inMemory)
			receiveAndDelete(b, brokertest.New(b, func(c *broker.Config) { c.Disk = disk }))
		})
	}
}

func receiveAndDelete(b *testing.B, ns *brokertest.Namespace) {
	s := newSender(b, ns)
	fill(b, s, b.N)
	r, err := ns.Client(b).NewReceiverForQueue("q", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		ms, err := r.ReceiveMessages(context.Background(), min(1000, b.N-done), nil)
		if err != nil {
			b.Fatal(err)
		}
		done += len(ms)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
