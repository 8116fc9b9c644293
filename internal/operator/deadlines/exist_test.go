// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
)

// "None" is an answer for an entity that exists.
func TestAnEntityThatDoesNotExistIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, func(c *broker.Config) {
			c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}, Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "audit"}},
			}}}
		})
		describe := func(_ context.Context, name string) (entities.Info, error) {
			switch strings.ToLower(name) {
			case "events":
				return entities.Info{Kind: entities.Topic, Subscriptions: []entities.Subscription{{Name: "audit"}}}, nil
			case "orders", "seated":
				return entities.Info{}, nil
			}
			return entities.Info{}, entities.ErrNotFound
		}
		names := func(context.Context) []string { return []string{"orders", "seated", "events"} }
		noRight := func(context.Context, string) (entities.Info, error) {
			return entities.Info{}, errors.New("the key has no right Manage")
		}
		for name, c := range map[string]struct {
			describe func(context.Context, string) (entities.Info, error)
			place    string
			want     string // "" = it exists
		}{
			"a queue":                           {describe, "Orders", ""},
			"a topic":                           {describe, "events", ""},
			"no queue":                          {describe, "nosuch", `there is no queue or topic "nosuch"; correct the name`},
			"a slip":                            {describe, "ordres", `there is no queue or topic "ordres"; did you mean orders?`},
			"a queue, without Manage":           {noRight, "orders", ""},
			"a topic, without Manage":           {noRight, "events", ""},
			"no queue, without Manage":          {noRight, "nosuch", `"nosuch"; correct the name`},
			"no queue, nobody describes":        {nil, "nosuch", `"nosuch"; correct the name`},
			"a subscription":                    {describe, "events/Subscriptions/Audit", ""},
			"no subscription":                   {describe, "events/Subscriptions/audits", `there is no subscription "events/Subscriptions/audits"; did you mean events/Subscriptions/audit?`},
			"a subscription of a queue":         {describe, "orders/Subscriptions/audit", `there is no subscription "orders/Subscriptions/audit"; correct the name`},
			"no subscription, without Manage":   {noRight, "events/Subscriptions/audits", `there is no subscription "events/Subscriptions/audits"`},
			"a subscription of no topic at all": {describe, "event/Subscriptions/audit", `there is no queue or topic "event/Subscriptions/audit"`},
		} {
			s.source.Describe, s.source.Names = c.describe, names
			place, err := dlq.ParsePlace(c.place)
			if err != nil {
				t.Fatal(err)
			}
			check := func(command string, err error) {
				t.Helper()
				if c.want == "" && err != nil && !strings.Contains(err.Error(), "is a topic") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: %s %s = %v, want %q", name, command, c.place, err, c.want)
				}
			}
			if place.Subscription == "" {
				_, err = List(t.Context(), s.source, ListOptions{Entity: c.place, Limit: 1})
				check("deadlines", err)
			}
			_, err = Explain(t.Context(), s.source, ExplainOptions{Place: place, MessageID: "m"})
			check("explain", err)
		}
	})
}

// A process without a trace of a message does not know what it has not recorded.
func TestNoTraceOfAMessageInAHistoryWithGapsSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		o := ExplainOptions{Place: orders, MessageID: "m", History: history.InMemory(history.Config{})}
		x, err := Explain(t.Context(), s.source, o)
		if err != nil || !strings.Contains(x.Note, "until 2000-01-01 00:00:00Z: this process keeps no history") {
			t.Errorf("Explain = %+v, %v; want a note of the gap", x, err)
		}
		s.send("orders", "m", time.Hour)
		if x, err := Explain(t.Context(), s.source, o); err != nil || x.Note != "" {
			t.Errorf("Explain of a message that is there = %+v, %v; want no note", x, err)
		}
	})
}

func TestAnUnknownVerdictIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		h := history.InMemory(history.Config{})
		now := time.Now()
		verdict := history.Unknown{Entity: "Orders", MessageID: "m", SequenceNumber: 7, Deadline: now, Judged: now.Add(time.Second), Why: "it is gone"}
		h.AddUnknown(verdict)
		verdict.MessageID = "other"
		h.AddUnknown(verdict)
		for _, o := range []ExplainOptions{{Place: orders, MessageID: "m", History: h}, {Place: orders, Number: 7, History: h}} {
			x, err := Explain(t.Context(), s.source, o)
			if err != nil {
				t.Fatal(err)
			}
			want := "not there any more: nobody can tell whether it met its deadline."
			if last := x.Timeline[len(x.Timeline)-1]; x.Verdict != want || last.What != whatUnknown || last.Text != "outcome not known: it is gone" {
				t.Errorf("%q, the last %+v; want %q, and why", x.Verdict, last, want)
			}
		}
	})
}
