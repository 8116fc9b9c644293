// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// Embedded returns a namespace of the embedded broker as a target of [Run] in a synctest bubble.
// Callers change it where something stands before the broker. It has no HTTP, which is served
// elsewhere.
func Embedded(ns *brokertest.Namespace) *Target {
	space := ns.Broker.Default()
	var names atomic.Int64
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return &Target{
		ConnectionString: ns.ConnectionString(),
		ClientOptions:    ns.ClientOptions(),
		Dial:             ns.Dial,
		CreateQueue: func(t *testing.T, cfg broker.QueueConfig) string {
			t.Helper()
			if cfg.Name == "" {
				cfg.Name = fmt.Sprintf("queue-%d", names.Add(1))
			}
			_, err := space.CreateQueue(cfg)
			must(t, err)
			return cfg.Name
		},
		UpdateQueue: func(t *testing.T, cfg broker.QueueConfig) {
			t.Helper()
			_, err := space.UpdateQueue(cfg)
			must(t, err)
		},
		DeleteQueue: func(t *testing.T, name string) {
			t.Helper()
			must(t, space.DeleteQueue(name))
		},
		CreateTopic: func(t *testing.T, cfg broker.TopicConfig) string {
			t.Helper()
			cfg.Name = fmt.Sprintf("topic-%d", names.Add(1))
			_, err := space.CreateTopic(cfg)
			must(t, err)
			return cfg.Name
		},
		CreateSubscription: func(t *testing.T, topic string, cfg broker.SubscriptionConfig, rules ...broker.RuleConfig) {
			t.Helper()
			_, err := space.CreateSubscription(topic, cfg, rules...)
			must(t, err)
		},
		LockDuration: 30 * time.Second,
		Wait: func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		},
		Cut: func() { ns.Net.Cut() },
	}
}
