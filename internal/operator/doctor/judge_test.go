// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/servicebus/entities"
)

// right is a monitor queue without faults.
func right() entities.Details {
	return entities.Details{
		Info: entities.Info{Kind: entities.Queue, LockDuration: 10 * time.Second}, Status: "Active", MaxDeliveryCount: 2000,
	}
}

func azure() *examiner {
	return &examiner{cfg: Config{Host: "contoso.servicebus.windows.net", MonitorQueue: "overdue-monitor"}}
}

// checks returns "severity check" of each finding.
func checks(all []Finding) []string {
	list := []string{}
	for _, f := range all {
		list = append(list, f.Severity.String()+" "+f.Check)
	}
	return list
}

func TestJudgeMonitorQueue(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*entities.Details)
		want   []string
	}{
		"nothing":            {func(*entities.Details) {}, []string{"ok settings"}},
		"sessions":           {func(d *entities.Details) { d.RequiresSession = true }, []string{"error sessions"}},
		"partitions":         {func(d *entities.Details) { d.Partitioned = true }, []string{"warning partitioning"}},
		"forwarding":         {func(d *entities.Details) { d.ForwardTo = "x" }, []string{"error forwarding"}},
		"dead letters go on": {func(d *entities.Details) { d.ForwardDeadLetteredMessagesTo = "x" }, []string{"advice forwarding-dead-letters"}},
		"short life":         {func(d *entities.Details) { d.DefaultMessageTimeToLive = time.Hour }, []string{"error time-to-live"}},
		"limited life":       {func(d *entities.Details) { d.DefaultMessageTimeToLive = 14 * 24 * time.Hour }, []string{"advice time-to-live"}},
		"auto-delete":        {func(d *entities.Details) { d.AutoDeleteOnIdle = 24 * time.Hour }, []string{"error auto-delete"}},
		"short lock":         {func(d *entities.Details) { d.LockDuration = 5 * time.Second }, []string{"warning lock-duration"}},
		"long lock":          {func(d *entities.Details) { d.LockDuration = time.Minute }, []string{"advice lock-duration"}},
		"few deliveries":     {func(d *entities.Details) { d.MaxDeliveryCount = 10 }, []string{"warning max-delivery-count"}},
		"fewer deliveries":   {func(d *entities.Details) { d.MaxDeliveryCount = 1000 }, []string{"advice max-delivery-count"}},
		"failed companions":  {func(d *entities.Details) { d.Counts.DeadLetter = 3 }, []string{"warning failed-companions"}},
		"a backlog":          {func(d *entities.Details) { d.Counts.Active = 10_001 }, []string{"warning backlog"}},
		"disabled":           {func(d *entities.Details) { d.Status = "Disabled" }, []string{"error status"}},
		"cannot be sent to":  {func(d *entities.Details) { d.Status = "SendDisabled" }, []string{"error status"}},
		"a topic":            {func(d *entities.Details) { d.Kind = entities.Topic }, []string{"error kind"}},
		"two at once": {func(d *entities.Details) { d.RequiresSession, d.MaxDeliveryCount = true, 1 },
			[]string{"error sessions", "warning max-delivery-count"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := right()
			c.change(&d)
			n := &notes{}
			azure().judgeMonitorQueue(n, "overdue-monitor", &d)
			if diff := cmp.Diff(c.want, checks(n.all)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			for _, f := range n.all {
				if f.Severity > Advice && f.Fix == "" {
					t.Errorf("%s has no fix: %s", f.Check, f.Summary)
				}
			}
		})
	}
}

func TestJudgeEntity(t *testing.T) {
	queue := func(change func(*entities.Details)) entities.Details {
		d := entities.Details{Status: "Active", Info: entities.Info{
			Kind: entities.Queue, LockDuration: 30 * time.Second, DefaultMessageTimeToLive: time.Minute, DeadLetteringOnMessageExpiration: true,
		}}
		change(&d)
		return d
	}
	listed := func(change func(*Monitored)) Monitored {
		w := Monitored{Name: "orders", Setting: "monitor.entities[0]"}
		change(&w)
		return w
	}
	same := func(*entities.Details) {}
	plain := func(*Monitored) {}
	for name, c := range map[string]struct {
		monitored func(*Monitored)
		made      func(*entities.Details)
		want      []string
	}{
		"nothing":            {plain, same, []string{"ok settings"}},
		"drops what expires": {plain, func(d *entities.Details) { d.DeadLetteringOnMessageExpiration = false }, []string{"error dead-lettering"}},
		"drops what states a life": {func(w *Monitored) { w.Deadline = time.Minute }, func(d *entities.Details) {
			d.DeadLetteringOnMessageExpiration, d.DefaultMessageTimeToLive = false, 0
		}, []string{"warning dead-lettering"}},
		"native, and drops": {func(w *Monitored) { w.Deadline, w.Expire = time.Minute, "native" }, func(d *entities.Details) {
			d.DeadLetteringOnMessageExpiration, d.DefaultMessageTimeToLive = false, 0
		}, []string{"error dead-lettering"}},
		"deadline after the end":  {func(w *Monitored) { w.Deadline = time.Hour }, same, []string{"warning time-to-live"}},
		"no deadline":             {plain, func(d *entities.Details) { d.DefaultMessageTimeToLive = 0 }, []string{"advice deadline"}},
		"too short a deadline":    {func(w *Monitored) { w.Deadline = 100 * time.Millisecond }, same, []string{"warning deadline-too-short"}},
		"a lock that lasts":       {func(w *Monitored) { w.Deadline = 10 * time.Second }, same, []string{"advice lock-duration"}},
		"auto-delete":             {plain, func(d *entities.Details) { d.AutoDeleteOnIdle = time.Hour }, []string{"advice auto-delete"}},
		"auto-delete before that": {func(w *Monitored) { w.Deadline = time.Hour }, func(d *entities.Details) { d.AutoDeleteOnIdle, d.DefaultMessageTimeToLive = 5*time.Minute, 0 }, []string{"error auto-delete"}},
		"said otherwise": {func(w *Monitored) {
			w.Contradictions = func(i entities.Info) []string {
				return []string{"defaultMessageTimeToLive is " + i.DefaultMessageTimeToLive.String()}
			}
		}, same, []string{"warning contradiction"}},
		"duplicates":            {plain, func(d *entities.Details) { d.RequiresDuplicateDetection = true }, []string{"advice duplicate-detection"}},
		"partitions":            {plain, func(d *entities.Details) { d.Partitioned = true }, []string{"advice partitioning"}},
		"forwards":              {plain, func(d *entities.Details) { d.ForwardTo = "x" }, []string{"advice forwarding"}},
		"forwards dead letters": {plain, func(d *entities.Details) { d.ForwardDeadLetteredMessagesTo = "x" }, []string{"advice forwarding-dead-letters"}},
		"disabled":              {plain, func(d *entities.Details) { d.Status = "ReceiveDisabled" }, []string{"error status"}},
		"not sent to":           {plain, func(d *entities.Details) { d.Status = "SendDisabled" }, []string{"warning status"}},
		"no sessions":           {func(w *Monitored) { w.Expire = "session" }, same, []string{"error sessions"}},
		"sessions, scanned":     {func(w *Monitored) { w.Expire = "scan" }, func(d *entities.Details) { d.RequiresSession = true }, []string{"advice sessions"}},
		"listed as a topic":     {func(w *Monitored) { w.Topic = true }, same, []string{"error kind"}},
		"no subscription":       {func(w *Monitored) { w.Topic = true }, func(d *entities.Details) { d.Kind = entities.Topic }, []string{"advice subscriptions"}},
		"a subscription that drops": {func(w *Monitored) { w.Topic = true }, func(d *entities.Details) {
			d.Kind = entities.Topic
			d.Subscriptions = []entities.SubscriptionDetails{{Subscription: entities.Subscription{Name: "audit", LockDuration: 30 * time.Second}}}
		}, []string{"error dead-lettering"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, d, n := listed(c.monitored), queue(c.made), &notes{}
			azure().judgeEntity(n, &w, &d)
			if diff := cmp.Diff(c.want, checks(n.all)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestADeadlineOfAFewRoundTripsIsTooShort(t *testing.T) {
	x := azure()
	x.roundTrip = 200 * time.Millisecond
	w := Monitored{Name: "orders", Setting: "monitor.entities[0]", Deadline: 1500 * time.Millisecond}
	d := entities.Details{Info: entities.Info{Kind: entities.Queue, DeadLetteringOnMessageExpiration: true, LockDuration: 5 * time.Second}}
	n := &notes{}
	x.judgeEntity(n, &w, &d)
	if diff := cmp.Diff([]string{"warning deadline-too-short"}, checks(n.all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// A fix has to work for somebody who follows it word by word.
func TestFixesOfDeadlinesWork(t *testing.T) {
	made := func(life time.Duration) *entities.Details {
		return &entities.Details{Info: entities.Info{
			Kind: entities.Queue, DeadLetteringOnMessageExpiration: true, LockDuration: 5 * time.Second, DefaultMessageTimeToLive: life,
		}}
	}
	topic := &entities.Details{Info: entities.Info{Kind: entities.Topic}, Subscriptions: []entities.SubscriptionDetails{
		{Subscription: entities.Subscription{Name: "audit", DeadLetteringOnMessageExpiration: true}},
	}}
	for name, c := range map[string]struct {
		monitored Monitored
		lists     bool
		made      *entities.Details
		want      string
	}{
		"listed":                {Monitored{Name: "orders", Setting: "monitor.entities[0]"}, true, made(0), "set monitor.entities[0].deadline"},
		"not listed, as others": {Monitored{Name: "orders"}, true, made(0), "add {queue: orders, deadline: 30s} to monitor.entities, with the deadline of your choice"},
		"nothing is listed": {Monitored{Name: "orders"}, false, made(0),
			"set monitor.deadline, which counts for every queue and topic without a deadline of its own"},
		"subscription":         {Monitored{Name: "events"}, true, topic, "add {topic: events, deadline: 30s} to monitor.entities, with the deadline of your choice"},
		"configured too short": {Monitored{Name: "orders", Setting: "monitor.entities[0]", Deadline: time.Second}, true, made(0), "set monitor.entities[0].deadline to 3s or more"},
		"dies too soon": {Monitored{Name: "orders"}, true, made(500 * time.Millisecond),
			"az servicebus queue update --resource-group <group> --namespace-name contoso --name orders --default-message-time-to-live PT3S, or to more"},
		"canary": {Monitored{Name: "canary", Setting: "canary.queue", States: true}, true, made(0), ""},
	} {
		t.Run(name, func(t *testing.T) {
			x, n := azure(), &notes{}
			x.roundTrip, x.cfg.ListsAll = 250*time.Millisecond, c.lists
			x.judgeEntity(n, &c.monitored, c.made)
			if got := n.all[len(n.all)-1].Fix; got != c.want {
				t.Errorf("fix %q, want %q", got, c.want)
			}
		})
	}
}

func TestFixesAreCommandsToPaste(t *testing.T) {
	x, n := azure(), &notes{}
	d := right()
	d.LockDuration = 30 * time.Second
	x.judgeMonitorQueue(n, x.cfg.MonitorQueue, &d)
	w := Monitored{Name: "events", Topic: true, Setting: "monitor.entities[0]"}
	topic := entities.Details{Info: entities.Info{Kind: entities.Topic}, Subscriptions: []entities.SubscriptionDetails{
		{Subscription: entities.Subscription{Name: "audit"}},
	}}
	x.judgeEntity(n, &w, &topic)
	var fixes []string
	for _, f := range n.all {
		fixes = append(fixes, f.Fix)
	}
	want := []string{
		"az servicebus queue update --resource-group <group> --namespace-name contoso --name overdue-monitor --lock-duration PT10S",
		"az servicebus topic subscription update --resource-group <group> --namespace-name contoso --topic-name events --name audit --enable-dead-lettering-on-message-expiration true",
		"set monitor.entities[0].deadline",
	}
	if diff := cmp.Diff(want, fixes); diff != "" {
		t.Errorf("fixes (-want +got):\n%s", diff)
	}
	if got, want := x.createCommand("overdue-monitor"), "az servicebus queue create --resource-group <group> --namespace-name contoso --name overdue-monitor --lock-duration PT10S --max-delivery-count 2000"; got != want {
		t.Errorf("create = %s, want %s", got, want)
	}
}

func TestRepairsOfOneEntityAreMerged(t *testing.T) {
	x, n := azure(), &notes{}
	d := right()
	d.LockDuration, d.MaxDeliveryCount, d.RequiresSession = time.Second, 10, true
	x.judgeMonitorQueue(n, x.cfg.MonitorQueue, &d)
	r := Report{Findings: n.all}
	var got []string
	for _, p := range r.Repairs() {
		got = append(got, p.String())
	}
	if diff := cmp.Diff([]string{"queue overdue-monitor: set LockDuration = PT10S, MaxDeliveryCount = 2000"}, got); diff != "" {
		t.Errorf("repairs (-want +got):\n%s", diff)
	}
	if again := r.Repairs(); len(again) != 1 || len(again[0].Set) != 2 {
		t.Errorf("asked again there are %v", again)
	}
}

// A lock duration as short as a deadline would cost consumers their locks.
func TestALockDurationIsNeverProposedThatConsumersMayLose(t *testing.T) {
	for _, tt := range []struct {
		lock, deadline time.Duration
		want           string
	}{
		{time.Minute, 5 * time.Second, "az servicebus queue update --resource-group <group> --namespace-name contoso --name orders --lock-duration PT30S, if consumers settle in less"},
		{5 * time.Minute, 2 * time.Minute, "az servicebus queue update --resource-group <group> --namespace-name contoso --name orders --lock-duration PT2M, if consumers settle in less"},
		{30 * time.Second, 5 * time.Second, "have consumers settle or abandon messages within the deadline"},
	} {
		w := Monitored{Name: "orders", Setting: "monitor.entities[0]", Deadline: tt.deadline}
		d := entities.Details{Info: entities.Info{Kind: entities.Queue, DeadLetteringOnMessageExpiration: true, LockDuration: tt.lock}}
		n := &notes{}
		azure().judgeEntity(n, &w, &d)
		if len(n.all) != 1 || n.all[0].Check != "lock-duration" || n.all[0].Fix != tt.want || n.all[0].Fixable {
			t.Errorf("lock of %v, deadline of %v: %+v, want the fix %q", tt.lock, tt.deadline, n.all, tt.want)
		}
	}
}

func TestTheDeadlineOfAllEntitiesCountsForThoseWithoutOne(t *testing.T) {
	x := azure()
	x.cfg.Deadline = 100 * time.Millisecond
	d := entities.Details{Info: entities.Info{Kind: entities.Queue, DeadLetteringOnMessageExpiration: true}}
	n := &notes{}
	x.judgeEntity(n, &Monitored{Name: "orders"}, &d)
	if len(n.all) != 1 || n.all[0].Check != "deadline-too-short" || n.all[0].Fix != "set monitor.deadline to 1s or more" {
		t.Errorf("findings %+v, want that the deadline is too short, and its key", n.all)
	}
}

func TestTheReportHasATextAndAJSONForm(t *testing.T) {
	r := Report{Namespace: "contoso.servicebus.windows.net", Findings: []Finding{
		{Subject: "namespace", Check: "tier", Severity: OK, Summary: "The tier is Standard."},
		{Subject: "queue orders", Check: "dead-lettering", Severity: Error, Summary: "It drops.", Fix: "az …", Fixable: true},
		{Subject: "queue orders", Check: "right-listen", Severity: Unknown, Summary: "Who knows."},
	}}
	var text bytes.Buffer
	if err := r.writeText(&text, r.worstFirst(), false, 0); err != nil {
		t.Fatal(err)
	}
	const want = `
queue orders
  error    It drops.
           fix: az …  (overdue doctor --fix does it)
  unknown  Who knows.

namespace
  ok       The tier is Standard.

contoso.servicebus.windows.net: 1 error, 1 not checked.
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	text.Reset()
	if err := r.writeText(&text, r.worstFirst(), true, 0); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "\x1b[1;31merror") {
		t.Errorf("an error has no colour: %q", text.String())
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"severity":"error"`) {
		t.Errorf("JSON = %s", b)
	}
}
