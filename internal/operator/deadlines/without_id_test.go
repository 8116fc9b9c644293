// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/scheduler"
)

// A message without an id is named by its sequence number. This holds where a slot stands for it,
// where a reference stands for all that were enqueued then, and where only a dead letter is left.
func TestExplainShowsAMessageWithoutAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.scheduleSlot("")
		s.send("orders", "", time.Minute)
		s.send("orders", "", time.Hour)
		time.Sleep(time.Second)
		first := []string{
			"enqueued: enqueued with sequence number 1, time to live 1m0s",
			inQueue,
			"companion: the companion of its slot is due",
			"deadline: its deadline, as the message states it",
		}
		s.check(s.explainWith(ExplainOptions{Number: 1}), "in its queue, and monitored by the companion of its slot.", first...)
		if x := s.explain("#2"); len(x.Timeline) != 3 || !strings.Contains(x.Verdict, "not monitored") {
			t.Errorf("another message: verdict %q, %q, want it unmonitored and its own", x.Verdict, story(x))
		}
		if x := s.explain("#3"); x.Verdict[:9] != "not there" {
			t.Errorf("verdict of another number: %q", x.Verdict)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		now := time.Now()
		c := companionOf("", now, time.Minute)
		c.References[0].From, c.References[0].Until = now, now.Add(time.Second)
		s.schedule(nil, c)
		s.send("orders", "", time.Minute)
		time.Sleep(time.Second)
		s.check(s.explain("#1"), "in its queue, and monitored.",
			"sent: sent through Overdue, which wrote its companion",
			"enqueued: enqueued with sequence number 1, time to live 1m0s",
			inQueue,
			"companion: its companion is due",
			"deadline: its deadline, as the message states it",
		)
		time.Sleep(2 * time.Second)
		s.send("orders", "", time.Minute)
		if x := s.explain("#2"); len(x.Timeline) != 3 || !strings.Contains(x.Verdict, "not monitored") {
			t.Errorf("a message of another time: verdict %q, %q, want it unmonitored", x.Verdict, story(x))
		}
		time.Sleep(time.Hour)
		if x := s.explain("#1"); x.Verdict[:24] != "in the dead-letter queue" {
			t.Errorf("verdict of a dead letter: %q", x.Verdict)
		}
	})
}

// A deadline that a reference states for any number of messages has no name; that of a missed
// message has its number.
func TestListNamesMessagesWithoutAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		now := time.Now()
		many, missed := companionOf("", now, time.Hour), companionOf("", now, 2*time.Hour)
		for _, c := range []*scheduler.Companion{&many, &missed} {
			c.References[0].From, c.References[0].Until = now, now.Add(time.Second)
		}
		missed.References[0].Missed = &scheduler.Missed{Strategy: "native", SequenceNumber: 17, EnqueuedTime: now, Deadline: now, DeadLetteredTime: now}
		s.schedule(nil, many, missed)
		all := s.list(ListOptions{Entity: "orders", Limit: 10}).Upcoming
		if len(all) != 2 || all[0].Name() != "" || all[1].Name() != "#17" {
			t.Errorf("deadlines %+v, want one without a name and that of #17", all)
		}
	})
}
