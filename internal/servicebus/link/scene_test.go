// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// countingTokens counts what it is asked for; its tokens last for an hour.
type countingTokens struct{ n atomic.Int64 }

func (c *countingTokens) Token(context.Context, string) (link.Token, error) {
	c.n.Add(1)
	return link.Token{Value: "t", Type: "jwt", Expires: time.Now().Add(time.Hour)}, nil
}

type scene struct {
	*testing.T
	ns     *brokertest.Namespace
	links  *link.Namespace
	tokens *countingTokens
	orders *queue.Queue
}

// play runs a scene with a queue orders that dead-letters what expires, on fake time.
func play(t *testing.T, act func(*scene), configure ...func(*broker.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, tokens: &countingTokens{}}
		s.ns = brokertest.New(t, func(c *broker.Config) {
			c.AutoCreate = false
			c.Queues = []broker.QueueConfig{{Name: "orders", DeadLetteringOnMessageExpiration: true}}
			for _, f := range configure {
				f(c)
			}
		})
		cfg := link.Config{Host: "overdue.test", Plain: true, Dial: s.ns.Dial, Tokens: s.tokens}
		if key := brokertest.Key(); s.ns.Broker.Secured() {
			cfg.Tokens = link.SAS(key.KeyName, key.PrimaryKey)
		}
		s.links = link.New(cfg)
		t.Cleanup(func() { _ = s.links.Close() }) // a test may have broken the connection
		s.orders, _ = s.ns.Broker.Queue("orders")
		act(s)
	})
}

func (s *scene) send(n int, life time.Duration) {
	s.Helper()
	sender, err := s.ns.Client(s.T).NewSender("orders", nil)
	if err != nil {
		s.Fatal(err)
	}
	for i := range n {
		if err := sender.SendMessage(s.Context(), &azservicebus.Message{MessageID: to.Ptr(fmt.Sprint(i)), TimeToLive: &life}, nil); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *scene) receiver(entity string) *link.Receiver {
	s.Helper()
	r, err := s.links.Receiver(s.Context(), entity)
	if err != nil {
		s.Fatal(err)
	}
	return r
}
