// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/doctor"
	"overdue/internal/servicebus/entities"
)

// An examination is what the flags of `overdue doctor` say about what to examine.
type examination struct {
	role     string
	sendTest bool
}

// configure turns a configuration into what the doctor examines. names restrict it. The caller closes the client.
func (x *examination) configure(c *config.Config, names []string) (doctor.Config, *operator.Client, error) {
	if c.Embedded() {
		beside := c.WithNamespace(config.ConnectionString(c.Broker.Listen, config.AnyKeyName, config.AnyKey))
		client, err := operator.Open(beside)
		if err != nil {
			return doctor.Config{}, nil, err
		}
		return doctor.Config{Redis: examinedRedis(client), Others: otherChecks(client, x.sendTest)}, client, nil
	}
	client, err := operator.Open(c)
	if err != nil {
		return doctor.Config{}, nil, err
	}
	cfg := doctor.Config{
		Host: client.Namespace.Host, Emulator: client.Namespace.Plain, Dial: client.Namespace.Open, Client: client.SDK.Current(), Links: client.Links, Admin: client.Admin,
		MonitorQueue: c.MonitorQueue, Proxy: x.role != "monitor", Monitor: x.role != "proxy", ClientTokens: c.PassesCredentials(),
		OnlyEntities: len(c.Monitor.Entities) > 0, ListsAll: len(c.Monitor.Entities) > 0, Clock: client.MeasureClock,
		CompanionsInRedis: c.CompanionsInRedis(), Redis: examinedRedis(client), Others: otherChecks(client, x.sendTest),
	}
	if len(client.Admin.Endpoints) == 0 {
		cfg.Admin, cfg.NoAdmin = nil, catalog.NowhereToAsk
	}
	addEntities(&cfg, c)
	if len(names) > 0 {
		cfg.Only(names)
	}
	return cfg, client, nil
}

// addEntities adds what is monitored, and what Overdue itself sends to.
func addEntities(cfg *doctor.Config, c *config.Config) {
	view := catalog.NewView(c)
	for i := range c.Monitor.Entities {
		e := &c.Monitor.Entities[i]
		setting := fmt.Sprintf("monitor.entities[%d]", i)
		m := doctor.Monitored{Name: e.Name(), Setting: setting, Topic: e.Topic != "", Deadline: e.Deadline, Expire: e.Expire}
		m.Contradictions = func(info entities.Info) []string { return view.Contradictions(e, i, info) }
		for _, s := range e.Subscriptions {
			m.Subscriptions = append(m.Subscriptions, s.Name)
		}
		cfg.Entities = append(cfg.Entities, m)
		if e.ForwardMissedTo != "" {
			cfg.Targets = append(cfg.Targets, doctor.Target{Name: e.ForwardMissedTo, Setting: setting + ".forwardMissedTo"})
		}
	}
	if q := c.Canary.Queue; q != "" && !c.Lists(q) {
		cfg.Entities = append(cfg.Entities, doctor.Monitored{Name: q, Setting: "canary.queue", States: true})
	}
	for i := range c.Alerts {
		if a := &c.Alerts[i]; a.ServiceBus != nil {
			cfg.Targets = append(cfg.Targets, doctor.Target{Name: a.ServiceBus.Entity, Setting: a.Key + ".entity"})
			cfg.Unmonitored = append(cfg.Unmonitored, a.ServiceBus.Entity)
		}
	}
}

// examinedRedis is the Redis of the configuration, or nil.
func examinedRedis(client *operator.Client) *doctor.Redis {
	c := client.Config
	if c.Redis == "" {
		return nil
	}
	a := &c.RedisAddress
	r := &doctor.Redis{
		Hosts: a.Hosts, TLS: a.TLS, Password: a.Password != "", User: a.Username, Setting: "redis",
		Keeps: c.CompanionsInRedis(), Ask: doctor.AskRedis(client.OpenRedis),
	}
	if c.RedisFile != "" {
		r.Setting = "redisFile"
	}
	if r.Keeps {
		r.Keep = doctor.KeepsCompanions(client.OpenRedis)
	}
	return r
}

// otherChecks are those of sinks and heartbeat.
func otherChecks(client *operator.Client, sendTest bool) (checks []doctor.Check) {
	for i := range client.Config.Alerts {
		a := &client.Config.Alerts[i]
		sink := doctor.Sink{Name: a.Name, Setting: a.Key}
		if address := sinkHost(a); address != "" {
			sink.Reach = sinkCheck(a.Key, address).OK
		}
		if sendTest {
			sink.Test = func(ctx context.Context) error {
				events, pager, err := newSink(a, client.SDK)
				if err != nil {
					return err
				}
				return doctor.SendTest(ctx, client.Namespace.Host, events, pager)
			}
		}
		checks = append(checks, sink.Checks()...)
	}
	if text := client.Config.Heartbeat.URL; text != "" {
		checks = append(checks, doctor.HeartbeatCheck(sinkCheck("heartbeat", text).OK))
	}
	return checks
}

// sinkHost is the URL of a sink, or for mail that of its server; "" if the sink has no host of its own.
func sinkHost(a *config.Alert) string {
	e := a.Email
	if e == nil {
		return sinkAddress(a)
	}
	port := e.Port
	if port == 0 {
		port = map[string]int64{"starttls": 587, "tls": 465, "none": 25}[e.Security]
	}
	return "smtp://" + net.JoinHostPort(e.Host, strconv.FormatInt(port, 10))
}
