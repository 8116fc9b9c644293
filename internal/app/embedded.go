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

	"overdue/internal/broker"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
	"overdue/internal/config"
	"overdue/internal/listener"
	"overdue/internal/version"
)

// embeddedBroker is how the embedded broker of a role is set up, and the key that the components of the same
// process use where it has keys. broker.New refuses what reading the configuration has not.
func embeddedBroker(c *config.Config, r config.Role, log *zap.Logger) (cfg broker.Config, own broker.AuthorizationRule) {
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
		ErrorLog:              func(err error) { log.Debug("broker connection ended", zap.Error(err)) },
		Queues:                c.BrokerQueues(),
		Topics:                c.BrokerTopics(),
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
	for _, k := range b.Keys {
		cfg.Keys = append(cfg.Keys, broker.AuthorizationRule{
			KeyName: k.Name, PrimaryKey: k.Key, Send: k.Send || k.Manage, Listen: k.Listen || k.Manage, Manage: k.Manage,
		})
	}
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

// ownKeyName is the key by which proxy and monitor use the embedded broker of their
// process, where it has keys.
const ownKeyName = "overdue-own"

// brokerCertificate is the certificate that the embedded broker serves TLS with; nil without TLS. changed
// is called when the user's own certificate has been replaced.
func brokerCertificate(c *config.Config, changed func(error)) (*listener.Certificate, error) {
	t := &c.Broker.TLS
	switch {
	case !t.Enabled:
		return nil, nil
	case t.CertFile != "":
		return listener.LoadCertificate(t.CertFile, t.KeyFile, changed)
	}
	return selfMade(c, "broker.tls", t.Directory)
}

// certificateChanged logs that the files of a certificate have been replaced.
func (p *Process) certificateChanged(err error) {
	if err != nil {
		p.log.Warn("the new certificate is invalid; the previous one is still served", zap.Error(err))
		return
	}
	p.log.Info("certificate reloaded")
}

// logNotApplied says what a client will miss in Azure. The names are in the message, since equal
// messages are sampled.
func (p *Process) logNotApplied(u httpapi.Unapplied) {
	p.log.Warn(fmt.Sprintf("%s of %.260s is not applied: in the request it stands behind %s; Azure Service Bus keeps and shows it, and does not apply it either",
		u.Element, u.Path, u.Behind), zap.String("client", u.Client))
}

// startBroker serves the embedded broker on all its endpoints.
func (p *Process) startBroker(endpoints []net.Listener) error {
	cfg, own := embeddedBroker(p.cfg, p.role, p.log)
	cert, err := brokerCertificate(p.cfg, p.certificateChanged)
	if err != nil {
		return &config.Error{Err: fmt.Errorf("the embedded broker has no certificate: %w", err)}
	}
	b, err := broker.New(cfg)
	if err != nil {
		return &config.Error{Err: fmt.Errorf("the embedded broker cannot be made: %w", err)}
	}
	p.broker, p.brokerKey, p.certificate = b, own, cert
	for _, ln := range endpoints {
		p.brokerAddrs = append(p.brokerAddrs, ln.Addr().String())
	}
	for _, w := range p.cfg.EmulatorWarnings() {
		p.log.Warn("a property of the emulator's configuration has no effect",
			zap.String("file", p.cfg.Broker.EmulatorConfig), zap.String("what", w))
	}
	web := httpapi.Config{Broker: b, Version: version.String(), ErrorLog: cfg.ErrorLog, NotApplied: p.logNotApplied}
	if cert != nil {
		web.TLS = cert.TLS
	}
	server := httpapi.New(web)
	var stopping atomic.Bool
	p.life.Run("embedded broker", func() error {
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
		if n := b.Held(p.cfg.AllMonitorQueues().Has); n > 0 {
			p.log.Warn("messages of the embedded broker are lost, as it keeps them in memory", zap.Int("messages", n))
		}
		return errors.Join(err, b.Shutdown(ctx))
	})
	return nil
}

// OwnConnectionString is how proxy and monitor reach the embedded broker.
func (p *Process) OwnConnectionString() string {
	return config.ConnectionString(p.brokerAddrs[0], cmp.Or(p.brokerKey.KeyName, config.AnyKeyName), cmp.Or(p.brokerKey.PrimaryKey, config.AnyKey))
}

// shownConnectionString is what a user pastes into an app. Keys are not shown.
func (p *Process) shownConnectionString() string {
	name, key := p.shownKey()
	return config.ConnectionString(reachable(p.brokerAddrs[0]), name, key)
}

// shownSecureConnectionString is the same for clients that use TLS.
func (p *Process) shownSecureConnectionString() string {
	name, key := p.shownKey()
	return secureConnectionString(p.brokerAddrs[0], p.certificate.Names, name, key)
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

func (p *Process) shownKey() (name, key string) {
	if keys := p.cfg.Broker.Keys; len(keys) > 0 {
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
