// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

// opened is a broker on d, which is closed at the end of the test.
func opened(t *testing.T, d broker.Disk, configure ...func(*broker.Config)) *broker.Broker {
	t.Helper()
	cfg := broker.Config{Disk: d}
	for _, f := range configure {
		f(&cfg)
	}
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// pathsOf is the paths of all entities of a namespace.
func pathsOf(n *broker.Namespace) string {
	var paths []string
	for _, e := range n.Entities() {
		paths = append(paths, e.Path())
	}
	return strings.Join(paths, " ")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sendTo(t *testing.T, n *broker.Namespace, to string, bodies ...string) {
	t.Helper()
	e, err := n.Entity(to)
	must(t, err)
	for _, body := range bodies {
		if refusal := e.Send(amqp.AppendData(nil, []byte(body))); refusal != nil {
			t.Fatal(refusal)
		}
	}
}

func TestEntitiesStay(t *testing.T) {
	disk := &brokertest.SlowDisk{Prompt: true}
	isolated := func(c *broker.Config) { c.Isolate, c.AutoCreate = true, true }
	b := opened(t, disk, isolated)
	n := b.Default()
	must(t, b.AddQueue(broker.QueueConfig{
		Name:                     "orders",
		LockDuration:             90 * time.Second,
		MaxDeliveryCount:         7,
		DefaultMessageTimeToLive: time.Hour,
		MaxSize:                  5 << 30,
		MaxMessageSize:           1 << 20,
		AutoDeleteOnIdle:         time.Hour,
		Status:                   broker.SendDisabled,
		AuthorizationRules:       []broker.AuthorizationRule{{KeyName: "k", PrimaryKey: "p", Send: true, CreatedAt: n.Now().UTC()}},
		UserMetadata:             "é",
	}))
	must(t, b.AddQueue(broker.QueueConfig{Name: "gone"}))
	must(t, n.DeleteQueue("gone"))
	_, err := n.CreateTopic(broker.TopicConfig{Name: "Events", RequiresDuplicateDetection: true})
	must(t, err)
	_, err = n.CreateSubscription("events", broker.SubscriptionConfig{Name: "Audit", RequiresSession: true})
	must(t, err)
	must(t, n.DeleteRule("events", "audit", broker.DefaultRuleName))
	_, err = n.CreateRule("events", "audit", broker.RuleConfig{Name: "r", Filter: broker.Filter{False: true}})
	must(t, err)
	_, err = n.UpdateTopic(broker.TopicConfig{Name: "events", MaxSize: 1 << 30, RequiresDuplicateDetection: true})
	must(t, err)
	sendTo(t, b.Namespace("Tenant"), "made")
	disk.Sync()

	again := opened(t, disk.PowerLost(), isolated)
	if got, want := pathsOf(again.Default()), "orders Events Events/Subscriptions/Audit"; got != want {
		t.Errorf("after a restart there are %s, want %s", got, want)
	}
	if got := pathsOf(again.Namespace("tenant")); got != "made" {
		t.Errorf("in the other namespace there are %q, want made", got)
	}
	for what, info := range map[string]func(*broker.Namespace) (any, error){
		"queue":        func(n *broker.Namespace) (any, error) { q, err := n.QueueInfo("orders"); return q, err },
		"subscription": func(n *broker.Namespace) (any, error) { return n.Rules("events", "audit") },
		"topic": func(n *broker.Namespace) (any, error) {
			i, err := n.TopicInfo("events")
			i.AccessedAt = time.Time{} // is not kept
			return i, err
		},
	} {
		want, err := info(n)
		must(t, err)
		got, err := info(again.Default())
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s after a restart (-want +got):\n%s", what, diff)
		}
	}
}

func TestRulesOverManagementStay(t *testing.T) {
	disk := &brokertest.SlowDisk{Prompt: true}
	configure := func(c *broker.Config) {
		c.Disk = disk
		c.Topics = []broker.TopicSetup{{
			TopicConfig:   broker.TopicConfig{Name: "t"},
			Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "s"}}},
		}}
	}
	bubble(t, configure, func(t *testing.T, ns *brokertest.Namespace) {
		management := rawOver(t, ns, opens).requester(0, "t/Subscriptions/s/$management")
		request := func(id, operation string, body amqp.Map) {
			t.Helper()
			_, answer := management.ask(id, amqp.Map{{Key: "operation", Value: "com.microsoft:" + operation}}, body)
			if status := values(t, answer.ApplicationProperties)["statusCode"]; status != int32(200) {
				t.Fatalf("%s: status %v, want 200", operation, status)
			}
		}
		filter := amqp.Map{{Key: "sql-filter", Value: amqp.Map{{Key: "expression", Value: "a = 1"}}}}
		request("1", "add-rule", amqp.Map{{Key: "rule-name", Value: "r"}, {Key: "rule-description", Value: filter}})
		request("2", "remove-rule", amqp.Map{{Key: "rule-name", Value: broker.DefaultRuleName}})
		rules, err := opened(t, disk.PowerLost()).Default().Rules("t", "s")
		must(t, err)
		if len(rules) != 1 || rules[0].Config.Name != "r" || rules[0].Config.Filter.SQL.Expression != "a = 1" {
			t.Errorf("after a restart the rules are %+v, want r alone", rules)
		}
	})
}

// Filters compare by type, so a value has to come back with the one that it had.
func TestValuesOfRulesKeepTheirTypes(t *testing.T) {
	disk := &brokertest.SlowDisk{Prompt: true}
	n := opened(t, disk).Default()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_200, time.UTC)
	rule := broker.RuleConfig{
		Name: "r",
		Filter: broker.Filter{Correlation: &broker.CorrelationFilter{
			Label: new(""),
			Properties: broker.ValuesOf(map[string]any{
				"nil": nil, "bool": true, "string": "s", "int": 1, "int8": int8(-1), "int16": int16(1), "int32": int32(1), "int64": int64(1),
				"uint8": uint8(1), "uint16": uint16(1), "uint32": uint32(1), "uint64": uint64(math.MaxUint64),
				"float32": float32(1.5), "float64": math.Inf(1), "bytes": []byte{1},
				"time": at, "time without zone": at.In(broker.NoZone), "duration": time.Duration(math.MaxInt64),
				"symbol": amqp.Symbol("s"), "char": amqp.Char('c'), "uuid": amqp.UUID{1}, "timestamp": amqp.Timestamp(1),
				"decimal": amqp.Decimal128{1}, "described": amqp.Described{Descriptor: amqp.Symbol("com.microsoft:timespan"), Value: int64(1)},
			}),
		}},
		Action: broker.Action{SQL: "SET a = 1", Parameters: broker.Values{}, RequiresPreprocessing: new(false)},
	}
	_, err := n.CreateTopic(broker.TopicConfig{Name: "t"})
	must(t, err)
	_, err = n.CreateSubscription("t", broker.SubscriptionConfig{Name: "s"}, rule)
	must(t, err)
	got, err := opened(t, disk.PowerLost()).Default().RuleInfo("t", "s", "r")
	must(t, err)
	if diff := cmp.Diff(rule, got.Config); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if v := got.Config.Filter.Correlation.Properties; !strings.Contains(fmt.Sprint(v), "03:04:05.6789012 +0000 none") {
		t.Errorf("the time without a zone has one: %v", v)
	}
	bad := broker.RuleConfig{Name: "bad", Filter: broker.Filter{Correlation: &broker.CorrelationFilter{
		Properties: broker.ValuesOf(map[string]any{"p": struct{}{}}),
	}}}
	if _, err := n.CreateRule("t", "s", bad); !errors.Is(err, broker.ErrInvalidConfig) {
		t.Errorf("a value that cannot be stored: %v, want ErrInvalidConfig", err)
	}
}

func TestDifferencesToTheConfigurationAreSaid(t *testing.T) {
	disk := &brokertest.SlowDisk{Prompt: true}
	sql := func(name, expression string) broker.RuleConfig {
		return broker.RuleConfig{Name: name, Filter: broker.Filter{SQL: &broker.SQLFilter{Expression: expression}}}
	}
	b := opened(t, disk, func(c *broker.Config) {
		c.Isolate = true
		c.Queues = []broker.QueueConfig{{Name: "Orders"}, {Name: "same", AutoDeleteOnIdle: time.Hour}, {Name: "kind"}}
		c.Topics = []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "events"},
			Subscriptions: []broker.SubscriptionSetup{{
				SubscriptionConfig: broker.SubscriptionConfig{Name: "s"},
				Rules:              []broker.RuleConfig{sql("a", "1=1"), sql("b", "1=1"), sql("same", "1=1")},
			}},
		}}
	})
	b.Namespace("tenant")
	disk.Sync()
	next := func(c *broker.Config) {
		c.Queues = []broker.QueueConfig{
			{
				Name:                          "orders",
				LockDuration:                  30 * time.Second,
				RequiresSession:               true,
				ForwardDeadLetteredMessagesTo: "same",
				Status:                        broker.Disabled,
				AuthorizationRules:            []broker.AuthorizationRule{{KeyName: "k", PrimaryKey: "secret"}},
			},
			{Name: "same", AutoDeleteOnIdle: time.Hour},
			{Name: "added"},
		}
		c.Topics = []broker.TopicSetup{
			{
				TopicConfig: broker.TopicConfig{Name: "events", MaxSize: 1 << 30},
				Subscriptions: []broker.SubscriptionSetup{
					{
						SubscriptionConfig: broker.SubscriptionConfig{Name: "s", MaxDeliveryCount: 3},
						Rules:              []broker.RuleConfig{sql("a", "2=2"), sql("c", "1=1"), sql("same", "1=1")},
					},
					{SubscriptionConfig: broker.SubscriptionConfig{Name: "added"}},
				},
			},
			{
				TopicConfig:   broker.TopicConfig{Name: "kind"},
				Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "s"}}},
			},
		}
	}
	after := disk.PowerLost()
	again := opened(t, after, next)
	want := []string{
		`queue Orders: lockDuration is 1m0s in force and 30s in the configuration`,
		`queue Orders: requiresSession is false in force and true in the configuration`,
		`queue Orders: forwardDeadLetteredMessagesTo is "" in force and "same" in the configuration`,
		`queue Orders: status is Active in force and Disabled in the configuration`,
		`queue Orders: authorizationRules in force and in the configuration differ`,
		`topic events: maxSize is 0 in force and 1073741824 in the configuration`,
		`subscription events/Subscriptions/s: maxDeliveryCount is 10 in force and 3 in the configuration`,
		`subscription events/Subscriptions/s: rule a in force is another than in the configuration`,
		`subscription events/Subscriptions/s: rule b is in force and not in the configuration`,
		`subscription events/Subscriptions/s: rule c is in the configuration and not in force`,
		`topic kind is a queue in force`,
		`namespace tenant: it is on disk, but clients cannot name it; its entities stay`,
	}
	if diff := cmp.Diff(want, again.Differences()); diff != "" {
		t.Errorf("Differences (-want +got):\n%s", diff)
	}
	if got, want := pathsOf(again.Default()), "added kind Orders same events events/Subscriptions/added events/Subscriptions/s"; got != want {
		t.Errorf("there are %s, want %s", got, want)
	}
	if q, _ := again.Default().QueueInfo("orders"); q.Config.LockDuration != time.Minute || q.Config.RequiresSession {
		t.Errorf("the settings of orders are %+v, want those of the disk", q.Config)
	}
	after.Sync()
	last := opened(t, after.PowerLost(), func(c *broker.Config) { c.Isolate = true })
	if got := pathsOf(last.Namespace("tenant")); got != pathsOf(b.Default()) {
		t.Errorf("in the namespace that nobody could reach there are %q, want %q", got, pathsOf(b.Default()))
	}
	if got := opened(t, nil, next).Differences(); len(got) > 0 {
		t.Errorf("Differences without a disk = %q, want none", got)
	}
}

func TestAConfigurationThatIsWrongLeavesNothingOnDisk(t *testing.T) {
	disk := &brokertest.SlowDisk{Prompt: true}
	_, err := broker.New(broker.Config{Disk: disk, Queues: []broker.QueueConfig{{Name: "q"}, {Name: "Q"}}})
	if !errors.Is(err, broker.ErrEntityExists) {
		t.Errorf("New = %v, want ErrEntityExists", err)
	}
	disk.Sync()
	if got := pathsOf(opened(t, disk).Default()); got != "" {
		t.Errorf("after that there are %s, want none", got)
	}
	must(t, opened(t, disk).AddQueue(broker.QueueConfig{Name: "q"}))
	again := disk.PowerLost()
	_, err = broker.New(broker.Config{Disk: again, Queues: []broker.QueueConfig{{Name: "q"}, {Name: "Q"}}})
	if !errors.Is(err, broker.ErrEntityExists) {
		t.Errorf("New with a name twice, which is on disk = %v, want ErrEntityExists", err)
	}
}

// A later version may have other fields. Then it has another number in the directory, too.
func TestDescriptionsOnDisk(t *testing.T) {
	const q = `{"created":"2026-01-02T03:04:05Z","updated":"2026-01-02T03:04:06Z","queue":{"name":"q"`
	const topic = `{"created":"2026-01-02T03:04:05Z","updated":"2026-01-02T03:04:05Z","topic":{"name":"t"}}`
	const subscription = `{"created":"2026-01-02T03:04:05Z","updated":"2026-01-02T03:04:05Z","subscription":{"topic":"t","name":"s","rules":[` +
		`{"config":{"name":"r","filter":{"sql":{"expression":"a=@p","parameters":[{"key":"@p","amqp":"VQE="}]}}}}]}}`
	for name, c := range map[string]struct {
		texts []string
		want  string // of the error; empty: none
	}{
		"the first version":            {[]string{q + `,"lockDuration":5000000000,"status":"Disabled"}}`, topic, subscription}, ""},
		"a subscription comes first":   {[]string{subscription, topic}, ""},
		"no JSON":                      {[]string{`{`}, "unexpected EOF"},
		"a field that is not known":    {[]string{q + `,"new":1}}`}, `unknown field "new"`},
		"a state that is not known":    {[]string{q + `,"status":"Sleeping"}}`}, "none of Active"},
		"settings that are wrong":      {[]string{q + `,"lockDuration":-1}}`}, "LockDuration"},
		"nothing":                      {[]string{`{}`}, "0 kinds"},
		"two of one name":              {[]string{q + `}}`, q + `}}`}, "two of the name q"},
		"a subscription without topic": {[]string{subscription}, "t/Subscriptions/s has no topic"},
		"a rule that is wrong":         {[]string{topic, strings.Replace(subscription, "a=@p", "a=", 1)}, "the filter"},
		"a value that is wrong":        {[]string{topic, strings.Replace(subscription, "VQE=", "////", 1)}, `value "@p"`},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &brokertest.SlowDisk{}
			for i, text := range c.texts {
				disk.PutEntity(uint32(7+i), []byte(text))
			}
			disk.Sync()
			b, err := broker.New(broker.Config{Disk: disk})
			if c.want != "" {
				if !errors.Is(err, broker.ErrDamaged) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("New = %v, want ErrDamaged with %q", err, c.want)
				}
				return
			}
			must(t, err)
			defer b.Close()
			if _, err := b.Default().RuleInfo("t", "s", "r"); err != nil {
				t.Error(err)
			}
			if info, err := b.Default().QueueInfo("q"); err == nil &&
				(info.Config.LockDuration != 5*time.Second || info.Config.MaxDeliveryCount != queue.DefaultMaxDeliveryCount ||
					info.Config.Status != broker.Disabled || info.UpdatedAt.Second() != 6) {
				t.Errorf("q is %+v, want what is stated and defaults", info)
			}
		})
	}
}

// After each change, power is lost at every moment until it is on disk. Each time there is all of
// it or nothing, and what was deleted leaves no messages for another entity.
func TestChangesOfEntitiesAreWholeAfterACrash(t *testing.T) {
	configure := func(c *broker.Config) {
		c.Queues = []broker.QueueConfig{{Name: "q"}}
		c.Topics = []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "t"},
			Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "a"}},
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "b"}},
			},
		}}
	}
	const all, made = "q t t/Subscriptions/a t/Subscriptions/b", "made q t t/Subscriptions/a t/Subscriptions/b"
	for name, c := range map[string]struct {
		change func(*broker.Namespace) error
		want   []string // paths and messages, before and after
	}{
		"a queue is made": {
			func(n *broker.Namespace) error { return addQueue(n, "made") },
			[]string{all + ": 3", made + ": 3"},
		},
		"a queue is deleted": {
			func(n *broker.Namespace) error { return n.DeleteQueue("q") },
			[]string{all + ": 3", "t t/Subscriptions/a t/Subscriptions/b: 2"},
		},
		"a topic is deleted": {
			func(n *broker.Namespace) error { return n.DeleteTopic("t") },
			[]string{all + ": 3", "q: 1"},
		},
		"a subscription is deleted": {
			func(n *broker.Namespace) error { return n.DeleteSubscription("t", "a") },
			[]string{all + ": 3", "q t t/Subscriptions/b: 2"},
		},
		"all is reset": {
			func(n *broker.Namespace) error { return n.Reset() },
			[]string{all + ": 3", all + ": 0"},
		},
		"a queue is made again": {
			func(n *broker.Namespace) error { return errors.Join(n.DeleteQueue("q"), addQueue(n, "q")) },
			[]string{all + ": 3", "t t/Subscriptions/a t/Subscriptions/b: 2", all + ": 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &brokertest.SlowDisk{}
				n := opened(t, disk, configure).Default()
				sendTo(t, n, "q", "m")
				sendTo(t, n, "t", "m")
				disk.Sync()
				seen := map[string]bool{}
				crash := func() {
					for _, d := range disk.Crashes() {
						d.Prompt = true
						b := opened(t, d)
						state := fmt.Sprintf("%s: %d", pathsOf(b.Default()), b.Held(func(string) bool { return false }))
						if !slices.Contains(c.want, state) {
							t.Errorf("after a crash there is %s, want one of %q", state, c.want)
						}
						seen[state] = true
					}
				}
				done := make(chan error, 1)
				go func() { done <- c.change(n) }()
				for over := false; !over; {
					synctest.Wait()
					crash()
					disk.Sync()
					synctest.Wait()
					select {
					case err := <-done:
						must(t, err)
						over = true
					default:
					}
				}
				crash()
				for _, state := range c.want {
					if !seen[state] {
						t.Errorf("no crash left %s", state)
					}
				}
			})
		})
	}
}

// A topic and a forward take a message on in several steps. Wherever power is lost, it arrives
// everywhere once, or it never came.
func TestWhatIsUnderWayArrivesOnceAfterACrash(t *testing.T) {
	configure := func(c *broker.Config) {
		c.Queues = []broker.QueueConfig{{Name: "from", ForwardTo: "q"}, {Name: "q"}}
		c.Topics = []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "t"},
			Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "a"}},
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "b", ForwardTo: "q"}},
			},
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		disk := &brokertest.SlowDisk{}
		n := opened(t, disk, configure).Default()
		disk.Sync()
		sendTo(t, n, "from", "queued")
		sendTo(t, n, "t", "published")
		seen := map[string]bool{}
		for _, d := range disk.Crashes() {
			again := opened(t, d).Default()
			synctest.Wait() // its movers
			state := ""
			for _, e := range again.Entities() {
				for _, v := range brokertest.Seen(e.Queue().Peek(nil, 0, 10)) {
					for data := range amqp.DataSections(v.Body) {
						state += fmt.Sprintf("%s: %s; ", e.Path(), data)
					}
				}
			}
			seen[state] = true
		}
		want := map[string]bool{
			"":            true,
			"q: queued; ": true,
			"q: queued; q: published; t/Subscriptions/a: published; ": true,
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("after crashes there are (-want +got):\n%s", diff)
		}
	})
}

func addQueue(n *broker.Namespace, name string) error {
	_, err := n.CreateQueue(broker.QueueConfig{Name: name})
	return err
}

func TestIdleTimeBeginsAgainAtARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &brokertest.SlowDisk{Prompt: true}
		must(t, opened(t, disk).AddQueue(broker.QueueConfig{Name: "q", AutoDeleteOnIdle: 10 * time.Minute}))
		time.Sleep(9 * time.Minute)
		disk = disk.PowerLost()
		b := opened(t, disk)
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		if got := pathsOf(b.Default()); got != "q" {
			t.Errorf("before it was idle for as long as it may be, there is %q, want q", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := pathsOf(b.Default()); got != "" {
			t.Errorf("when it was idle for as long as it may be, there is %q, want nothing", got)
		}
		disk.Sync()
		if got := pathsOf(opened(t, disk.PowerLost()).Default()); got != "" {
			t.Errorf("after another restart there is %q, want nothing", got)
		}
	})
}
