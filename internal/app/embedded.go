// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"overdue/internal/adminport"
	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
	"overdue/internal/config"
	"overdue/internal/listener"
	"overdue/internal/version"
	"overdue/internal/web"
)

// brokerConfig is how the embedded broker of a role is set up, and the key that the components of
// the same process use where it has keys. broker.New refuses what reading the configuration has
// not.
func brokerConfig(c *config.Config, r config.Role) (cfg broker.Config, own broker.AuthorizationRule) {
	b := &c.Broker
	cfg = broker.Config{
		Quirks:                quirk.Of(b.Quirks...),
		AutoCreate:            b.AutoCreate,
		AutoCreateConfig:      config.OnDemandQueue,
		ClockOffset:           b.ClockOffset,
		MaxMessageSize:        uint64(b.MaxMessageSize),
		Expiry:                map[string]queue.Expiry{"lazy": queue.Lazy, "lazy-head": queue.LazyHead, "eager": queue.Eager}[b.Expiry],
		Isolate:               b.Isolate,
		AcceptJWT:             b.AcceptJWT,
		LinkIdleTimeout:       b.LinkIdleTimeout,
		ConnectionIdleTimeout: b.ConnectionIdleTimeout,
		Queues:                c.BrokerQueues(),
		Topics:                c.BrokerTopics(),
	}
	if all := c.BrokerNamespaces(); len(all) > 0 {
		cfg.DefaultName, cfg.Namespaces = all[0].Name, all[1:]
	}
	if b.MonitorQueue || r.Proxy || r.Monitor {
		for _, name := range c.AllMonitorQueues().Names() {
			if _, there := c.Queue(name); !there {
				cfg.Queues = append(cfg.Queues, config.CompanionQueue(name))
			}
		}
	}
	if name := c.Canary.Queue; name != "" && (r.Proxy || r.Monitor) {
		if _, ok := c.Queue(name); !ok {
			cfg.Queues = append(cfg.Queues, broker.QueueConfig{Name: name, DeadLetteringOnMessageExpiration: true})
		}
	}
	cfg.Keys = brokerKeys(b)
	if len(cfg.Keys) > 0 && (r.Proxy || r.Monitor) {
		// Our own components connect to the same endpoint as everybody.
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // it never fails
		own = broker.AuthorizationRule{
			KeyName: ownKeyName, PrimaryKey: base64.StdEncoding.EncodeToString(secret[:]), Send: true, Listen: true, Manage: true,
		}
		cfg.Keys = append(cfg.Keys, own)
	}
	return cfg, own
}

// brokerKeys are the keys that the configuration gives to the embedded broker.
func brokerKeys(b *config.Broker) (keys []broker.AuthorizationRule) {
	for _, k := range b.Keys {
		keys = append(keys, broker.AuthorizationRule{
			KeyName: k.Name, PrimaryKey: k.Key, Send: k.Send || k.Manage, Listen: k.Listen || k.Manage, Manage: k.Manage,
		})
	}
	return keys
}

// setKeys has the broker accept other keys, and our own as before.
func (b *embedded) setKeys(c *config.Broker) error {
	keys := brokerKeys(c)
	if b.key.KeyName != "" {
		keys = append(keys, b.key)
	}
	return b.SetKeys(keys)
}

// ownKeyName is the key by which proxy and monitor use the embedded broker of their
// process, where it has keys.
const ownKeyName = "overdue-own"

// logNotApplied says what a client will miss in Azure. The names are in the message, since equal
// messages are sampled.
func (e *environment) logNotApplied(u httpapi.Unapplied) {
	e.log.Warn(fmt.Sprintf("%s of %.260s is not applied: in the request it stands behind %s; Azure Service Bus keeps and shows it, and does not apply it either",
		u.Element, u.Path, u.Behind), zap.String("client", u.Client))
}

// embedded is the embedded broker of a process, and how clients reach it.
type embedded struct {
	*broker.Broker
	cfg         *config.Config
	key         broker.AuthorizationRule // our own, where the broker has keys
	certificate *listener.Certificate    // nil without TLS
	addrs       []string                 // as bound; the first is that of broker.listen
}

// startBroker serves the embedded broker on all its endpoints.
func startBroker(ctx context.Context, e *environment, endpoints []net.Listener) (*embedded, error) {
	cfg, own := brokerConfig(e.cfg, e.role)
	var cert *listener.Certificate
	if t := &e.cfg.Broker.TLS; t.Enabled {
		var err error
		if cert, err = e.certificate("broker.tls", t.CertFile, t.KeyFile, t.Directory); err != nil {
			return nil, &config.Error{Err: fmt.Errorf("the embedded broker has no certificate: %w", err)}
		}
	}
	kept, err := openDirectory(ctx, e)
	if err != nil {
		return nil, err
	}
	b, err := kept.newBroker(cfg)
	if err != nil {
		return nil, err
	}
	for _, w := range e.cfg.EmulatorWarnings() {
		e.log.Warn("a property of the emulator's configuration has no effect",
			zap.String("file", e.cfg.Broker.EmulatorSource()), zap.String("what", w))
	}
	if open := e.cfg.Broker.Unguarded(); len(open) > 0 {
		e.log.Warn("broker.insecure: everyone who reaches the embedded broker can read, send and delete all its messages, without a key or TLS",
			zap.Strings("addresses", open), zap.String("next", "let only tests reach these addresses, or set broker.tls.enabled and broker.keys"))
	}
	clients := &clientLog{log: e.log}
	b.Watch(clients.note)
	access := httpapi.Config{
		Broker:     b,
		Hosts:      e.cfg.Broker.TLS.Hosts,
		Page:       web.NewBrokerPages(web.BrokerSource{Broker: b, Version: version.String(), Note: strings.Join(strings.Fields(origins(e.cfg)), " ")}),
		Version:    version.String(),
		ErrorLog:   clients.ended,
		NotApplied: e.logNotApplied,
		Metrics:    adminport.MetricsHandler(e.registry),
	}
	if cert != nil {
		access.TLS = cert.TLS
	}
	server := httpapi.New(access)
	e.registry.MustRegister(brokerMetrics{b.Statistics, server.Connections})
	var stopping atomic.Bool
	e.life.Run("embedded broker", func() error {
		var all errgroup.Group
		for _, ln := range endpoints {
			all.Go(func() error { return server.Serve(ln) })
		}
		if err := all.Wait(); !stopping.Load() {
			return err
		}
		return nil // that it was closed is what stopping means
	}, func(ctx context.Context) error {
		stopping.Store(true)
		err := server.Shutdown(ctx)
		n := b.Held(e.cfg.AllMonitorQueues().Has)
		switch {
		case kept != nil:
			e.log.Info("messages of the embedded broker stay in its directory", zap.Int("messages", n), zap.String("directory", kept.path))
		case n > 0:
			e.log.Warn("messages of the embedded broker are lost, as it keeps them in memory", zap.Int("messages", n))
		}
		return errors.Join(err, b.Shutdown(ctx))
	})
	return &embedded{
		Broker:      b,
		cfg:         e.cfg,
		key:         own,
		certificate: cert,
		addrs:       addresses(endpoints),
	}, nil
}

// page is where a browser on this machine finds the pages of the broker.
func (b *embedded) page() string {
	if b.certificate == nil {
		return "http://" + reachable(b.addrs[0]) + httpapi.ControlPath
	}
	return "https://" + named(b.addrs[0], b.certificate.Names) + httpapi.ControlPath
}

// ownConnectionString is how proxy and monitor reach the embedded broker.
func (b *embedded) ownConnectionString() string {
	return config.ConnectionString(b.addrs[0], cmp.Or(b.key.KeyName, config.AnyKeyName), cmp.Or(b.key.PrimaryKey, config.AnyKey))
}

// shownConnectionString is what a user pastes into an app. Keys are not shown.
func (b *embedded) shownConnectionString() string {
	name, key := b.shownKey()
	return config.ConnectionString(reachable(b.addrs[0]), name, key)
}

// shownSecureConnectionString is the same for clients that use TLS.
func (b *embedded) shownSecureConnectionString() string {
	name, key := b.shownKey()
	return secureConnectionString(b.addrs[0], b.certificate.Names, name, key)
}

// secureConnectionString is how a client reaches addr over TLS: without the flag of the emulator,
// and by a name that the certificate there is for.
func secureConnectionString(addr string, names []string, keyName, key string) string {
	return "Endpoint=sb://" + named(addr, names) + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + key
}

// named is addr, with a name of a certificate for its host.
func named(addr string, names []string) string {
	host, port, err := net.SplitHostPort(reachable(addr))
	if err != nil {
		return addr // it was listened on
	}
	if config.OnLoopback(host) && slices.Contains(names, "localhost") {
		host = "localhost" // an address is no name, and some clients want one for TLS
	}
	if !slices.Contains(names, host) {
		if i := slices.IndexFunc(names, func(n string) bool { return !strings.Contains(n, "*") }); i >= 0 {
			host = names[i]
		}
	}
	return net.JoinHostPort(host, port)
}

func (b *embedded) shownKey() (name, key string) {
	if keys := b.cfg.Broker.Keys; len(keys) > 0 {
		return keys[0].Name, "<the key>"
	}
	return config.AnyKeyName, config.AnyKey
}

// reachable is an address that a client on this machine can connect to.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}
