// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/scheduler"
)

// fixes returns "subject: check: fix" of every finding that is worse than OK.
func fixes(r *Report) []string {
	all := []string{}
	for _, f := range r.Findings {
		if f.Severity > OK {
			all = append(all, f.Subject+": "+f.Check+": "+f.Fix)
		}
	}
	return all
}

func TestEntitiesThatDoNotExistAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		emulator bool
		want     []string
	}{
		"in Azure": {false, []string{
			"queue bills: exists: az servicebus queue create --resource-group <group> --namespace-name contoso --name bills --enable-dead-lettering-on-message-expiration true, or remove it from monitor.entities[1]",
			"topic events: exists: az servicebus topic create --resource-group <group> --namespace-name contoso --name events, or remove it from monitor.entities[2]",
			"queue typo: exists: az servicebus queue create --resource-group <group> --namespace-name contoso --name typo --enable-dead-lettering-on-message-expiration true",
			"target missed: exists: create it, or change alerts[0].entity",
		}},
		"in an emulator": {true, []string{
			"queue bills: exists: add the queue bills to the configuration of the emulator, or remove it from monitor.entities[1]",
			"topic events: exists: add the topic events to the configuration of the emulator, or remove it from monitor.entities[2]",
			"queue typo: exists: add the queue typo to the configuration of the emulator",
			"target missed: exists: create it, or change alerts[0].entity",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := open(t, wellMade...).config("manage", "bQ==")
				cfg.Emulator = c.emulator
				cfg.OnlyEntities = true
				cfg.Entities = []Monitored{
					{Name: "orders", Setting: "monitor.entities[0]"}, {Name: "bills", Setting: "monitor.entities[1]"},
					{Name: "events", Setting: "monitor.entities[2]", Topic: true}, {Name: "typo"},
				}
				cfg.Targets = []Target{{"orders", "monitor.entities[0].forwardMissedTo"}, {"missed", "alerts[0].entity"}}
				if diff := cmp.Diff(c.want, fixes(Examine(t.Context(), cfg))); diff != "" {
					t.Errorf("fixes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A forward is bound to the queue that there was when it was set.
func TestAForwardToAQueueThatWasMadeAnewIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := broker.QueueConfig{Name: "orders", DeadLetteringOnMessageExpiration: true, ForwardTo: "next", ForwardDeadLetteredMessagesTo: "graves"}
		c := open(t, wellMade[0], orders, broker.QueueConfig{Name: "next"}, broker.QueueConfig{Name: "graves"})
		check := func(step string, want int) {
			t.Helper()
			cfg := c.config("manage", "bQ==")
			cfg.OnlyEntities, cfg.Entities = true, []Monitored{{Name: "orders", Setting: "monitor.entities[0]"}}
			n := 0
			for _, f := range Examine(t.Context(), cfg).Findings {
				if f.Check == "forwarding-target" {
					n++
					if f.Subject != "queue orders" || f.Severity != Error || f.Fix == "" {
						t.Errorf("%s: %+v, want an error of the queue orders, with a fix", step, f)
					}
				}
			}
			if n != want {
				t.Errorf("%s: %d findings of targets, want %d", step, n, want)
			}
			time.Sleep(5 * time.Minute)
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		check("as it was made", 0)
		must(c.ns.DeleteQueue("graves"))
		check("one is deleted", 1)
		_, err := c.ns.CreateQueue(broker.QueueConfig{Name: "graves"})
		must(err)
		must(c.ns.DeleteQueue("next"))
		check("another one as well, and the first made again", 2)
		_, err = c.ns.CreateQueue(broker.QueueConfig{Name: "next"})
		must(err)
		check("both are made again", 2)
		orders.MaxDeliveryCount = 7
		_, err = c.ns.UpdateQueue(orders)
		must(err)
		check("what forwards is updated", 0)
	})
}

// Without the administration API, the answers to links and peeks are all that there is.
func TestMissingEntitiesAreFoundWithoutTheAdministrationAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := open(t, broker.QueueConfig{Name: "orders"}).config("app", "YQ==")
		cfg.Admin, cfg.NoAdmin = nil, "its port is one of this process"
		cfg.OnlyEntities = true
		cfg.Entities = []Monitored{{Name: "typo"}, {Name: "events", Setting: "monitor.entities[1]", Topic: true, Subscriptions: []string{"audit"}}}
		want := []string{
			"namespace: unknown administration", "monitor queue overdue-monitor: unknown settings", "monitor queue overdue-monitor: error exists",
			"queue typo: unknown settings", "queue typo: error exists", "topic events: unknown settings", "topic events: error exists",
		}
		if diff := cmp.Diff(want, list(Examine(t.Context(), cfg))); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
		cfg.Proxy = false
		want = []string{
			"namespace: unknown administration", "monitor queue overdue-monitor: unknown settings", "monitor queue overdue-monitor: error exists",
			"queue typo: unknown settings", "queue typo: unknown right-listen",
			"topic events: unknown settings", "subscription events/audit: error exists",
		}
		if diff := cmp.Diff(want, list(Examine(t.Context(), cfg))); diff != "" {
			t.Errorf("findings of a monitor (-want +got):\n%s", diff)
		}
	})
}

func TestAnExaminationCanBeRestricted(t *testing.T) {
	cfg := Config{Entities: []Monitored{{Name: "orders", Setting: "monitor.entities[0]"}, {Name: "bills"}}}
	cfg.Only([]string{"Orders", "other"})
	var got []string
	for _, m := range cfg.Entities {
		got = append(got, m.Name+" "+m.Setting)
	}
	if diff := cmp.Diff([]string{"orders monitor.entities[0]", "other "}, got); diff != "" || !cfg.OnlyEntities {
		t.Errorf("only entities %v (-want +got):\n%s", cfg.OnlyEntities, diff)
	}
}

func TestAnEmptyNamespaceIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := open(t, wellMade[0]).config("manage", "bQ==")
		if diff := cmp.Diff([]string{"monitored entities: advice list"}, list(Examine(t.Context(), cfg))); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := open(t, wellMade[0]).config("app", "YQ==")
		if got := fixes(Examine(t.Context(), cfg)); got[len(got)-1] != "monitored entities: list: name them: overdue doctor orders events" {
			t.Errorf("fixes %q, want how to name entities that cannot be listed", got)
		}
	})
}

func TestAdviceOnPrefetchComesWithLongLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := open(t, wellMade...).config("manage", "bQ==")
		cfg.OnlyEntities, cfg.Entities = true, []Monitored{{Name: "orders", Setting: "monitor.entities[0]", Deadline: 10 * time.Second}}
		want := []string{"queue orders: advice lock-duration", "side effects: advice prefetch"}
		if diff := cmp.Diff(want, list(Examine(t.Context(), cfg))); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
	})
}

func TestCompanionsThatNobodyReceivesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, wellMade...)
		cfg := c.config("manage", "bQ==")
		cfg.OnlyEntities = true
		sender, err := c.client("manage", "bQ==").NewSender("overdue-monitor", nil)
		if err != nil {
			t.Fatal(err)
		}
		send := func(in time.Duration) {
			t.Helper()
			at := time.Now().Add(in)
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{ScheduledEnqueueTime: &at}, nil); err != nil {
				t.Fatal(err)
			}
		}
		send(time.Hour)
		send(time.Second)
		send(2 * time.Second)
		const healthy = "[]"
		expect := func(when, want string) {
			t.Helper()
			var got []string
			for _, f := range Examine(t.Context(), cfg).Findings {
				if f.Check == "unreceived" {
					got = append(got, f.Severity.String()+" "+f.Summary)
				}
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s: findings %q, want %s", when, got, want)
			}
		}
		expect("at once", healthy)
		time.Sleep(8 * time.Second)
		expect("within the lock duration", healthy)
		time.Sleep(time.Minute)
		expect("after it", "[warning 2 companions due on overdue-monitor, the oldest for 1m7s, and nobody receives them: start `overdue monitor`, or check why it does not receive.]")
		cfg.CompanionsInRedis = true
		expect("with the companions in Redis", healthy)
		cfg.CompanionsInRedis = false

		// A monitor that was killed has left them.
		r, err := c.client("manage", "bQ==").NewReceiverForQueue("overdue-monitor", nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := r.ReceiveMessages(t.Context(), 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		expect("once a monitor was killed that had received them",
			"[warning 2 companions due on overdue-monitor, the oldest for 3m7s, and nobody receives them: start `overdue monitor`, or check why it does not receive.]")
	})
}

// Companions can be old and without a delivery behind them for two reasons, though monitors are
// well. Monitors hold them and renew the locks, or our clock is off.
func TestCompanionsThatMonitorsHoldAreNotUnreceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, wellMade...)
		cfg := c.config("manage", "bQ==")
		cfg.OnlyEntities = true
		ahead := time.Duration(0)
		cfg.Clock = func(context.Context) (time.Duration, time.Duration, error) { return ahead, time.Millisecond, nil }
		send := func(entity, id string) {
			t.Helper()
			body, _, err := (&scheduler.Companion{Entity: entity, Due: time.Now(), References: []scheduler.Reference{
				{MessageID: id, From: time.Now(), Until: time.Now(), Deadline: time.Now(), Stated: "ttl"},
			}}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			sender, err := c.client("manage", "bQ==").NewSender("overdue-monitor", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: body}, nil); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(when string, want ...string) {
			t.Helper()
			got := []string{}
			for _, f := range Examine(t.Context(), cfg).Findings {
				if f.Check == "unreceived" || f.Check == "waiting" {
					got = append(got, f.Severity.String()+" "+f.Summary)
				}
			}
			if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
				t.Errorf("%s: findings (-want +got):\n%s", when, diff)
			}
		}
		send("gone", "a")
		send("gone", "b")
		send("orders", "in flight")
		ahead = -20 * time.Minute
		expect("just due, by a clock that is ahead")
		ahead = 0
		monitor, err := c.client("manage", "bQ==").NewReceiverForQueue("overdue-monitor", nil)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := monitor.ReceiveMessages(t.Context(), 3, nil)
		if err != nil || len(ms) != 3 {
			t.Fatalf("received %d companions, %v", len(ms), err)
		}
		for range 60 {
			time.Sleep(2 * time.Second)
			for _, m := range ms {
				if err := monitor.RenewMessageLock(t.Context(), m, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		expect("held, two of them for a queue that is gone",
			"advice Monitors hold companions that have been due for up to 2m: 2 companions for messages on gone, which is not there.")
		if err := monitor.CompleteMessage(t.Context(), ms[0], nil); err != nil {
			t.Fatal(err)
		}
		if err := monitor.CompleteMessage(t.Context(), ms[1], nil); err != nil {
			t.Fatal(err)
		}
		expect("held, for a message that a consumer has")
		send("orders", "free")
		time.Sleep(3 * time.Second)
		expect("held, and another one just due")
	})
}

func TestTheReportFitsTheTerminal(t *testing.T) {
	r := Report{Namespace: "contoso", Findings: []Finding{
		{Subject: "queue orders", Severity: Warning, Summary: "A sentence that is too long for a narrow terminal.", Fix: "set one thing, or set another thing"},
		{Subject: "queue orders", Severity: Advice, Summary: "Short.", Fix: "az servicebus queue update --name orders --status Active"},
		{Subject: "queue orders", Severity: Advice, Summary: "Shorter."},
	}}
	const want = `
queue orders
  warning  A sentence that is too long
           for a narrow terminal.
           fix: set one thing, or set
                another thing
  advice   Short.
           fix: az servicebus queue update --name orders --status Active
  advice   Shorter.

contoso: 1 warning, 2 pieces of advice.
`
	var text bytes.Buffer
	if err := r.writeText(&text, r.worstFirst(), false, 40); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	r.Findings = r.Findings[1:2]
	text.Reset()
	if err := r.writeText(&text, r.worstFirst(), false, 0); err != nil || !strings.HasSuffix(text.String(), "contoso: 1 piece of advice.\n") {
		t.Errorf("WriteText = %v:\n%s", err, &text)
	}
}
