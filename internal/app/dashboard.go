// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"time"

	"overdue/internal/catalog"
	"overdue/internal/operator/audit"
	"overdue/internal/operator/deadlines"
	"overdue/internal/servicebus/entities"
	"overdue/internal/version"
	"overdue/internal/web"
)

// startDashboard makes the dashboard of the admin port. Everything that it shows has to be there.
func (p *Process) startDashboard() {
	s := web.Source{
		Role: p.role.Name, Version: version.String(), Metrics: p.registry, Canary: p.cfg.Canary.Queue, Ready: p.readyChecks, Checks: p.outboundChecks,
		State:    func() string { return string(p.life.State()) },
		Settings: func() any { return p.current().Sources.Redacted() },
		Monitor:  p.role.Monitor, History: p.admin.History,
	}
	if p.fleet.view != nil {
		s.Fleet = p.fleet.Read
	}
	if p.broker != nil {
		s.Broker = &web.LocalBroker{
			Broker: p.broker.Broker,
			URL:    p.broker.page(),
			Alone:  !p.role.Proxy && !p.role.Monitor,
		}
	}
	if p.mutes != nil {
		s.Mutes = p.shownMutes
	}
	s.Namespace = p.dashboardNamespace()
	d := web.New(s)
	p.admin.Dashboard, p.dashboard = d, d
	p.life.Background("dashboard", func(ctx context.Context) error {
		d.Run(ctx)
		return nil
	})
}

// dashboardNamespace is what the pages about messages read. They have connections of their own, which
// are made when somebody opens such a page: reading a long queue takes nothing from the monitor.
func (p *Process) dashboardNamespace() *web.Namespace {
	links := p.namespace.LinksWith(p.namespace.tokens)
	p.life.Connection("dashboard links", func(context.Context) error { return links.Close() })
	var actions *web.Actions
	if p.cfg.Dashboard.Token != "" {
		log := p.log.Named("dashboard")
		actions = &web.Actions{
			Token:      func() string { return p.current().Dashboard.Token },
			UserHeader: func() string { return p.current().Dashboard.UserHeader },
			Namespace:  p.namespace.Host,
			Folder:     func() (string, error) { return actionFolder(p.cfg) },
			Sender:     p.actionSender,
			Audit:      func(l audit.Line) { l.Write(log) },
		}
		if p.mutes != nil {
			actions.Mute = p.mutes.Set
		}
	}
	return &web.Namespace{
		Actions: actions,
		Deadlines: &deadlines.Source{
			Links: links, MonitorQueue: p.cfg.MonitorQueue, MonitorQueues: int(p.cfg.MonitorQueues), Redis: p.shared, CompanionsInRedis: p.cfg.CompanionsInRedis(),
			Describe: p.describe, Names: func(context.Context) []string { return p.names() },
		},
		DeadLetters: deadLetters(links), Depths: p.depths(links),
	}
}

// describe says how an entity was made.
func (p *Process) describe(ctx context.Context, name string) (entities.Info, error) {
	if p.catalog == nil {
		return catalog.NewEmbeddedSource(p.broker.Broker, p.cfg.Broker.AutoCreate).Read(ctx, name)
	}
	return p.catalog.Describe(ctx, name, time.Time{})
}

// names are the queues and topics that the configuration in force names.
func (p *Process) names() (all []string) {
	c := p.current()
	for i := range c.Monitor.Entities {
		all = append(all, cmp.Or(c.Monitor.Entities[i].Queue, c.Monitor.Entities[i].Topic))
	}
	if p.broker == nil {
		return all
	}
	for i := range c.Broker.Queues {
		all = append(all, c.Broker.Queues[i].Name)
	}
	for i := range c.Broker.Topics {
		all = append(all, c.Broker.Topics[i].Name)
	}
	return all
}
