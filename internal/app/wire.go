// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/adminport"
	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/history"
	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/internal/slack"
	"overdue/internal/unreceived"
	"overdue/monitor"
	"overdue/monitor/notify"
	"overdue/proxy"
	"overdue/scheduler"
	"overdue/scheduler/journal"
)

// startComponents starts the components that use the namespace, embedded or not. Nothing here waits
// for the network. There are no listeners when the role has no proxy.
func (p *Process) startComponents(listeners []net.Listener) (err error) {
	p.traces = startTraces(p.environment, p.namespace.Host)
	if err := p.startCatalog(listeners); err != nil {
		return err
	}
	if p.shared, err = startRedis(p.environment, p.namespace.Host); err != nil {
		return err
	}
	p.startHistory()
	c, err := p.startCompanions()
	if err != nil {
		return err
	}
	p.warnOfDrops()
	p.mutes = p.newMutes(c)
	if p.role.Monitor {
		if err := p.startMonitor(c); err != nil {
			return err
		}
	}
	if p.role.Proxy {
		if err := p.startProxy(c, listeners); err != nil {
			return err
		}
	}
	return startCanary(p.environment, p.namespace, c.scheduler, p.endpoints.proxy)
}

// A connection is the namespace that a process works on, with the clients that its components
// share.
type connection struct {
	*connect.Namespace
	links  *link.Namespace
	tokens *link.ReplaceableTokens // of all clients
}

// connect makes the clients. They dial when somebody uses them.
func (p *Process) connect() error {
	text := p.cfg.Namespace
	if p.cfg.Embedded() {
		text = p.OwnConnectionString()
	}
	ns, err := connect.Parse(text)
	if err != nil {
		return &config.Error{Err: fmt.Errorf("namespace: %w", err)}
	}
	own, err := ns.Tokens()
	if err != nil {
		return err
	}
	tokens := link.NewReplaceableTokens(own)
	links := ns.LinksWith(tokens)
	p.namespace = &connection{
		Namespace: ns,
		links:     links,
		tokens:    tokens,
	}
	p.life.Connection("namespace links", func(context.Context) error { return links.Close() })
	return nil
}

// startCatalog makes what is known of entities: by the embedded broker itself, or by the
// administration API of the namespace, with our own credentials. Our own endpoints are not that
// API.
func (p *Process) startCatalog(endpoints []net.Listener) error {
	if p.broker != nil {
		source := catalog.NewEmbeddedSource(p.broker.Broker, p.cfg.Broker.AutoCreate)
		p.catalog = catalog.New(p.cfg, source, p.broker.Default().Changes, p.log)
	} else {
		api, err := connect.AdminAPI(p.cfg, p.namespace.Namespace, p.namespace.tokens, addresses(endpoints)...)
		if err != nil {
			return err
		}
		p.life.Started("administration API", func(context.Context) error {
			api.Client.CloseIdleConnections()
			return nil
		})
		p.source = catalog.Nowhere{}
		if len(api.Endpoints) > 0 {
			p.source = api
		}
		p.catalog = catalog.New(p.cfg, p.source, nil, p.log)
	}
	p.life.Started("entities", func(context.Context) error {
		p.catalog.Close()
		return nil
	})
	registerLabels(p.environment, p.catalog)
	p.life.Background("settings of entities", p.catalog.Run)
	return nil
}

// companions are what writes companions, and knows whether they can be written.
type companions struct {
	scheduler  *scheduler.Scheduler
	upstream   *upstream
	store      *companionStore  // nil: companions are on the monitor queue
	journal    *journal.Journal // nil: sends are refused while companions cannot be written
	operations *operations.Counter
	deadlines  *operations.Deadlines
}

// startCompanions starts the scheduler, and keeps the broker's clock and the state of the
// namespace.
func (p *Process) startCompanions() (*companions, error) {
	ns := p.namespace
	c := &companions{
		upstream:   newUpstream(ns.Namespace, ns.links, p.cfg.AllMonitorQueues().Names(), p.log),
		store:      startStore(p.environment, p.shared),
		operations: operations.New(p.registry),
		deadlines:  operations.NewDeadlines(p.registry),
	}
	c.upstream.goesOn = p.passes()
	c.deadlines.SetCanary(p.cfg.Canary.Queue)
	count, journaled, cancelled := companionCounter(p.registry)
	sc := scheduler.Config{
		MonitorQueue: p.cfg.MonitorQueue, MonitorQueues: int(p.cfg.MonitorQueues), Companions: p.cfg.Companions,
		Written: func(n int, err error) {
			count(n, err)
			c.noteWritten(err)
		},
		Links: ns.links, Operations: c.operations, Deadlines: c.deadlines,
		Cancelled: func(n int, err error) {
			cancelled(n)
			if err != nil {
				p.log.Info("companions not cancelled, they become due needlessly", zap.Error(err))
			}
		},
	}
	interval := clockInterval
	if c.store != nil {
		sc.Store, interval = c.store, clockIntervalAlone
	}
	s, err := scheduler.New(sc)
	if err != nil {
		return nil, fmt.Errorf("make the scheduler: %w", err)
	}
	c.scheduler, c.upstream.tryWrite = s, s.TryWrite
	p.life.Links("scheduler", s.Close)
	registerClock(p.registry, s)
	if c.journal, err = startJournal(p.environment, ns.Host, s, journaled); err != nil {
		return nil, err
	}
	p.life.Background("broker clock", func(ctx context.Context) error {
		return keepClock(ctx, c.upstream.up, s.Blurred(), c.measureClock, interval, p.log)
	})
	p.life.Background("early cancel", s.RunCancel)
	p.life.Background("upstream", c.upstream.run)
	if c.store != nil {
		p.addReady("companion store", c.passing(c.store.state))
	}
	registerUpstream(p.environment, c.upstream)
	p.addReady("upstream", c.passing(c.upstream.attached))
	p.addOutbound("namespace", c.upstream.outbound)
	return c, nil
}

// noteWritten notes how a write of companions ended, for the health of what takes them.
func (c *companions) noteWritten(err error) {
	switch {
	case c.store != nil && err != nil:
		c.store.doubt.signal()
	case c.store != nil:
	case err == nil:
		c.upstream.written()
	default:
		c.upstream.doubtAfter(err)
	}
}

// measureClock writes to the monitor queue, and so notices without traffic that it is full.
func (c *companions) measureClock(ctx context.Context) error {
	err := c.scheduler.MeasureClock(ctx)
	if isFull(err) {
		c.upstream.doubtAfter(err)
	}
	return err
}

// startMonitor starts the monitor with its sinks: the log always, then those of the configuration.
func (p *Process) startMonitor(c *companions) (err error) {
	cfg := monitor.Config{
		Links: p.namespace.links, Scheduler: c.scheduler, Operations: c.operations, Deadlines: c.deadlines, Namespace: p.namespace.Host,
		Queues: p.cfg.AllMonitorQueues(), Entities: p.cfg.MonitoredNames(),
		Settings: p.catalog.Monitored, Describe: p.catalog.Describe, Labels: p.catalog.Labels, Known: p.catalog.Known, Adopt: catalog.Adoptions(p.cfg),
		Log: p.log.Named("monitor"), Registerer: p.registry, Mutes: p.mutes,
	}
	cfg.Unknown = func(u monitor.Unknown) { p.admin.History.AddUnknown(history.Unknown(u)) }
	if c.store != nil {
		cfg.Store = c.store
	}
	sight := newSight(p.environment, c, p.namespace.Host, p.catalog.Labels)
	cfg.Judged, cfg.Lost = sight.judged, sight.lost
	var pages alert.Pool
	if p.shared != nil { // each missed deadline is notified once in the fleet, and a group is sent as one page
		cfg.Notified, pages = p.shared.Notified(), p.shared.Groups()
		sight.fleet = &blindFleet{pool: pages}
	}
	p.sinks = &sinkSet{
		environment: p.environment,
		namespace:   p.namespace,
		catalog:     p.catalog,
		traces:      p.traces,
		pages:       pages,
		sight:       &sight.groups,
		outbox:      notify.NewOutbox(c.scheduler),
		describe:    p.describe,
		logged:      p.admin.History.Record(alert.NewLog(p.log.Named(alertLog))),
		history:     p.admin.History,
	}
	active, err := p.sinks.fill(p.cfg)
	if err != nil {
		return err
	}
	cfg.Alerters = p.sinks.take(active)
	if p.worker, err = monitor.New(cfg); err != nil {
		return fmt.Errorf("make the monitor: %w", err)
	}
	p.catalog.OnDescribed(p.worker.Described)
	sight.worker = p.worker
	p.life.Background("sight", sight.run)
	p.life.Background("monitor", p.worker.Run)
	p.runMutes(p.worker)
	watchWorkQueues(p.environment, p.namespace.links, p.describe)
	if p.source != nil && c.store == nil {
		f := &former{
			queues: p.cfg.AllMonitorQueues(),
			source: p.source,
			links:  p.namespace.links,
			worker: p.worker,
			log:    p.log.Named("monitor"),
		}
		p.life.Background("former monitor queues", f.run)
	}
	p.addReady("monitor queue", c.passing(func(context.Context) error {
		missing := p.worker.Unattached()
		switch {
		case len(missing) == 0:
			return nil
		case c.store != nil:
			return &adminport.Failure{
				Reason: adminport.NotReceiving,
				Err:    errors.New("the monitor has no companions from the companion store: it needs that, and the broker's clock"),
			}
		}
		return &adminport.Failure{Reason: adminport.NotReceiving, Err: notReceiving(missing)}
	}))
	return nil
}

// startProxy starts the proxy and opens its endpoints.
func (p *Process) startProxy(c *companions, listeners []net.Listener) (err error) {
	p.endpoints, err = newEndpoints(p.environment, proxy.Config{
		Links: p.namespace.links, Scheduler: c.scheduler, Journal: c.journal, Operations: c.operations,
		Settings: p.catalog.Settings, Learn: p.catalog.Learn, Excluded: p.excluded,
		MonitorQueue: p.cfg.MonitorQueue, Entities: p.cfg.MonitoredNames(), Canary: p.cfg.Canary.Queue,
		MaxInFlight: int(p.cfg.Proxy.MaxInFlight), MaxBodySize: p.cfg.Proxy.MaxBodySize,
		Log: p.log.Named(proxyLog), Registerer: p.registry, Slack: slack.NewMeter(p.registry), Traces: p.traces,
	}, p.namespace)
	if err != nil {
		return err
	}
	if err := watchMonitorQueues(p.environment, p.namespace.links, c); err != nil {
		return err
	}
	p.endpoints.serve(p.environment, listeners)
	return nil
}

// excluded reports that an entity will never be monitored. A file may list an entity later on, and
// a link lives longer than a configuration: so links to entities that it does not list are watched
// too.
func (p *Process) excluded(name string) bool {
	if p.cfg.Sources.Reloads() {
		return p.cfg.AllMonitorQueues().Has(name)
	}
	return p.catalog.Excluded(name)
}

// watchMonitorQueues notices companions that are due and that no monitor receives. A monitor
// notices that about others as little as about itself, so proxies do.
func watchMonitorQueues(e *environment, links *link.Namespace, c *companions) error {
	if c.store != nil {
		return nil // no companion is on the monitor queue
	}
	var watches []*unreceived.Watch
	for _, queue := range e.cfg.AllMonitorQueues().Names() {
		w, err := unreceived.New(unreceived.Config{
			Links: links, Queue: queue, Now: func() time.Time { return c.scheduler.Now().Time },
			LastDue: func() time.Time { return c.scheduler.LastDue(queue) }, Operations: c.operations, Log: e.log,
		})
		if err != nil {
			return err
		}
		watches = append(watches, w)
		e.life.Background("unreceived companions", w.Run)
	}
	unreceived.Register(e.registry, watches...)
	e.addOutbound("monitor", func(ctx context.Context) error {
		var errs []error
		for _, w := range watches {
			errs = append(errs, w.Check(ctx))
		}
		return errors.Join(errs...)
	})
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
