// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/entities"
	"overdue/internal/testing/redistest"
	"overdue/scheduler"
)

func (s *scene) explain(id string) *Explanation { return s.explainWith(ExplainOptions{MessageID: id}) }

func (s *scene) explainWith(o ExplainOptions) *Explanation {
	s.Helper()
	if o.Place == (dlq.Place{}) {
		o.Place = orders
	}
	x, err := Explain(s.Context(), s.source, o)
	if err != nil {
		s.Fatal(err)
	}
	return x
}

// story is the timeline without its times.
func story(x *Explanation) []string {
	all := []string{}
	for _, e := range x.Timeline {
		all = append(all, e.What+": "+e.Text)
	}
	return all
}

func (s *scene) check(x *Explanation, verdict string, want ...string) {
	s.Helper()
	if x.Verdict != verdict {
		s.Errorf("verdict %q, want %q", x.Verdict, verdict)
	}
	if diff := cmp.Diff(slices.Concat([]string{}, want), story(x)); diff != "" {
		s.Errorf("timeline (-want +got):\n%s", diff)
	}
	if !slices.IsSortedFunc(x.Timeline, func(a, b Event) int { return a.Time.Compare(b.Time) }) {
		s.Error("the timeline is not in the order of time")
	}
}

const inQueue = "seen: in the queue; a peek cannot tell whether a consumer has locked it"

func TestExplainShowsAMessageThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.schedule(nil, companionOf("m", time.Now(), time.Minute), companionOf("other", time.Now(), time.Minute))
		time.Sleep(time.Second)
		s.send("orders", "m", time.Minute)
		s.send("orders", "other", time.Minute)
		s.check(s.explain("m"), "in its queue, and monitored.",
			"sent: sent through Overdue, which wrote its companion",
			"enqueued: enqueued with sequence number 1, time to live 1m0s",
			inQueue,
			"companion: its companion is due",
			"deadline: its deadline, as the message states it",
		)
		if x := s.explain("M"); x.Verdict[:9] != "not there" {
			t.Errorf("verdict of another id: %q", x.Verdict)
		}
	})
}

func TestExplainShowsAMessageThatNobodyMonitors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.send("orders", "m", 0)
		s.receive(func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
			return r.AbandonMessage(t.Context(), m, nil)
		})
		s.check(s.explain("m"), "in its queue, and not monitored: it states no deadline.",
			"enqueued: enqueued with sequence number 1, without a time to live of its own",
			inQueue+"; delivery count 1",
		)
	})
}

func TestExplainShowsADeferredMessageInASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.send("seated", "m", 0, func(m *azservicebus.Message) { m.SessionID = to.Ptr("table 9") })
		r, err := s.ns.Client(t).AcceptSessionForQueue(t.Context(), "seated", "table 9", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.ReceiveMessages(t.Context(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.DeferMessage(t.Context(), ms[0], nil); err != nil {
			t.Fatal(err)
		}
		x := s.explainWith(ExplainOptions{Place: dlq.Place{Entity: "seated"}, MessageID: "m"})
		s.check(x, "in its queue, and not monitored: it states no deadline.",
			`enqueued: enqueued with sequence number 1 in session "table 9", without a time to live of its own`,
			"seen: in the queue, deferred; delivery count 1",
		)
	})
}

func TestExplainRepeatsASearchThatShowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.send("seated", "m", 0, func(m *azservicebus.Message) { m.SessionID = to.Ptr("table 9") })
		s.ns.Broker.Default().Inject(broker.Fault{
			Entity: "seated", Operation: broker.OnManagement, Request: "com.microsoft:peek-message", Times: 1,
			Error: amqp.Errorf("com.microsoft:message-not-found", "There are no messages."),
		})
		x := s.explainWith(ExplainOptions{Place: dlq.Place{Entity: "seated"}, MessageID: "m"})
		if want := "in its queue, and not monitored: it states no deadline."; x.Verdict != want {
			t.Errorf("verdict %q, want %q", x.Verdict, want)
		}
	})
}

func TestExplainShowsAScheduledMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		at := time.Now().Add(time.Hour)
		s.send("orders", "m", 0, func(m *azservicebus.Message) { m.ScheduledEnqueueTime = &at })
		x := s.explain("m")
		s.check(x, "scheduled, and not monitored: it states no deadline.", "activated: becomes active")
		if got := x.Timeline[0].Time; got.Sub(at).Abs() > time.Millisecond {
			t.Errorf("it becomes active at %v, want %v", got, at)
		}
		s.schedule(nil, companionOf("lives", at, time.Minute))
		s.send("orders", "lives", time.Minute, func(m *azservicebus.Message) { m.ScheduledEnqueueTime = &at })
		x = s.explain("lives")
		s.check(x, "scheduled, and monitored.",
			"sent: sent through Overdue, which wrote its companion",
			"activated: becomes active, and its time to live of 1m0s begins",
			"companion: its companion is due",
			"deadline: its deadline, as the message states it",
		)
		if got := x.Timeline[3].Time; got.Sub(at.Add(time.Minute)).Abs() > time.Millisecond {
			t.Errorf("its deadline is %v, want a minute after %v", got, at)
		}
	})
}

func TestExplainShowsACompanionThatNoMonitorFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		c := companionOf("m", time.Now(), time.Minute)
		c.References[0].Missed = &scheduler.Missed{
			Strategy: "native", DeadLetterReason: "TTLExpiredException", DeadLetteredTime: time.Now().Add(time.Minute), TakenBy: []string{"log", "pager"},
		}
		s.schedule(nil, c)
		time.Sleep(2 * time.Minute)
		s.check(s.explain("m"),
			"not there any more: it was completed, or removed from the dead-letter queue; the monitor has not finished with its companion.",
			"sent: sent through Overdue, which wrote its companion",
			"companion: its companion was due, and is not finished: a monitor has it, or no monitor is running",
			"deadline: its deadline, as its companion states it (ttl)",
			"missed: the monitor saw that it missed its deadline (native, TTLExpiredException)",
			"notified: sent to, or queued in a group for: log, pager",
		)
	})
}

func TestExplainShowsACompanionThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.schedule(nil, companionOf("m", time.Now().Add(-time.Hour), time.Minute))
		r, err := s.ns.Client(t).NewReceiverForQueue(monitorQueue, nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := r.ReceiveMessages(t.Context(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.DeadLetterMessage(t.Context(), ms[0], &azservicebus.DeadLetterOptions{
			Reason: to.Ptr("AlertUndeliverable"), ErrorDescription: to.Ptr("no sink took it"),
		}); err != nil {
			t.Fatal(err)
		}
		s.check(s.explain("m"),
			"not there any more: it was completed, or removed from the dead-letter queue; a companion of it failed.",
			"sent: sent through Overdue, which wrote its companion",
			"failed: its companion failed: AlertUndeliverable: no sink took it",
		)
	})
}

func TestExplainShowsTheCompanionOfASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.scheduleSlot("m")
		s.send("orders", "m", time.Minute)
		s.send("orders", "later", time.Hour)
		time.Sleep(time.Second)
		s.check(s.explain("m"), "in its queue, and monitored by the companion of its slot.",
			"enqueued: enqueued with sequence number 1, time to live 1m0s",
			inQueue,
			"companion: the companion of its slot is due",
			"deadline: its deadline, as the message states it",
		)
		if x := s.explain("later"); !strings.Contains(x.Verdict, "not monitored") {
			t.Errorf("verdict of a message outside of the slot: %q", x.Verdict)
		}
	})
}

// A consumer dead-letters, completes or ignores messages whenever it wants.
func TestExplainDoesNotTakeConsumersForTheMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, func(c *broker.Config) { c.Expiry = queue.Lazy })
		s.schedule(nil, companionOf("poison", time.Now(), time.Hour), companionOf("done", time.Now(), time.Hour))
		s.send("orders", "poison", time.Hour)
		s.receive(func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
			return r.DeadLetterMessage(t.Context(), m, &azservicebus.DeadLetterOptions{Reason: to.Ptr("Poison")})
		})
		s.check(s.explain("poison"), "in the dead-letter queue; its companion is not due yet.",
			"sent: sent through Overdue, which wrote its companion",
			"enqueued: enqueued with sequence number 1, time to live 1h0m0s",
			"dead-lettered: dead-lettered at this time or later, Poison",
			"companion: its companion is due",
			"deadline: its deadline, as the message states it",
		)
		s.check(s.explain("done"), "not there any more: it was completed, or removed from the dead-letter queue; its companion is not due yet.",
			"sent: sent through Overdue, which wrote its companion",
			"companion: its companion is due",
			"deadline: its deadline, as its companion states it (ttl)",
		)
		s.send("orders", "late", time.Minute)
		past := "its entity is not in monitor.entities, it was sent past Overdue, or its companion is still in the journal of a proxy"
		for _, want := range []string{
			"in its queue, and not monitored: " + past + ".",
			"in its queue, past its deadline, and not monitored: its entity is not in monitor.entities, it was sent past Overdue, or was checked already.",
		} {
			if got := s.explain("late").Verdict; got != want {
				t.Errorf("verdict %q, want %q", got, want)
			}
			time.Sleep(2 * time.Minute)
		}
	})
}

// Service Bus does not stamp when a message was dead-lettered. Only the event of the monitor says
// when.
func TestExplainShowsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t)
		s.send("orders", "m", time.Minute)
		time.Sleep(2 * time.Minute)
		s.send("orders", "m", 0)
		s.send("orders", "rejected", 0)
		x := s.explain("m")
		s.check(x, "in its queue and in the dead-letter queue, and not monitored: it states no deadline.",
			"enqueued: enqueued with sequence number 1, time to live 1m0s",
			"deadline: its deadline, as the message states it",
			"dead-lettered: dead-lettered at this time or later, TTLExpiredException: The message expired and was dead lettered.",
			"enqueued: enqueued with sequence number 2, without a time to live of its own",
			inQueue,
		)
		for range 2 {
			s.receive(func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
				return r.DeadLetterMessage(t.Context(), m, nil)
			})
		}
		s.check(s.explain("rejected"), "in the dead-letter queue.",
			"enqueued: enqueued with sequence number 3, without a time to live of its own",
			"dead-lettered: dead-lettered at this time or later, no reason given",
		)
	})
}

// The store is real, so time is as well.
func TestExplainFindsCompanionsInRedis(t *testing.T) {
	s := setup(t)
	companions := s.useRedis(redistest.InMemory(t).Addr()).Companions()
	s.source.CompanionsInRedis = true
	now := time.Now()
	s.schedule(func(c *scheduler.Config) { c.Store = companions },
		companionOf("m", now.Add(-time.Hour), time.Minute), companionOf("m", now, time.Hour))
	leases, _, err := companions.Claim(t.Context(), now, 10)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d companions, %v; want one", len(leases), err)
	}
	if err := companions.Bury(t.Context(), leases[0], "CompanionMalformed", "not ours"); err != nil {
		t.Fatal(err)
	}
	x := s.explain("m")
	s.check(x, "not there any more: it was completed, or removed from the dead-letter queue; its companion is not due yet; a companion of it failed.",
		"sent: sent through Overdue, which wrote its companion",
		"failed: its companion failed: CompanionMalformed: not ours",
		"sent: sent through Overdue, which wrote its companion",
		"companion: its companion is due",
		"deadline: its deadline, as its companion states it (ttl)",
	)
	for _, e := range x.Timeline {
		if e.Where != "redis" {
			t.Errorf("%s is known from %s, want redis", e.What, e.Where)
		}
	}
}

func TestExplainRefusesAPlaceWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, func(c *broker.Config) {
			c.Topics = append(c.Topics, broker.TopicSetup{TopicConfig: broker.TopicConfig{Name: "events"}})
		})
		for place, want := range map[dlq.Place]string{
			{Entity: "none"}:                      `there is no queue "none"; correct the name, or write topic/Subscriptions/name`,
			{Entity: "events", Subscription: "a"}: `there is no subscription "events/Subscriptions/a"`,
		} {
			if _, err := Explain(t.Context(), s.source, ExplainOptions{Place: place, MessageID: "m"}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Explain in %s = %v, want an error with %q", place, err, want)
			}
		}
		s.source.Describe = func(context.Context, string) (entities.Info, error) { return entities.Info{Kind: entities.Topic}, nil }
		if _, err := Explain(t.Context(), s.source, ExplainOptions{Place: orders, MessageID: "m"}); err == nil || !strings.Contains(err.Error(), "orders is a topic") {
			t.Errorf("Explain in a topic = %v, want an error that says so", err)
		}
		s.source.Describe = nil
		s.source.MonitorQueue = "none"
		if _, err := Explain(t.Context(), s.source, ExplainOptions{Place: orders, MessageID: "m"}); err == nil || !strings.Contains(err.Error(), "no monitor queue") {
			t.Errorf("Explain without a monitor queue = %v, want an error", err)
		}
	})
}

func TestExplanationsFitTheTerminal(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	x := &Explanation{Entity: "orders", MessageID: "m\x1b", Verdict: "in its queue, and monitored."}
	x.add(at, whatSeen, "orders", "in the queue; a peek cannot tell whether a consumer has locked it; delivery count 3")
	s := &scene{T: t}
	const want = `m\u001b in orders is in its queue, and monitored.
  2026-05-04T03:02:01.000Z  in the queue; a peek cannot tell
                            whether a consumer has locked
                            it; delivery count 3
`
	if diff := cmp.Diff(want, s.text(func(w io.Writer) error { return x.WriteText(w, 60) })); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if err := x.WriteText(closed{}, 0); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("WriteText to a pipe that is closed = %v, want its error", err)
	}
	if err := (&Listing{}).WriteText(closed{}, at, 0); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("WriteText to a pipe that is closed = %v, want its error", err)
	}
}

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
