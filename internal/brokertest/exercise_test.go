// SPDX-License-Identifier: Apache-2.0

package brokertest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/queue"
)

var expiries = map[string]queue.Expiry{"lazy": queue.Lazy, "lazy-head": queue.LazyHead, "eager": queue.Eager}

// creator makes the queues of the suite on an embedded broker.
func creator(b *broker.Broker) func(*testing.T, broker.QueueConfig) string {
	var n atomic.Int64
	return func(t *testing.T, cfg broker.QueueConfig) string {
		t.Helper()
		cfg.Name = fmt.Sprintf("queue-%d", n.Add(1))
		if err := b.AddQueue(cfg); err != nil {
			t.Fatal(err)
		}
		return cfg.Name
	}
}

func TestEmbeddedBrokerOnFakeTime(t *testing.T) {
	for name, expiry := range expiries {
		t.Run(name, func(t *testing.T) {
			Exercise(t, synctest.Test, func(t *testing.T) *Target {
				ns := New(t, func(c *broker.Config) { c.AutoCreate, c.Expiry = false, expiry })
				return &Target{
					ConnectionString: ns.ConnectionString(),
					ClientOptions:    ns.ClientOptions(),
					Dial:             ns.Dial,
					CreateQueue:      creator(ns.Broker),
					LockDuration:     30 * time.Second,
					Expiry:           expiry,
					Wait: func(d time.Duration) {
						time.Sleep(d)
						synctest.Wait()
					},
					Cut: func() { ns.Net.Cut() },
				}
			})
		})
	}
}

func TestEmbeddedBrokerOverTCP(t *testing.T) {
	Exercise(t, RealTime, func(t *testing.T) *Target {
		ns := NewTCP(t, func(c *broker.Config) { c.AutoCreate = false })
		var ahead time.Duration
		return &Target{
			ConnectionString: ns.ConnectionString(),
			ClientOptions:    ns.ClientOptions(),
			Dial:             ns.Dial,
			CreateQueue:      creator(ns.Broker),
			LockDuration:     30 * time.Second,
			Expiry:           queue.Lazy,
			// The broker's clock goes ahead instead of the test falling asleep.
			Wait: func(d time.Duration) {
				ahead += d
				ns.Broker.SetClockOffset(ahead)
			},
		}
	})
}
