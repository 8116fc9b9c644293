// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/broker"
	"overdue/internal/servicebus/entities"
	"overdue/monitor"
	"overdue/proxy"
)

// says is a source that always says the same of every entity.
type says func(name string) (entities.Info, error)

func (s says) Read(_ context.Context, name string) (entities.Info, error) { return s(name) }

func saysOf(info entities.Info, err error) says {
	return func(string) (entities.Info, error) { return info, err }
}

// knows is knowledge from a source with text as configuration, of a namespace, and what it logs.
func knows(t *testing.T, text string, source entities.Source) (*knowledge, *observer.ObservedLogs) {
	t.Helper()
	c, err := loadText(t, "namespace: contoso.servicebus.windows.net\n"+text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	k := newKnowledge(c, source, nil, zap.New(core))
	t.Cleanup(k.store.Close)
	return k, logs
}

// learnt is what the proxy goes by once an answer has come, or will not come.
func learnt(t *testing.T, k *knowledge, name string) proxy.Settings {
	t.Helper()
	s, err := k.learn(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, k.settings(name)); diff != "" && !k.settings(name).Unknown {
		t.Errorf("settings are not what was learnt (-learnt +settings):\n%s", diff)
	}
	return s
}

func TestSettingsOfEmbeddedEntities(t *testing.T) {
	const queues = `
broker:
  autoCreate: true
  queues: [{name: orders, defaultMessageTimeToLive: 1h, deadLetteringOnMessageExpiration: true}, {name: jobs, requiresSession: true}]
  topics: [{name: events, defaultMessageTimeToLive: 2h, subscriptions: [{name: a, defaultMessageTimeToLive: 10m, deadLetteringOnMessageExpiration: true}, {name: b}]}]
`
	listed := startTest(t, queues+"monitor: {entities: [{queue: Orders, deadline: 30s, expire: native, stampTTL: false}]}\n").knowledge
	all := startTest(t, queues).knowledge
	every := startTest(t, queues+"monitor: {deadline: 1m}\n").knowledge
	some := startTest(t, queues+"monitor: {deadline: 1m, entities: [{queue: orders}, {queue: jobs, deadline: 5s}]}\n").knowledge
	for _, tt := range []struct {
		name, queue string
		k           *knowledge
		proxy       proxy.Settings
		monitor     monitor.Settings
	}{
		{"listed", "ORDERS", listed, proxy.Settings{Monitored: true, Deadline: 30 * time.Second, DefaultMessageTimeToLive: time.Hour, Findable: true},
			monitor.Settings{Strategy: "native", Deadline: 30 * time.Second}},
		{"not listed", "bills", listed, proxy.Settings{}, monitor.Settings{}},
		{"no list", "orders", all, proxy.Settings{Monitored: true, StampTTL: true, DefaultMessageTimeToLive: time.Hour, Findable: true}, monitor.Settings{}},
		{"no list, a queue that is made on demand", "bills", all, proxy.Settings{Monitored: true, StampTTL: true, Findable: true}, monitor.Settings{}},
		{"sessions, and what expires is dropped", "jobs", all, proxy.Settings{Monitored: true}, monitor.Settings{}},
		{"a topic", "Events", all, proxy.Settings{
			Monitored: true, DefaultMessageTimeToLive: 2 * time.Hour, SubscriptionTimeToLive: 10 * time.Minute,
		}, monitor.Settings{}},
		{"the monitor queue", "Overdue-Monitor", all, proxy.Settings{}, monitor.Settings{}},
		{"a deadline for all", "bills", every, proxy.Settings{Monitored: true, Deadline: time.Minute, StampTTL: true, Findable: true}, monitor.Settings{Deadline: time.Minute}},
		{"a deadline for all, the monitor queue", "overdue-monitor", every, proxy.Settings{}, monitor.Settings{Deadline: time.Minute}},
		{"a deadline for all that are listed", "orders", some, proxy.Settings{Monitored: true, Deadline: time.Minute, StampTTL: true, DefaultMessageTimeToLive: time.Hour, Findable: true},
			monitor.Settings{Strategy: "auto", Deadline: time.Minute}},
		{"a deadline for all, and its own", "jobs", some, proxy.Settings{Monitored: true, Deadline: 5 * time.Second}, monitor.Settings{Strategy: "auto", Deadline: 5 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.proxy, tt.k.settings(tt.queue)); diff != "" {
				t.Errorf("proxy (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.monitor, tt.k.monitored(t.Context(), tt.queue), cmpopts.IgnoreUnexported(monitor.Settings{})); diff != "" {
				t.Errorf("monitor (-want +got):\n%s", diff)
			}
		})
	}
}

// The embedded broker is in this process: what changes there counts for the next send.
func TestAChangeOfTheEmbeddedBrokerCountsAtOnce(t *testing.T) {
	p := startTest(t, "broker: {autoCreate: true}\n")
	ns, k := p.broker.Default(), p.knowledge
	want := func(what string, ttl, copies time.Duration) {
		t.Helper()
		if s := k.settings("orders"); !s.Monitored || s.DefaultMessageTimeToLive != ttl || s.SubscriptionTimeToLive != copies {
			t.Errorf("%s: %+v, want time to live %v and %v", what, s, ttl, copies)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want("before there is a queue", 0, 0)
	_, err := ns.CreateQueue(broker.QueueConfig{Name: "orders", DefaultMessageTimeToLive: time.Minute})
	must(err)
	want("made", time.Minute, 0)
	_, err = ns.UpdateQueue(broker.QueueConfig{Name: "orders", DefaultMessageTimeToLive: time.Hour})
	must(err)
	want("updated", time.Hour, 0)
	must(ns.DeleteQueue("orders"))
	want("deleted", 0, 0)
	_, err = ns.CreateTopic(broker.TopicConfig{Name: "orders"})
	must(err)
	_, err = ns.CreateSubscription("orders", broker.SubscriptionConfig{Name: "s", DefaultMessageTimeToLive: time.Second, ForwardTo: "sb://host/elsewhere"})
	must(err)
	want("made anew as a topic", 0, time.Second)
	info, err := k.describe(t.Context(), "orders", time.Now())
	must(err)
	if info.Kind != entities.Topic || len(info.Subscriptions) != 1 || info.Subscriptions[0].ForwardTo != "elsewhere" {
		t.Errorf("describe = %+v, want a topic with a subscription that forwards", info)
	}
}

func TestSettingsAreThoseOfTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, logs := knows(t, "monitor: {entities: [{queue: orders, deadline: 30s}]}\n", saysOf(entities.Info{Kind: entities.Queue, DefaultMessageTimeToLive: time.Minute}, nil))
		if s := k.settings("orders"); !s.Unknown {
			t.Errorf("settings = %+v before there is an answer, want them to be unknown", s)
		}
		want := proxy.Settings{Monitored: true, StampTTL: false, Deadline: 30 * time.Second, DefaultMessageTimeToLive: time.Minute}
		if diff := cmp.Diff(want, learnt(t, k, "Orders")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if s := k.settings("bills"); s.Monitored || s.Unknown {
			t.Errorf("settings of what is not listed = %+v, want it to pass at once", s)
		}
		if logs.Len() > 0 {
			t.Errorf("lines %v, want none", logs.All())
		}
	})
}

func TestWithoutTheRightTheConfigurationCounts(t *testing.T) {
	noRight := fmt.Errorf("%w: status 401: Manage,EntityRead claims required", entities.ErrNoRight)
	for _, tt := range []struct {
		name, text, entity string
		err                error
		want               proxy.Settings
		line               string // "" = none
	}{
		{"nothing is said", "", "Orders", noRight, proxy.Settings{Monitored: true, StampTTL: true},
			"right Manage, or say in monitor.entities how it was made: {queue: Orders, defaultMessageTimeToLive: …, requiresSession: …, deadLetteringOnMessageExpiration: …}, with all others"},
		{"some is said", "monitor: {entities: [{queue: orders, defaultMessageTimeToLive: 1m}]}\n", "orders", noRight,
			proxy.Settings{Monitored: true, StampTTL: true, DefaultMessageTimeToLive: time.Minute},
			"{queue: orders, requiresSession: …, deadLetteringOnMessageExpiration: …}"},
		{"all is said", "monitor: {entities: [{queue: orders, defaultMessageTimeToLive: 1m, requiresSession: false, deadLetteringOnMessageExpiration: true}]}\n",
			"orders", noRight, proxy.Settings{Monitored: true, StampTTL: true, DefaultMessageTimeToLive: time.Minute}, ""},
		{"a topic", "monitor: {entities: [{topic: events}]}\n", "events", noRight, proxy.Settings{Monitored: true, StampTTL: true},
			"{topic: events, defaultMessageTimeToLive: …, subscriptions: …}"},
		{"a topic of which all is said", "monitor: {entities: [{topic: events, defaultMessageTimeToLive: 0s, subscriptions: [{name: a, defaultMessageTimeToLive: 5s}]}]}\n",
			"events", noRight, proxy.Settings{Monitored: true, StampTTL: true, SubscriptionTimeToLive: 5 * time.Second}, ""},
		{"unreachable", "", "orders", errors.New("connection refused"), proxy.Settings{Monitored: true, StampTTL: true}, "let this process reach the administration API"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, logs := knows(t, tt.text, saysOf(entities.Info{}, tt.err))
				for range 3 {
					if diff := cmp.Diff(tt.want, learnt(t, k, tt.entity)); diff != "" {
						t.Errorf("-want +got:\n%s", diff)
					}
					time.Sleep(3 * time.Hour) // it is asked again
					synctest.Wait()
				}
				if tt.line == "" {
					if logs.Len() > 0 {
						t.Errorf("lines %v, want none", logs.All())
					}
					return
				}
				lines := logs.All()
				if len(lines) != 1 || lines[0].Level != zap.WarnLevel {
					t.Fatalf("%d lines, want one warning: %v", len(lines), lines)
				}
				m := lines[0].ContextMap()
				if next, _ := m["next"].(string); m["work_queue"] != tt.entity || !strings.Contains(next, tt.line) || !strings.Contains(fmt.Sprint(m["error"]), tt.err.Error()) {
					t.Errorf("warning with %v, want the entity, the reason, and %q", m, tt.line)
				}
			})
		})
	}
}

func TestTheNamespaceCountsBeforeTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, logs := knows(t, `
monitor:
  entities:
    - {queue: orders, defaultMessageTimeToLive: 1m, requiresSession: true}
    - {queue: fine, defaultMessageTimeToLive: 2h, deadLetteringOnMessageExpiration: true}
    - {topic: events, subscriptions: [{name: A, defaultMessageTimeToLive: 5s}, {name: gone}]}
    - {queue: missing}
`, says(func(name string) (entities.Info, error) {
			switch name {
			case "events":
				return entities.Info{Kind: entities.Topic, Subscriptions: []entities.Subscription{{Name: "a", DefaultMessageTimeToLive: 7 * time.Second, DeadLetteringOnMessageExpiration: true}}}, nil
			case "missing":
				return entities.Info{}, entities.ErrNotFound
			}
			return entities.Info{Kind: entities.Queue, DefaultMessageTimeToLive: 2 * time.Hour, DeadLetteringOnMessageExpiration: true}, nil
		}))
		go func() {
			if err := k.prime(t.Context()); err != nil {
				t.Errorf("prime = %v", err)
			}
		}()
		for range 10 {
			if s := learnt(t, k, "orders"); s.DefaultMessageTimeToLive != 2*time.Hour {
				t.Errorf("%+v, want the namespace's time to live", s)
			}
			if s := learnt(t, k, "events"); s.SubscriptionTimeToLive != 7*time.Second {
				t.Errorf("%+v, want the namespace's subscriptions", s)
			}
			learnt(t, k, "missing")
			if s := k.monitored(t.Context(), "orders"); s.DefaultMessageTimeToLive != 0 {
				t.Errorf("%+v, want nothing of the configuration where the namespace knows", s)
			}
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		var lines []string
		for _, l := range logs.All() {
			m := l.ContextMap()
			lines = append(lines, fmt.Sprint(m["work_queue"], ": ", l.Message, ": ", m["in_the_namespace"]))
		}
		slices.Sort(lines)
		const contradicts = "the namespace contradicts monitor.entities, and counts"
		if diff := cmp.Diff([]string{
			"events: " + contradicts + ": [subscription A: defaultMessageTimeToLive is 7s subscription gone: it is missing]",
			"missing: monitored entity does not exist: <nil>",
			"orders: " + contradicts + ": [defaultMessageTimeToLive is 2h0m0s requiresSession is false]",
		}, lines); diff != "" {
			t.Errorf("warnings, -want +got:\n%s", diff)
		}
	})
}

// The monitor must not take a topic for an empty queue only because the namespace is slow to answer.
func TestWhatTheMonitorIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("connection refused")
		k, _ := knows(t, "monitor: {entities: [{queue: orders, defaultMessageTimeToLive: 1m}, {queue: jobs, requiresSession: true}, {topic: events, subscriptions: [{name: a}]}]}\n",
			saysOf(entities.Info{}, down))
		if info, err := k.describe(t.Context(), "events", time.Now()); err != nil || info.Kind != entities.Topic || len(info.Subscriptions) != 1 {
			t.Errorf("a topic that is listed: %+v, %v, want what the list says", info, err)
		}
		if info, err := k.describe(t.Context(), "jobs", time.Now()); err != nil || !info.RequiresSession || !info.DeadLetteringOnMessageExpiration {
			t.Errorf("a queue that is listed with sessions: %+v, %v, want what the list says", info, err)
		}
		if _, err := k.describe(t.Context(), "orders", time.Now()); errors.Is(err, entities.ErrNoRight) || !errors.Is(err, down) {
			t.Errorf("a queue of which the list says little = %v, want %v at first", err, down)
		}
		if s := k.monitored(t.Context(), "orders"); s.DefaultMessageTimeToLive != time.Minute {
			t.Errorf("%+v, want the configuration's time to live", s)
		}
		time.Sleep(2 * time.Minute)
		if _, err := k.describe(t.Context(), "orders", time.Now()); !errors.Is(err, entities.ErrNoRight) {
			t.Errorf("describe after two minutes = %v, want ErrNoRight", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := k.describe(ctx, "never asked", time.Now()); err == nil {
			t.Error("describe succeeds though its context has ended")
		}
	})
}

// The proxy asks at every send.
func TestSettingsOfASendMakeNothing(t *testing.T) {
	for name, source := range map[string]says{
		"known":    saysOf(entities.Info{Kind: entities.Topic, Subscriptions: []entities.Subscription{{Name: "a"}, {Name: "b"}}}, nil),
		"no right": saysOf(entities.Info{}, entities.ErrNoRight),
	} {
		for _, text := range []string{"", "monitor: {entities: [{queue: Orders}, {topic: events, subscriptions: [{name: a}]}]}\n"} {
			k, _ := knows(t, text+"alerts: [{serviceBus: {entity: told}}]\n", source)
			for _, entity := range []string{"orders", "events", "bills"} {
				_, err := k.learn(t.Context(), entity)
				if n := testing.AllocsPerRun(1000, func() { k.settings(entity) }); n > 0 || err != nil {
					t.Errorf("%s, %q: settings of %s make %v allocations, want 0 (%v)", name, text, entity, n, err)
				}
			}
		}
	}
}

func TestLinesAboutEntitiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, logs := knows(t, "", saysOf(entities.Info{}, entities.ErrNoRight))
		for i := range 3 * maxTold {
			learnt(t, k, fmt.Sprint(i))
		}
		if n := logs.Len(); n != maxTold+1 {
			t.Errorf("%d lines, want %d and one that says so", n, maxTold)
		}
	})
}

// Sessions and topics are monitored as everything else is, without a word in the configuration.
func TestSessionsAndTopicsAreMonitored(t *testing.T) {
	p := startTest(t, `
broker:
  queues: [{name: jobs, requiresSession: true, deadLetteringOnMessageExpiration: true, defaultMessageTimeToLive: 1s}]
  topics: [{name: events, subscriptions: [{name: all, deadLetteringOnMessageExpiration: true, defaultMessageTimeToLive: 1s}]}]
`)
	for _, name := range []string{"jobs", "events"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.restAddr()+"/"+name+"/messages", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("BrokerProperties", `{"SessionId": "s"}`)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s: status %d", name, resp.StatusCode)
		}
	}
	for _, path := range []string{"jobs", "events/Subscriptions/all"} {
		q, ok := p.broker.Queue(path)
		if !ok {
			t.Fatalf("no queue %s", path)
		}
		eventually(t, path+" is dead-lettered with nobody receiving", func() bool { return q.Counts().DeadLetter == 1 })
	}
}
