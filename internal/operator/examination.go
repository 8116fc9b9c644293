// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/operator/doctor"
	"overdue/internal/servicebus/entities"
)

// Roles are the commands whose rights the doctor can check.
var Roles = []string{roleRun, roleProxy, roleMonitor}

const (
	roleRun     = "run"
	roleProxy   = "proxy"
	roleMonitor = "monitor"
)

// ExaminationOptions complete what the configuration says about an examination.
type ExaminationOptions struct {
	Role   string         // one of Roles
	Names  []string       // the only queues and topics to examine; empty: those of the configuration, or all
	Others []doctor.Check // of other things than Service Bus
}

// Examination returns what the doctor examines in the namespace.
func (c *Client) Examination(o ExaminationOptions) doctor.Config {
	cfg := c.ExaminationOfOthers(o)
	cfg.Host, cfg.Emulator, cfg.Dial = c.Namespace.Host, c.Namespace.Plain, c.Namespace.Open
	cfg.Links, cfg.Admin = c.Links, c.Admin
	if len(c.Admin.Endpoints) == 0 {
		cfg.Admin, cfg.NoAdmin = nil, catalog.NowhereToAsk
	}
	cfg.MonitorQueue, cfg.MonitorQueues = c.Config.MonitorQueue, int(c.Config.MonitorQueues)
	cfg.CompanionsInRedis, cfg.Clock = c.Config.CompanionsInRedis(), c.MeasureClock
	cfg.Proxy, cfg.Monitor, cfg.ClientTokens = o.Role != roleMonitor, o.Role != roleProxy, c.Config.Proxy.PassesCredentials()
	cfg.Deadline = c.Config.Monitor.Deadline
	cfg.ListsAll = len(c.Config.Monitor.Entities) > 0
	cfg.OnlyEntities = cfg.ListsAll
	if len(c.Config.Alerts) > 0 {
		cfg.IsUnalerted = func(name string) bool { return len(c.Config.SinksOf(name)) == 0 }
	}
	c.addEntities(&cfg)
	if len(o.Names) > 0 {
		cfg.Only(o.Names)
	}
	return cfg
}

// ExaminationOfOthers returns what the doctor examines apart from the namespace, which is
// everything with an embedded broker.
func (c *Client) ExaminationOfOthers(o ExaminationOptions) doctor.Config {
	admin := c.Config.Listen.Admin
	others := append(o.Others, restartCheck(admin))
	var once sync.Once // that process asks all sinks for its answer
	var answer Readiness
	var err error
	ask := func(ctx context.Context) (Readiness, error) {
		once.Do(func() { answer, err = askChecks(ctx, admin, "/healthz/outbound", outboundTimeout) })
		return answer, err
	}
	for i := range c.Config.Alerts {
		others = append(others, deliveryCheck(admin, c.Config.Alerts[i].Name, ask))
	}
	return doctor.Config{
		Redis:           c.redisToExamine(),
		BrokerDirectory: c.Config.Broker.Directory,
		Others:          others,
	}
}

// deliveryCheck looks in the answer of the process with this configuration, if one runs here, whether
// a sink takes its alerts. A host that accepts connections may refuse every one.
func deliveryCheck(admin, sink string, ask func(context.Context) (Readiness, error)) doctor.Check {
	return doctor.Check{
		Subject: "sink " + sink, Name: "deliveries", Severity: doctor.Error,
		Fix: "look at the sink, and in the log of the process on " + admin + "; alerts wait until the sink takes them",
		Run: func(ctx context.Context) error {
			r, err := ask(ctx)
			if err != nil {
				return nil // none runs, so none sends
			}
			for line := range strings.Lines(r.Checks) {
				rest, isSink := strings.CutPrefix(line, "[-] sink "+sink)
				if _, trouble, ok := strings.Cut(rest, ": "); isSink && ok && (rest[0] == ':' || rest[0] == ' ') {
					return fmt.Errorf("for the process on %s %s", admin, strings.TrimSpace(trouble))
				}
			}
			return nil
		},
	}
}

// restartCheck asks the process with this configuration, if one runs here, whether settings of it
// wait for a restart.
func restartCheck(admin string) doctor.Check {
	return doctor.Check{
		Subject: "process", Name: "restart", Severity: doctor.Warning,
		Fix: "restart the process on " + admin,
		Run: func(ctx context.Context) error {
			r, err := AskReadiness(ctx, admin)
			if err != nil {
				return nil // none runs, so none waits
			}
			for line := range strings.Lines(r.Checks) {
				if waits, ok := strings.CutPrefix(line, "[+] configuration: "); ok {
					return errors.New(strings.TrimSpace(waits))
				}
			}
			return nil
		},
	}
}

// addEntities adds the monitored entities, and those that Overdue itself sends to.
func (c *Client) addEntities(cfg *doctor.Config) {
	view := catalog.NewView(c.Config)
	for i := range c.Config.Monitor.Entities {
		e := &c.Config.Monitor.Entities[i]
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
	if q := c.Config.Canary.Queue; q != "" && !c.Config.Lists(q) {
		cfg.Entities = append(cfg.Entities, doctor.Monitored{Name: q, Setting: "canary.queue", States: true})
	}
	for i := range c.Config.Alerts {
		if a := &c.Config.Alerts[i]; a.ServiceBus != nil {
			cfg.Targets = append(cfg.Targets, doctor.Target{Name: a.ServiceBus.Entity, Setting: a.Key + ".entity"})
			cfg.Unmonitored = append(cfg.Unmonitored, a.ServiceBus.Entity)
		}
	}
}

// redisToExamine returns the Redis of the configuration, or nil.
func (c *Client) redisToExamine() *doctor.Redis {
	if c.Config.Redis == "" {
		return nil
	}
	a := &c.Config.RedisAddress
	r := &doctor.Redis{
		Hosts: a.Hosts, TLS: a.TLS, Password: a.Password != "", User: a.Username, Setting: "redis",
		Keeps: c.Config.CompanionsInRedis(), Open: c.OpenRedis,
	}
	if c.Config.RedisFile != "" {
		r.Setting = "redisFile"
	}
	return r
}

// OpenAny is Open. With an embedded broker, which is in another process, the namespace is that at
// broker.listen.
func OpenAny(c *config.Config) (*Client, error) {
	if c.Embedded() {
		c = c.WithNamespace(config.ConnectionString(c.Broker.Listen, config.AnyKeyName, config.AnyKey))
	}
	return Open(c)
}
