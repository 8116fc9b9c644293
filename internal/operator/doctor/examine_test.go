// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/google/go-cmp/cmp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/httpapitest"
	"overdue/internal/testing/pipenet"
)

const host = "contoso.test"

// keys of the namespace, by name: what each is good for is in the name.
var keys = []broker.AuthorizationRule{
	{KeyName: "manage", PrimaryKey: "bQ==", Send: true, Listen: true, Manage: true},
	{KeyName: "app", PrimaryKey: "YQ==", Send: true, Listen: true},
	{KeyName: "send", PrimaryKey: "cw==", Send: true},
	{KeyName: "listen", PrimaryKey: "bA==", Listen: true},
}

// clinic is a broker with keys and its administration API, on a network in memory.
type clinic struct {
	*testing.T
	net *pipenet.Network
	ns  *broker.Namespace
}

func open(t *testing.T, queues ...broker.QueueConfig) *clinic {
	t.Helper()
	b, err := broker.New(broker.Config{Keys: keys, Queues: queues})
	if err != nil {
		t.Fatal(err)
	}
	c := &clinic{T: t, net: pipenet.New(), ns: b.Default()}
	ln, err := c.net.Listen(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.net.Cut() })
	httpapitest.Serve(t, b, ln)
	return c
}

// client is the SDK's client for the holder of a key.
func (c *clinic) client(keyName, key string) *azservicebus.Client {
	client, err := azservicebus.NewClientFromConnectionString(connection(keyName, key), &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return c.net.Dial(ctx, host)
		},
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
	})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = client.Close(context.Background()) }) // the network is gone next
	return client
}

// config is that of an examination with a key.
func (c *clinic) config(keyName, key string) Config {
	dial := func(ctx context.Context) (net.Conn, error) { return c.net.Dial(ctx, host) }
	links := link.New(link.Config{Host: host, Plain: true, Dial: dial, Tokens: link.SAS(keyName, key)})
	transport := c.transport()
	c.Cleanup(func() { _ = links.Close() })
	return Config{
		Host: host, Dial: dial, Links: links, MonitorQueue: "overdue-monitor", Proxy: true, Monitor: true,
		Admin: &entities.Admin{
			Endpoints: []string{"http://" + host}, Client: &http.Client{Transport: transport},
			Authorize: func(_ context.Context, audience string) (string, error) {
				return sas.Make(keyName, key, audience, time.Now().Add(time.Hour)), nil
			},
		},
	}
}

func (c *clinic) transport() *http.Transport {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.net.Dial(ctx, host) }}
	c.Cleanup(t.CloseIdleConnections)
	return t
}

// admin is the SDK's client of the administration API for the holder of a key.
func (c *clinic) admin(keyName, key string) *admin.Client {
	client, err := admin.NewClientFromConnectionString(connection(keyName, key), &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: plain{&http.Client{Transport: c.transport()}}},
	})
	if err != nil {
		c.Fatal(err)
	}
	return client
}

func connection(keyName, key string) string {
	return "Endpoint=sb://" + host + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + key + ";UseDevelopmentEmulator=true"
}

// list returns "subject: severity check" of every finding that is worse than OK.
func list(r *Report) []string {
	all := []string{}
	for _, f := range r.Findings {
		if f.Severity > OK {
			all = append(all, f.Subject+": "+f.Severity.String()+" "+f.Check)
		}
	}
	return all
}

var wellMade = []broker.QueueConfig{
	{Name: "overdue-monitor", LockDuration: 10 * time.Second, MaxDeliveryCount: 2000},
	{Name: "orders", DefaultMessageTimeToLive: time.Hour, DeadLetteringOnMessageExpiration: true},
}

func TestExamineReportsWhatAKeyMayDo(t *testing.T) {
	for name, c := range map[string]struct {
		key, value string
		adjust     func(*Config)
		want       []string
	}{
		"all rights": {"manage", "bQ==", nil, []string{}},
		"no right to manage": {"app", "YQ==", nil, []string{
			"namespace: unknown tier", "monitor queue overdue-monitor: unknown settings", "queue orders: unknown settings",
		}},
		"send alone, for a proxy": {"send", "cw==", func(c *Config) { c.Monitor = false }, []string{
			"namespace: unknown tier", "monitor queue overdue-monitor: unknown settings", "monitor queue overdue-monitor: error right-listen",
			"queue orders: unknown settings",
		}},
		"listen alone, for a monitor": {"listen", "bA==", func(c *Config) { c.Proxy = false }, []string{
			"namespace: unknown tier", "monitor queue overdue-monitor: unknown settings", "monitor queue overdue-monitor: error right-send",
			"queue orders: unknown settings",
		}},
		"listen alone, apps with their own tokens": {"listen", "bA==", func(c *Config) { c.ClientTokens = true }, []string{
			"namespace: unknown tier", "monitor queue overdue-monitor: unknown settings", "monitor queue overdue-monitor: error right-send",
			"queue orders: unknown settings",
		}},
		"a wrong key": {"app", "d3Jvbmc=", nil, []string{
			"namespace: error sign-in", "namespace: unknown tier", "namespace: unknown rest",
		}},
		"no administration API": {"app", "YQ==", func(c *Config) { c.Admin, c.NoAdmin = nil, "there is none" }, []string{
			"namespace: unknown administration", "monitor queue overdue-monitor: unknown settings", "queue orders: unknown settings",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := open(t, wellMade...).config(c.key, c.value)
				cfg.Entities, cfg.OnlyEntities = []Monitored{{Name: "orders", Setting: "monitor.entities[0]"}}, true
				if c.adjust != nil {
					c.adjust(&cfg)
				}
				r := Examine(t.Context(), cfg)
				if diff := cmp.Diff(c.want, list(r)); diff != "" {
					t.Errorf("findings (-want +got):\n%s", diff)
				}
				for _, f := range r.Findings {
					if strings.Contains(f.Summary+f.Fix, c.value) {
						t.Errorf("the key shows in %+v", f)
					}
				}
			})
		})
	}
}

func TestExamineChecksTheWholeNamespaceIfNothingIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, append(slices.Clone(wellMade), broker.QueueConfig{Name: "notified", DeadLetteringOnMessageExpiration: true})...)
		if _, err := c.ns.CreateTopic(broker.TopicConfig{Name: "events"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ns.CreateSubscription("events", broker.SubscriptionConfig{Name: "audit"}); err != nil {
			t.Fatal(err)
		}
		cfg := c.config("manage", "bQ==")
		cfg.Unmonitored = []string{"Notified"}
		want := []string{
			"subscription events/audit: warning dead-lettering", "subscription events/audit: advice deadline",
		}
		if diff := cmp.Diff(want, list(Examine(t.Context(), cfg))); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
	})
}

func TestAnUnreachableNamespaceIsOneError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, wellMade...)
		cfg := c.config("manage", "bQ==")
		cfg.Dial = func(context.Context) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
		}
		cfg.Admin.Client = &http.Client{Transport: failing{}}
		r := Examine(t.Context(), cfg)
		want := []string{"namespace: error reachable", "namespace: unknown administration", "namespace: unknown rest"}
		if diff := cmp.Diff(want, list(r)); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
		if !strings.Contains(r.Findings[0].Summary, "The name "+host+" cannot be resolved") {
			t.Errorf("it says %q", r.Findings[0].Summary)
		}
	})
}

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }

func TestExamineGivesUpASilentNamespaceInBoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, wellMade...)
		cfg := c.config("manage", "bQ==")
		cfg.OnlyEntities, cfg.Entities = true, []Monitored{{Name: "orders"}}
		c.net.Stall(pipenet.Both)
		defer c.net.Resume(pipenet.Both)
		began := time.Now()
		r := Examine(t.Context(), cfg)
		says := "It accepts connections, and does not answer."
		if i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Severity == Error }); i < 0 || r.Findings[i].Summary != says {
			t.Errorf("findings are %+v, want an error first: %q", r.Findings, says)
		}
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// repair makes the repairs of an examination, which finds that much before and nothing after them.
func (c *clinic) repair(t *testing.T, cfg Config, want ...string) {
	t.Helper()
	before := Examine(t.Context(), cfg)
	if diff := cmp.Diff(want, list(before)); diff != "" {
		t.Fatalf("findings (-want +got):\n%s", diff)
	}
	administration := c.admin("manage", "bQ==")
	for _, r := range before.Repairs() {
		if err := Apply(t.Context(), administration, r); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{}, list(Examine(t.Context(), cfg))); diff != "" {
		t.Errorf("findings after the repair (-want +got):\n%s", diff)
	}
}

func TestRepairsCreateTheMonitorQueueAndChangeSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, broker.QueueConfig{Name: "orders", DefaultMessageTimeToLive: time.Hour, LockDuration: 40 * time.Second, RequiresSession: true})
		if _, err := c.ns.CreateTopic(broker.TopicConfig{Name: "events"}); err != nil {
			t.Fatal(err)
		}
		_, err := c.ns.CreateSubscription("events", broker.SubscriptionConfig{Name: "audit", DefaultMessageTimeToLive: time.Hour, LockDuration: 40 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		cfg := c.config("manage", "bQ==")
		c.repair(t, cfg, "monitor queue overdue-monitor: error exists", "queue orders: error dead-lettering", "subscription events/audit: error dead-lettering")
		q, err := c.ns.QueueInfo("orders")
		if err != nil {
			t.Fatal(err)
		}
		if !q.Config.RequiresSession || q.Config.LockDuration != 40*time.Second || q.Config.DefaultMessageTimeToLive != time.Hour {
			t.Errorf("the repair changed more than it named: %+v", q.Config)
		}
		err = Apply(t.Context(), c.admin("app", "YQ=="), &Repair{Entity: "another", Create: true, Set: monitorSettings})
		if err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("Apply without the right = %v, want status 401", err)
		}
	})
}

// Each of several monitor queues is examined and made, and one that is left over is named, with
// what to do about it.
func TestEveryMonitorQueueIsExamined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := broker.QueueConfig{Name: "overdue-monitor", LockDuration: 10 * time.Second, MaxDeliveryCount: 2000}
		short := good
		short.Name, short.LockDuration = "overdue-monitor.3", 5*time.Second
		c := open(t, good, short)
		cfg := c.config("manage", "bQ==")
		cfg.OnlyEntities, cfg.MonitorQueues = true, 3
		c.repair(t, cfg, "monitor queue overdue-monitor.2: error exists", "monitor queue overdue-monitor.3: warning lock-duration")
		sender, err := c.client("manage", "bQ==").NewSender("overdue-monitor.3", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sender.ScheduleMessages(t.Context(), []*azservicebus.Message{{Body: []byte("x")}}, time.Now().Add(time.Hour), nil); err != nil {
			t.Fatal(err)
		}
		cfg.MonitorQueues = 1
		var got []string
		for _, f := range Examine(t.Context(), cfg).Findings {
			if f.Check == "former" {
				got = append(got, f.Severity.String()+": "+f.Summary)
			}
		}
		want := []string{
			"advice: overdue-monitor.2 is empty, and monitorQueues is 1: Overdue does not need it.",
			"advice: overdue-monitor.3 still holds 1 companion, and monitors receive it, but monitorQueues is 1.",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("findings about former queues (-want +got):\n%s", diff)
		}
	})
}

func TestRepairsCorrectAnExistingMonitorQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, broker.QueueConfig{
			Name: "overdue-monitor", LockDuration: 5 * time.Second, MaxDeliveryCount: 10, DefaultMessageTimeToLive: time.Hour, AutoDeleteOnIdle: time.Hour,
		})
		cfg := c.config("manage", "bQ==")
		cfg.OnlyEntities = true
		before := Examine(t.Context(), cfg)
		want := []string{
			"monitor queue overdue-monitor: error time-to-live", "monitor queue overdue-monitor: error auto-delete",
			"monitor queue overdue-monitor: warning lock-duration", "monitor queue overdue-monitor: warning max-delivery-count",
		}
		if diff := cmp.Diff(want, list(before)); diff != "" {
			t.Fatalf("findings (-want +got):\n%s", diff)
		}
		client := c.admin("manage", "bQ==")
		for _, r := range before.Repairs() {
			if err := Apply(t.Context(), client, r); err != nil {
				t.Error(err)
			}
		}
		if diff := cmp.Diff([]string{}, list(Examine(t.Context(), cfg))); diff != "" {
			t.Errorf("findings after the repair (-want +got):\n%s", diff)
		}
	})
}

// plain leads a client that insists on TLS to the clinic.
type plain struct{ client *http.Client }

func (p plain) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return p.client.Do(r)
}

func TestADifferenceOfTheClocksHasASeverity(t *testing.T) {
	for ahead, want := range map[time.Duration]string{
		0: "ok", 20 * time.Millisecond: "ok", -400 * time.Millisecond: "ok", 3 * time.Second: "warning", -time.Hour: "error",
	} {
		x := azure()
		x.reachable = true
		x.cfg.Clock = func(context.Context) (time.Duration, time.Duration, error) { return ahead, 30 * time.Millisecond, nil }
		if got := x.clock(t.Context()); got[0].Severity.String() != want {
			t.Errorf("%v ahead: %s %q, want %s", ahead, got[0].Severity, got[0].Summary, want)
		}
	}
}

// The finding quotes the broker, and asks for rights only if one is missing.
func TestAClockThatCannotBeMeasuredIsUnknown(t *testing.T) {
	for said, want := range map[error]struct{ summary, fix string }{
		errors.New("schedule a clock probe: (connlost): rpc: failed, status code 400 and description: The SessionId was not set."): {
			"The broker's clock cannot be measured: The SessionId was not set.", "fix the findings about the monitor queue, where the clock is measured",
		},
		&link.StatusError{Code: 401, Description: "Unauthorized access."}: {
			"The broker's clock cannot be measured: Unauthorized access.", "grant the Send and Listen rights on the monitor queue",
		},
	} {
		x := azure()
		x.reachable = true
		x.cfg.Clock = func(context.Context) (time.Duration, time.Duration, error) { return 0, 0, said }
		if got := x.clock(t.Context()); got[0].Severity != Unknown || got[0].Summary != want.summary || got[0].Fix != want.fix {
			t.Errorf("%v: %+v, want %+v", said, got[0], want)
		}
	}
}

// The clock is measured with a message on the monitor queue, which is the only one that the doctor writes.
func TestAFullMonitorQueueIsAnError(t *testing.T) {
	x := azure()
	x.reachable = true
	x.cfg.MonitorQueue = "overdue-monitor"
	x.cfg.Clock = func(context.Context) (time.Duration, time.Duration, error) {
		return 0, 0, &link.StatusError{Code: 403, Condition: "amqp:resource-limit-exceeded", Description: "The maximum size has been reached."}
	}
	got := x.clock(t.Context())
	if len(got) != 1 || got[0].Subject != "monitor queue overdue-monitor" || got[0].Severity != Error || got[0].Summary != "It takes no more companions: The maximum size has been reached." {
		t.Errorf("findings of a queue that is full: %+v", got)
	}
}
