// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"overdue/internal/config"
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

// knows is Catalog from a source with text as configuration, of a namespace, and what it logs.
func knows(t *testing.T, text string, source entities.Source) (*Catalog, *observer.ObservedLogs) {
	t.Helper()
	c, err := configured(t, "namespace: contoso.servicebus.windows.net\n"+text)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	k := New(c, source, nil, zap.New(core))
	t.Cleanup(k.store.Close)
	return k, logs
}

// configured loads text as a configuration file.
func configured(t *testing.T, text string) (*config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "overdue.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(file, func(string) string { return "" }, nil)
}

// An embeddedNamespace is a broker as a process makes it of its configuration, and what is known of
// it.
type embeddedNamespace struct {
	broker *broker.Broker
	known  *Catalog
}

func embedded(t *testing.T, text string) embeddedNamespace {
	t.Helper()
	c, err := configured(t, text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(broker.Config{
		AutoCreate: c.Broker.AutoCreate, AutoCreateConfig: config.OnDemandQueue,
		Queues: append(c.BrokerQueues(), config.CompanionQueue(c.MonitorQueue)), Topics: c.BrokerTopics(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	k := New(c, NewEmbeddedSource(b, c.Broker.AutoCreate), b.Default().Changes, zap.NewNop())
	t.Cleanup(k.store.Close)
	return embeddedNamespace{b, k}
}

// learnt is what the proxy goes by once an answer has come, or will not come.
func learnt(t *testing.T, k *Catalog, name string) proxy.Settings {
	t.Helper()
	s, err := k.Learn(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, k.Settings(name)); diff != "" && !k.Settings(name).Unknown {
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
	listed := embedded(t, queues+"monitor: {entities: [{queue: Orders, deadline: 30s, expire: native, stampTTL: false}]}\n").known
	all := embedded(t, queues).known
	every := embedded(t, queues+"monitor: {deadline: 1m}\n").known
	some := embedded(t, queues+"monitor: {deadline: 1m, entities: [{queue: orders}, {queue: jobs, deadline: 5s}]}\n").known
	for _, tt := range []struct {
		name, queue string
		k           *Catalog
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
			if diff := cmp.Diff(tt.proxy, tt.k.Settings(tt.queue), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("proxy (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.monitor, tt.k.Monitored(t.Context(), tt.queue), cmpopts.IgnoreUnexported(monitor.Settings{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("monitor (-want +got):\n%s", diff)
			}
		})
	}
}

// The embedded broker is in this process: what changes there counts for the next send.
func TestAChangeOfTheEmbeddedBrokerCountsAtOnce(t *testing.T) {
	e := embedded(t, "broker: {autoCreate: true}\n")
	ns, k := e.broker.Default(), e.known
	want := func(what string, ttl, copies time.Duration) {
		t.Helper()
		if s := k.Settings("orders"); !s.Monitored || s.DefaultMessageTimeToLive != ttl || s.SubscriptionTimeToLive != copies {
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
	info, err := k.Describe(t.Context(), "orders", time.Now())
	must(err)
	if info.Kind != entities.Topic || len(info.Subscriptions) != 1 || info.Subscriptions[0].ForwardTo != "elsewhere" {
		t.Errorf("describe = %+v, want a topic with a subscription that forwards", info)
	}
}

func TestSettingsAreThoseOfTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, logs := knows(t, "monitor: {entities: [{queue: orders, deadline: 30s}]}\n", saysOf(entities.Info{Kind: entities.Queue, DefaultMessageTimeToLive: time.Minute}, nil))
		if s := k.Settings("orders"); !s.Unknown {
			t.Errorf("settings = %+v before there is an answer, want them to be unknown", s)
		}
		want := proxy.Settings{Monitored: true, StampTTL: false, Deadline: 30 * time.Second, DefaultMessageTimeToLive: time.Minute}
		if diff := cmp.Diff(want, learnt(t, k, "Orders"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if s := k.Settings("bills"); s.Monitored || s.Unknown {
			t.Errorf("settings of what is not listed = %+v, want it to pass at once", s)
		}
		if logs.Len() > 0 {
			t.Errorf("lines %v, want none", logs.All())
		}
	})
}

func TestKnownAreTheMonitoredEntitiesThatWereAskedFor(t *testing.T) {
	k, _ := knows(t, "", saysOf(entities.Info{Kind: entities.Queue}, nil))
	var described []string
	k.OnDescribed(func(name string, _ *entities.Info) { described = append(described, name) })
	for _, name := range []string{"Orders", "orders", "ORDERS", "bills", "overdue-monitor"} {
		if _, err := k.Learn(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	got := k.Known()
	slices.Sort(got)
	slices.Sort(described)
	if want := []string{"Orders", "bills"}; !slices.Equal(got, want) || !slices.Equal(described, want) {
		t.Errorf("known are %q, and described %q, want %q", got, described, want)
	}
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
			"Manage right, or say in monitor.entities how it was made: {queue: Orders, defaultMessageTimeToLive: …, requiresSession: …, deadLetteringOnMessageExpiration: …}, with all others"},
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
					if diff := cmp.Diff(tt.want, learnt(t, k, tt.entity), cmpopts.EquateEmpty()); diff != "" {
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
			if err := k.Run(t.Context()); err != nil {
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
			if s := k.Monitored(t.Context(), "orders"); s.DefaultMessageTimeToLive != 0 {
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
		const contradicts = "the namespace contradicts monitor.entities, and its settings apply"
		if diff := cmp.Diff([]string{
			"events: " + contradicts + ": [subscription A: defaultMessageTimeToLive is 7s subscription gone: it is missing]",
			"missing: monitored entity does not exist: <nil>",
			"orders: " + contradicts + ": [defaultMessageTimeToLive is 2h0m0s requiresSession is false]",
		}, lines); diff != "" {
			t.Errorf("warnings, -want +got:\n%s", diff)
		}
	})
}

// The monitor must not take a topic for an empty queue only because the namespace is slow to
// answer.
func TestWhatTheMonitorGetsToKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("connection refused")
		k, _ := knows(t, "monitor: {entities: [{queue: orders, defaultMessageTimeToLive: 1m}, {queue: jobs, requiresSession: true}, {topic: events, subscriptions: [{name: a}]}]}\n",
			saysOf(entities.Info{}, down))
		if info, err := k.Describe(t.Context(), "events", time.Now()); err != nil || info.Kind != entities.Topic || len(info.Subscriptions) != 1 {
			t.Errorf("a topic that is listed: %+v, %v, want what the list says", info, err)
		}
		if info, err := k.Describe(t.Context(), "jobs", time.Now()); err != nil || !info.RequiresSession || !info.DeadLetteringOnMessageExpiration {
			t.Errorf("a queue that is listed with sessions: %+v, %v, want what the list says", info, err)
		}
		if _, err := k.Describe(t.Context(), "orders", time.Now()); errors.Is(err, entities.ErrNoRight) || !errors.Is(err, down) {
			t.Errorf("a queue of which the list says little = %v, want %v at first", err, down)
		}
		if s := k.Monitored(t.Context(), "orders"); s.DefaultMessageTimeToLive != time.Minute {
			t.Errorf("%+v, want the configuration's time to live", s)
		}
		time.Sleep(2 * time.Minute)
		if _, err := k.Describe(t.Context(), "orders", time.Now()); !errors.Is(err, entities.ErrNoRight) {
			t.Errorf("describe after two minutes = %v, want ErrNoRight", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := k.Describe(ctx, "never asked", time.Now()); err == nil {
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
			k, _ := knows(t, text+"alerts: [{serviceBus: {entity: notified}}]\n", source)
			for _, entity := range []string{"orders", "events", "bills"} {
				_, err := k.Learn(t.Context(), entity)
				if n := testing.AllocsPerRun(1000, func() { k.Settings(entity) }); n > 0 || err != nil {
					t.Errorf("%s, %q: settings of %s make %v allocations, want 0 (%v)", name, text, entity, n, err)
				}
			}
		}
	}
}

func TestLinesAboutEntitiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, logs := knows(t, "", saysOf(entities.Info{}, entities.ErrNoRight))
		for i := range 3 * maxNotices {
			learnt(t, k, fmt.Sprint(i))
		}
		if n := logs.Len(); n != maxNotices+1 {
			t.Errorf("%d lines, want %d and one that says so", n, maxNotices)
		}
	})
}
