// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// A message is watched when a slot stands for it or a companion names it, and for nothing less: who
// finds another one asks for a companion.
func TestOnlyMessagesWithCompanionsAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "monitor"}} })
		s, err := New(Config{MonitorQueue: "monitor", Links: ns.Links(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(t.Context()) }()
		from := time.Now().Truncate(slot).Add(time.Millisecond)
		found := func(life time.Duration, stated string) Reference {
			return Reference{MessageID: "m", Sent: from, From: from, Until: from, Within: life, Deadline: from.Add(life), Stated: stated}
		}
		start := func(findable bool, refs ...Reference) {
			t.Helper()
			done := make(called, 1)
			s.Start(Companion{Entity: "orders", Findable: findable, References: refs}, done)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the index learns of it a moment later
		}
		check := func(what, entity, path string, r Reference, want bool) {
			t.Helper()
			if got := s.Watches(entity, path, &r); got != want {
				t.Errorf("%s: Watches = %v, want %v", what, got, want)
			}
		}
		check("before anything was sent", "orders", "orders", found(time.Minute, "ttl"), false)

		start(true, found(time.Minute, "ttl")) // a slot of its time to live
		s.slots.countLocked(spanOf("orders", time.Hour), 1000, from)
		start(true, found(time.Hour, "ttl")) // one of similar ones
		start(true, found(2*time.Hour, "default"))
		check("a slot of its time to live", "orders", "orders", found(time.Minute, "ttl"), true)
		check("a slot of similar times to live", "orders", "orders", found(time.Hour, "ttl"), true)
		check("a slot of the default", "orders", "orders", found(2*time.Hour, "default"), true)
		check("another time to live", "orders", "orders", found(time.Minute-time.Millisecond, "ttl"), false)
		check("another entity", "invoices", "invoices", found(time.Minute, "ttl"), false)
		check("a subscription, which has slots of its own", "orders", "orders/Subscriptions/s", found(time.Minute, "ttl"), false)
		check("no time to live", "orders", "orders", found(0, "ttl"), false)
		check("to be completed", "orders", "orders", found(time.Minute, StatedComplete), false)
		other := found(time.Minute, "ttl")
		other.Deadline = other.Deadline.Add(slot)
		check("another slot", "orders", "orders", other, false)
		ahead := found(time.Minute, "ttl")
		ahead.Ahead = time.Second
		check("to be notified ahead of its deadline", "orders", "orders", ahead, false)

		from = from.Add(10 * time.Second) // no slot stands for what is sent then
		named := sent("named", from)
		s.Expect("orders", []Reference{named})
		message := named
		message.From, message.Until = from, from // as it was found: its stamp
		check("one whose companion is not written", "orders", "orders", message, false)
		start(false, named)
		check("one that a companion names", "orders", "orders", message, true)
		check("and on a subscription", "orders", "orders/Subscriptions/s", message, true)
		early := message
		early.Deadline = early.Deadline.Add(-time.Second)
		check("one of that name with another deadline", "orders", "orders", early, false)
		nameless := message
		nameless.MessageID = ""
		check("one without a name", "orders", "orders", nameless, false)
	})
}
