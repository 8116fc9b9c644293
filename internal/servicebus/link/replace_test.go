// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
)

// After a replacement whatever is open uses the other key before its next use of an entity, on the
// connection that it has.
func TestAReplacedKeyIsTakenUpOnConnectionsThatStand(t *testing.T) {
	play(t, func(s *scene) {
		const other = "b3RoZXI="
		rule := brokertest.Key()
		tokens := link.NewReplaceableTokens(link.SAS(rule.KeyName, rule.PrimaryKey))
		links := s.ns.LinksWith(s.T, tokens)
		own := links.ReconnectingSender("orders") // on a connection of its own
		message := &link.ScheduledMessage{MessageID: "m"}
		use := func(when string) {
			s.Helper()
			var b link.Batch
			b.Add(message)
			if err := own.Send(s.Context(), &b); err != nil {
				s.Errorf("a batch %s = %v, want nil", when, err)
			}
			if err := links.Send(s.Context(), "orders", message.Encoded()); err != nil {
				s.Errorf("Send %s = %v, want nil", when, err)
			}
		}
		use("at first")
		r, err := links.Receiver(s.Context(), "orders")
		if err != nil {
			s.Fatal(err)
		}
		before := s.ns.Net.Conns()
		rule.SecondaryKey = other
		if err := s.ns.Broker.SetKeys([]broker.AuthorizationRule{rule}); err != nil {
			s.Fatal(err)
		}
		puts := &countingSource{TokenSource: link.SAS(rule.KeyName, other)}
		tokens.Replace(puts)
		rule.PrimaryKey = other
		if err := s.ns.Broker.SetKeys([]broker.AuthorizationRule{rule}); err != nil {
			s.Fatal(err)
		}
		use("after the replacement")
		if err := r.Claim(s.Context()); err != nil {
			s.Errorf("Claim after the replacement = %v, want nil", err)
		}
		if puts.n != 3 {
			s.Errorf("%d tokens of the other key, want one on each of 3 connections", puts.n)
		}
		time.Sleep(2 * time.Hour)
		use("two hours later")
		if after := s.ns.Net.Conns(); after < before {
			s.Errorf("%d connections, want the %d from before", after, before)
		}
	}, func(c *broker.Config) { c.Keys = []broker.AuthorizationRule{brokertest.Key()} })
}

// countingSource counts its tokens. One goroutine asks it.
type countingSource struct {
	link.TokenSource
	n int
}

func (c *countingSource) Token(ctx context.Context, audience string) (link.Token, error) {
	c.n++
	return c.TokenSource.Token(ctx, audience)
}
