// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sdk"
	"overdue/internal/unreceived"
	"overdue/monitor"
	"overdue/monitor/notify"
	"overdue/proxy"
	"overdue/scheduler"
)

// noteWritten notes how a write of companions ended, for the health of what takes them.
func noteWritten(store *companionStore, up *upstream, err error) {
	switch {
	case store != nil && err != nil:
		store.doubted()
	case store != nil:
	case err == nil:
		up.written()
	default:
		up.doubted()
	}
}

// startComponents makes the clients of the namespace, embedded or not, and the components that use
// them. Nothing here waits for the network. There are no endpoints when the role has no proxy.
func (p *Process) startComponents(endpoints []net.Listener) error {
	text := p.cfg.Namespace
	if p.cfg.Embedded() {
		text = p.OwnConnectionString()
	}
	ns, err := connect.Parse(text)
	if err != nil {
		return &config.Error{Err: fmt.Errorf("namespace: %w", err)}
	}
	client, links, tokens, err := ns.Connect(p.log)
	if err != nil {
		return err
	}
	p.namespace = ns
	p.life.Connection("namespace client", client.Close)
	p.life.Connection("namespace links", func(context.Context) error { return links.Close() })

	p.startTraces(ns.Host)
	if err := p.startKnowledge(ns, tokens, endpoints); err != nil {
		return err
	}

	up := newUpstream(ns, links, p.cfg.AllMonitorQueues().Names(), p.log)
	up.goesOn = p.passes()
	count, kept, cancelled := companionCounter(p.registry)
	ops, deadlines := operations.New(p.registry), operations.NewDeadlines(p.registry)
	deadlines.SetCanary(p.cfg.Canary.Queue)
	shared, err := p.startRedis(ns)
	if err != nil {
		return err
	}
	p.shared = shared
	p.startHistory(shared)
	store := p.startStore(shared)
	sc := scheduler.Config{
		Client: client, MonitorQueue: p.cfg.MonitorQueue, MonitorQueues: int(p.cfg.MonitorQueues), Companions: p.cfg.Companions,
		Written: func(n int, err error) {
			count(n, err)
			noteWritten(store, up, err)
		},
		Links: links, Operations: ops, Deadlines: deadlines,
		Cancelled: func(n int, err error) {
			cancelled(n)
			if err != nil {
				p.log.Info("companions not cancelled, they become due needlessly", zap.Error(err))
			}
		},
	}
	every := clockInterval
	if store != nil {
		sc.Store, every = store, clockIntervalAlone
	}
	s, err := scheduler.New(sc)
	if err != nil {
		return fmt.Errorf("make the scheduler: %w", err)
	}
	p.life.Links("scheduler", s.Close)
	registerClock(p.registry, s)
	journal, err := p.startJournal(ns, s, kept)
	if err != nil {
		return err
	}
	p.life.Background("broker clock", func(ctx context.Context) error {
		return keepClock(ctx, up.up, s.Blurred(), s.MeasureClock, every, p.log)
	})
	p.life.Background("early cancel", s.RunCancel)
	p.life.Background("upstream", up.run)
	if store != nil {
		p.admin.Ready = append(p.admin.Ready, adminport.Check{Name: "companion store", OK: passing(up, journal, store.state)})
	}
	p.admin.Ready = append(p.admin.Ready, adminport.Check{Name: "upstream", OK: passing(up, journal, up.attached)})
	p.admin.Outbound = append(p.admin.Outbound, adminport.Check{Name: "namespace", OK: up.outbound})

	p.warnOfDrops()
	if p.role.Monitor {
		c := monitor.Config{Links: links, Scheduler: s, Operations: ops, Deadlines: deadlines, Namespace: ns.Host}
		if store != nil {
			c.Store = store
		}
		showFleet := p.shareNotifications(shared, &c)
		w, err := p.newMonitor(client, c)
		if err != nil {
			return err
		}
		showFleet(w)
		p.life.Background("monitor", w.Run)
		if p.source != nil && store == nil {
			f := &former{queues: p.cfg.AllMonitorQueues(), source: p.source, links: links, worker: w, log: p.log.Named("monitor")}
			p.life.Background("former monitor queues", f.run)
		}
		p.admin.Ready = append(p.admin.Ready, adminport.Check{Name: "monitor queue", OK: passing(up, journal, func(context.Context) error {
			missing := w.Unattached()
			switch {
			case len(missing) == 0:
				return nil
			case store != nil:
				return errors.New("the monitor has no companions from the companion store: it needs that, and the broker's clock")
			}
			return notReceiving(missing)
		})})
	}
	if !p.role.Proxy {
		return p.startWatch(client, links, s, nil)
	}
	px, err := p.newProxy(proxy.Config{
		Client: client, Scheduler: s, Journal: journal, Operations: ops, Settings: p.catalog.Settings, Learn: p.catalog.Learn, Excluded: p.excluded,
		MonitorQueue: p.cfg.MonitorQueue,
		MaxInFlight:  int(p.cfg.Proxy.MaxInFlight), MaxBodySize: p.cfg.Proxy.MaxBodySize,
		Log: p.log.Named(proxyLog), Registerer: p.registry, Entities: p.cfg.MonitoredNames(), Canary: p.cfg.Canary.Queue, Slack: p.slack, Traces: p.traces,
	}, ns, tokens)
	if err != nil {
		return err
	}
	p.proxy = px
	if err := p.watchMonitorQueues(links, s, ops); err != nil {
		return err
	}
	p.openEndpoints(px, endpoints)
	return p.startWatch(client, links, s, px)
}

// startKnowledge makes what is known of entities: by the embedded broker itself, or by the administration API.
func (p *Process) startKnowledge(ns *connect.Namespace, tokens link.TokenSource, endpoints []net.Listener) error {
	if p.broker != nil {
		source := catalog.NewEmbeddedSource(p.broker, p.cfg.Broker.AutoCreate)
		p.catalog = catalog.New(p.cfg, source, p.broker.Default().Changes, p.log)
	} else {
		source, client, err := p.adminSource(ns, tokens, endpoints)
		if err != nil {
			return err
		}
		p.life.Started("administration API", func(context.Context) error {
			client.CloseIdleConnections()
			return nil
		})
		p.source = source
		p.catalog = catalog.New(p.cfg, source, nil, p.log)
	}
	p.life.Started("entities", func(context.Context) error {
		p.catalog.Close()
		return nil
	})
	p.life.Background("settings of entities", p.catalog.Run)
	return nil
}

// watchMonitorQueues notices companions that are due and that no monitor receives. A monitor
// notices that about others as little as about itself, so proxies do.
func (p *Process) watchMonitorQueues(links *link.Namespace, s *scheduler.Scheduler, ops *operations.Counter) error {
	if p.cfg.CompanionsInRedis() {
		return nil // no companion is on the monitor queue
	}
	var watches []*unreceived.Watch
	for _, queue := range p.cfg.AllMonitorQueues().Names() {
		w, err := unreceived.New(unreceived.Config{
			Links: links, Queue: queue, Now: func() time.Time { return s.Now().Time },
			LastDue: func() time.Time { return s.LastDue(queue) }, Operations: ops, Log: p.log,
		})
		if err != nil {
			return err
		}
		watches = append(watches, w)
		p.life.Background("unreceived companions", w.Run)
	}
	unreceived.Register(p.registry, watches...)
	p.admin.Outbound = append(p.admin.Outbound, adminport.Check{Name: "monitor", OK: func(ctx context.Context) error {
		var errs []error
		for _, w := range watches {
			errs = append(errs, w.Check(ctx))
		}
		return errors.Join(errs...)
	}})
	return nil
}

// warnOfDrops names the monitored queues whose overdue messages the broker drops: nothing
// in a dead-letter queue shows that their deadlines were missed.
func (p *Process) warnOfDrops() {
	if p.broker == nil {
		return
	}
	for _, q := range p.cfg.Broker.Queues {
		if !p.catalog.Excluded(q.Name) && !q.DeadLetteringOnMessageExpiration {
			p.log.Warn("queue drops what expires", zap.String("work_queue", q.Name),
				zap.String("next", "set its deadLetteringOnMessageExpiration: true, or its missed deadlines go unseen"))
		}
	}
}

// newMonitor gives the monitor its sinks: the log always, then those of the configuration.
func (p *Process) newMonitor(client *sdk.Client, c monitor.Config) (*monitor.Worker, error) {
	c.Queues = p.cfg.AllMonitorQueues()
	c.Settings, c.Describe, c.Known = p.catalog.Monitored, p.catalog.Describe, p.catalog.Known
	c.Log, c.Adopt = p.log.Named("monitor"), catalog.Adoptions(p.cfg)
	c.Registerer, c.Entities = p.registry, p.cfg.MonitoredNames()
	p.sinks = p.newSinkSet(client, c.Links, notify.NewOutbox(c.Scheduler))
	active, err := p.sinks.fill(p.cfg)
	if err != nil {
		return nil, err
	}
	c.Alerters = p.sinks.take(active)
	if p.worker, err = monitor.New(c); err != nil {
		return nil, fmt.Errorf("make the monitor: %w", err)
	}
	p.catalog.OnDescribed(p.worker.Described)
	return p.worker, nil
}
