// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"overdue/monitor"
	"overdue/proxy"
	"overdue/scheduler"
)

// startRooms makes the clients of the namespace, embedded or not, and the rooms that use
// them. Nothing here waits for the network. door is nil when the role has no proxy.
func (p *process) startRooms(door net.Listener) error {
	text := p.cfg.Namespace
	if p.cfg.embedded() {
		text = embeddedConnectionString(p.brokerAddr)
	}
	ns, err := parseNamespace(text)
	if err != nil {
		return &configError{fmt.Errorf("namespace: %w", err)}
	}
	client, links, err := ns.connect()
	if err != nil {
		return err
	}
	p.namespace = ns
	p.life.connection("namespace client", client.Close)
	p.life.connection("namespace links", func(context.Context) error { return links.Close() })

	up := newUpstream(ns, client, p.cfg.MonitorQueue, p.log)
	count := companionCounter(p.registry)
	s, err := scheduler.New(scheduler.Config{
		Client: client, MonitorQueue: p.cfg.MonitorQueue,
		Written: func(n int, err error) {
			count(n, err)
			if err != nil {
				up.doubted()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("make the scheduler: %w", err)
	}
	p.life.links("scheduler", s.Close)
	registerClock(p.registry, s)
	p.life.background("broker clock", func(ctx context.Context) error { return keepClock(ctx, up.up, s.MeasureClock, p.log) })
	p.life.background("upstream", up.run)
	p.admin.ready = append(p.admin.ready, check{"upstream", up.attached})
	p.admin.outbound = append(p.admin.outbound, check{"namespace", up.reachable})

	p.warnOfDrops()
	if p.role.monitor {
		w, err := p.newMonitor(monitor.Config{Links: links, Scheduler: s, Namespace: ns.host})
		if err != nil {
			return err
		}
		p.life.background("monitor", w.Run)
		p.admin.ready = append(p.admin.ready, check{"monitor queue", func(context.Context) error {
			if !w.Attached() {
				return fmt.Errorf("the monitor does not receive from %q", p.cfg.MonitorQueue)
			}
			return nil
		}})
	}
	if !p.role.proxy {
		return nil
	}
	px, err := proxy.New(proxy.Config{
		Client: client, Scheduler: s, Settings: p.proxySettings, MonitorQueue: p.cfg.MonitorQueue,
		MaxInFlight: int(p.cfg.Proxy.MaxInFlight), MaxBodySize: p.cfg.Proxy.MaxBodySize,
		Log: p.log.Named("proxy"), Registerer: p.registry,
	})
	if err != nil {
		return fmt.Errorf("make the proxy: %w", err)
	}
	p.life.links("proxy", px.Close)
	p.doorAddr = door.Addr().String()
	server := newServer(px, doorReadTimeout, doorWriteTimeout, p.log)
	p.life.serveHTTP("REST door", server, func() error { return px.Serve(server, limit(door, maxDoorConns)) })
	return nil
}

// warnOfDrops names the monitored queues whose overdue messages the broker drops: nothing
// in a dead-letter queue shows that their deadlines were missed.
func (p *process) warnOfDrops() {
	if p.broker == nil {
		return
	}
	for _, q := range p.cfg.Broker.Queues {
		if p.proxySettings(q.Name).Monitored && !q.DeadLetteringOnMessageExpiration {
			p.log.Warn("queue drops what expires", zap.String("work_queue", q.Name),
				zap.String("next", "set its deadLetteringOnMessageExpiration: true, or its missed deadlines go unseen"))
		}
	}
}

// newMonitor gives the monitor its sinks: the log always, then those of the configuration.
func (p *process) newMonitor(c monitor.Config) (*monitor.Worker, error) {
	c.MonitorQueue = p.cfg.MonitorQueue
	c.Settings = p.monitorSettings
	c.Log = p.log.Named("monitor")
	c.Registerer = p.registry
	c.Alerters = []monitor.Alerter{monitor.NewLog(p.log.Named("alert"))}
	for i, a := range p.cfg.Alerts {
		name := "webhook"
		if i > 0 {
			name = fmt.Sprintf("webhook-%d", i+1) // as the file lists them
		}
		hook, err := monitor.NewWebhook(monitor.WebhookConfig{Name: name, URL: a.Webhook.URL, Timeout: a.Webhook.Timeout})
		if err != nil {
			return nil, &configError{fmt.Errorf("alerts[%d].webhook: %w", i, err)}
		}
		c.Alerters = append(c.Alerters, hook)
		p.admin.outbound = append(p.admin.outbound, webhookCheck(i, a.Webhook.URL))
	}
	w, err := monitor.New(c)
	if err != nil {
		return nil, fmt.Errorf("make the monitor: %w", err)
	}
	return w, nil
}

// webhookCheck opens a connection to where a webhook lives and sends nothing.
func webhookCheck(i int, raw string) check {
	name := fmt.Sprintf("alerts[%d].webhook", i)
	return check{name, func(ctx context.Context) error {
		u, err := url.Parse(raw)
		if err != nil {
			return fmt.Errorf("its URL cannot be read") // the error would quote it
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
		if err != nil {
			return err
		}
		return c.Close()
	}}
}

// proxySettings joins what the configuration says of a queue with what the embedded broker
// knows of it. It is asked for every send.
func (p *process) proxySettings(name string) proxy.Settings {
	e, listed := p.cfg.entity(name)
	if !listed {
		// Without a list every queue is monitored, but for the one that monitors.
		everything := len(p.cfg.Monitor.Entities) == 0 && !strings.EqualFold(name, p.cfg.MonitorQueue)
		return proxy.Settings{Monitored: everything, StampTTL: true, DefaultMessageTimeToLive: p.defaultTTL(name, e)}
	}
	return proxy.Settings{
		Monitored: true, Deadline: e.Deadline, StampTTL: e.StampTTL,
		DefaultMessageTimeToLive: p.defaultTTL(name, e),
	}
}

// monitorSettings answers for every queue that has a companion, listed or not: the list may
// be shorter now than when the companion was written.
func (p *process) monitorSettings(name string) monitor.Settings {
	e, _ := p.cfg.entity(name) // the zero value means: nothing was said
	return monitor.Settings{Strategy: e.Expire, Deadline: e.Deadline, DefaultMessageTimeToLive: p.defaultTTL(name, e)}
}

// defaultTTL is the queue's DefaultMessageTimeToLive; 0 = unlimited.
func (p *process) defaultTTL(name string, e entityConfig) (ttl time.Duration) {
	if p.broker != nil {
		q, _ := p.broker.QueueConfig(name) // not there yet: made on demand, and then without one
		return q.DefaultMessageTimeToLive
	}
	return e.DefaultMessageTimeToLive
}
