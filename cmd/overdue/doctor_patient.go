// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	sbadmin "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/lifecycle"
	"overdue/internal/operator/doctor"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sdk"
)

// A patient is the namespace of a configuration, as the doctor gets at it: over the same ways as the rooms.
type patient struct {
	cfg    *config.Config
	ns     *connect.Namespace
	client *sdk.Client
	links  *link.Namespace
	api    *entities.Admin
	fleet  string // what the processes of the configuration know the namespace by, for Redis
}

func newPatient(c *config.Config) (*patient, error) {
	ns, err := connect.Parse(c.Namespace)
	if err != nil {
		return nil, &config.Error{Err: fmt.Errorf("%s: %w", c.At("namespace"), err)}
	}
	client, links, tokens, err := ns.Connect(zap.NewNop())
	if err != nil {
		return nil, err
	}
	d := &patient{cfg: c, ns: ns, client: client, links: links, fleet: ns.Host}
	var taken []string
	if ns.Plain {
		// An overdue that runs beside an emulator has its doors where the emulator's API would be looked for.
		for _, a := range c.Endpoints() {
			if c.Given(a.Key) {
				taken = append(taken, a.Addr)
			}
		}
	}
	d.api, err = connect.AdminAPI(c, ns, tokens, taken...)
	return d, err
}

// close ends the connections. What was asked has been answered by then.
func (d *patient) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lifecycle.CloseTimeout)
	defer cancel()
	_ = lifecycle.Bounded(ctx, d.client.Close)
	_ = lifecycle.Bounded(ctx, func(context.Context) error { return d.links.Close() })
	d.api.Client.CloseIdleConnections()
}

// administration is the SDK's client, for changes: it writes entities in the form that the service wants.
func (d *patient) administration() (*sbadmin.Client, error) {
	if len(d.api.Endpoints) == 0 {
		return nil, errors.New(catalog.NowhereToAsk)
	}
	return d.ns.Administration(d.api)
}

// examination is what to look at. names restrict it.
func (d *patient) examination(names []string, o doctorOptions) doctor.Config {
	c := d.cfg
	x := doctor.Config{
		Host: d.ns.Host, Emulator: d.ns.Plain, Dial: d.ns.Open, Client: d.client.Current(), Links: d.links, Admin: d.api,
		MonitorQueue: c.MonitorQueue, Proxy: o.role != "monitor", Monitor: o.role != "proxy", ClientTokens: c.PassesCredentials(),
		Listed: len(c.Monitor.Entities) > 0, Lists: len(c.Monitor.Entities) > 0, Clock: d.measureClock, Elsewhere: c.CompanionsInRedis(),
	}
	if len(d.api.Endpoints) == 0 {
		x.Admin, x.NoAdmin = nil, sentenceOf(catalog.NowhereToAsk)
	}
	wanted := catalog.NewView(c)
	for i := range c.Monitor.Entities {
		e := &c.Monitor.Entities[i]
		setting := fmt.Sprintf("monitor.entities[%d]", i)
		w := doctor.Watched{Name: e.Name(), Setting: setting, Topic: e.Topic != "", Deadline: e.Deadline, Expire: e.Expire}
		w.Contradictions = func(info entities.Info) []string { return wanted.Contradictions(e, i, info) }
		for _, s := range e.Subscriptions {
			w.Subscriptions = append(w.Subscriptions, s.Name)
		}
		x.Entities = append(x.Entities, w)
		if e.ForwardMissedTo != "" {
			x.Targets = append(x.Targets, doctor.Target{Name: e.ForwardMissedTo, Setting: setting + ".forwardMissedTo"})
		}
	}
	if q := c.Canary.Queue; q != "" && !c.Lists(q) {
		x.Entities = append(x.Entities, doctor.Watched{Name: q, Setting: "canary.queue", States: true})
	}
	for i := range c.Alerts {
		a := &c.Alerts[i]
		if a.ServiceBus != nil {
			x.Targets = append(x.Targets, doctor.Target{Name: a.ServiceBus.Entity, Setting: a.Key + ".entity"})
			x.Unwatched = append(x.Unwatched, a.ServiceBus.Entity)
		}
		x.Others = append(x.Others, d.sinkChecks(a, o.sendTest)...)
	}
	if c.Redis != "" {
		a := &c.RedisAddress
		x.Redis = &doctor.Redis{Hosts: a.Hosts, TLS: a.TLS, Password: a.Password != "", User: a.Username, Setting: "redis", Keeps: c.CompanionsInRedis(), Ask: d.askRedis}
		if c.RedisFile != "" {
			x.Redis.Setting = "redisFile"
		}
		if c.CompanionsInRedis() {
			x.Redis.Keep = d.inspectStore
		}
	}
	if text := c.Heartbeat.URL; text != "" {
		x.Others = append(x.Others, doctor.Check{
			Subject: "heartbeat", Name: "reachable", Well: "Its host takes connections.", Severity: doctor.Warning,
			Fix: "check heartbeat.url, and that firewalls let this machine out", Run: sinkCheck("heartbeat", text).OK,
		})
	}
	if len(names) > 0 {
		x.Listed = true
		x.Entities = restrict(x.Entities, names)
	}
	return x
}

// redis is the Redis of the configuration, as its processes have it.
func (d *patient) redis() (*redisstore.Store, error) {
	return redisstore.Open(redisstore.Config{
		Address: d.cfg.RedisAddress, Roots: d.cfg.RedisRoots, Fleet: []string{alert.NamespaceOf(d.fleet), d.cfg.MonitorQueue},
		Slack: 5, // an operator is more patient than a monitor
	})
}

// askRedis asks Redis for how it is, and tries what the program sends to it.
func (d *patient) askRedis(ctx context.Context) (state doctor.RedisState, err error) {
	s, err := d.redis()
	if err != nil {
		return state, err
	}
	c, err := s.Checkup(ctx)
	if err = errors.Join(err, s.Close()); err != nil {
		return state, err
	}
	state = doctor.RedisState{RoundTrip: c.RoundTrip, Denied: c.Denied, KeyDenied: c.KeyDenied, Refusal: c.Refusal}
	for _, server := range c.Servers {
		state.Servers = append(state.Servers, doctor.RedisServer(server))
	}
	return state, nil
}

// inspectStore asks whether Redis keeps what it is given.
func (d *patient) inspectStore(ctx context.Context) error {
	s, err := d.redis()
	if err != nil {
		return err
	}
	companions := s.Companions()
	durability, err := companions.Inspect(ctx)
	if err == nil {
		err = companions.Try(ctx)
	}
	if problem, _ := durability.Problem(); err == nil && problem != "" {
		err = errors.New(problem)
	}
	return errors.Join(err, s.Close())
}

// restrict keeps what is named, and adds what is not known.
func restrict(all []doctor.Watched, names []string) (kept []doctor.Watched) {
	for _, name := range names {
		w := doctor.Watched{Name: name}
		for _, known := range all {
			if strings.EqualFold(known.Name, name) {
				w = known
			}
		}
		kept = append(kept, w)
	}
	return kept
}

// sinkChecks are those of one sink of alerts.
func (d *patient) sinkChecks(a *config.Alert, send bool) (checks []doctor.Check) {
	subject := "sink " + a.Name
	address := sinkAddress(a)
	if e := a.Email; e != nil {
		port := e.Port
		if port == 0 {
			port = map[string]int64{"starttls": 587, "tls": 465, "none": 25}[e.Security]
		}
		address = "smtp://" + net.JoinHostPort(e.Host, strconv.FormatInt(port, 10))
	}
	if address != "" {
		checks = append(checks, doctor.Check{
			Subject: subject, Name: "reachable", Well: "Its host takes connections.", Severity: doctor.Error,
			Fix: "check " + a.Key + ", and that firewalls let this machine out", Run: sinkCheck(a.Key, address).OK,
		})
	}
	if send {
		checks = append(checks, doctor.Check{
			Subject: subject, Name: "send-test", Well: "It has taken a test event.", Severity: doctor.Error,
			Fix: "check " + a.Key, Run: func(ctx context.Context) error { return d.sendTest(ctx, a) },
		})
	}
	return checks
}

// testType is the type of events that nobody has to care for.
const testType = "overdue.test"

// sendTest tells a sink of a message that does not exist. What pages is told that it is over right after.
func (d *patient) sendTest(ctx context.Context, a *config.Alert) error {
	events, pages, err := newSink(a, d.client)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	source := alert.SourceOf(d.ns.Host, "")
	e := alert.Event{
		Type: testType, Source: source + "/overdue-doctor", Subject: "overdue-doctor-test", Time: now, ID: alert.IDOf("overdue-doctor", now.UnixNano(), now),
		Data: alert.EventData{
			Entity: "overdue-doctor", MessageID: "overdue-doctor-test", EnqueuedTime: now.Add(-time.Minute), Deadline: now, DeadLetteredTime: now,
			Strategy: "native", DeadLetterReason: "TTLExpiredException",
		},
	}
	if events != nil {
		err := events.Alert(ctx, e)
		if closer, ok := events.(interface{ Close(context.Context) error }); ok {
			err = errors.Join(err, closer.Close(ctx))
		}
		return err
	}
	page := alert.Notification{
		Key: "overdue-doctor-" + e.ID, Source: source, Labels: map[string]string{"type": testType, "entity": "overdue-doctor"},
		Count: 1, Total: 1, Since: now, Last: now, Oldest: &e, Samples: []alert.Event{e},
	}
	if err := pages.Notify(ctx, page); err != nil {
		return err
	}
	page.Count, page.Resolved, page.Oldest, page.Samples = 0, true, nil, nil
	return pages.Notify(ctx, page)
}

// sentenceOf is an error's text as a sentence of its own.
func sentenceOf(text string) string { return strings.ToUpper(cmp.Or(text, " ")[:1]) + text[1:] + "." }
