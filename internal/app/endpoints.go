// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"overdue/internal/amqp/relay"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/lifecycle"
	"overdue/internal/listener"
	"overdue/proxy"
)

// certificate is what a listener serves TLS with: the user's own, read again when its files have
// been replaced, or else one that we make. section is where its settings are. Nobody connects with
// one that has ended, and nothing else in the process notices.
func (e *environment) certificate(section, certFile, keyFile, directory string) (c *listener.Certificate, err error) {
	if c, err = e.loadCertificate(section, certFile, keyFile, directory); err == nil {
		e.addOutbound(section, func(context.Context) error {
			if end := c.End(); time.Now().After(end) {
				return fmt.Errorf("apps refuse its certificate, which ended at %s: renew it, or look at the clock of this machine", end.UTC().Format(time.RFC3339))
			}
			return nil
		})
	}
	return c, err
}

func (e *environment) loadCertificate(section, certFile, keyFile, directory string) (*listener.Certificate, error) {
	if certFile == "" {
		return selfMade(e.cfg, section, directory)
	}
	return listener.LoadCertificate(certFile, keyFile, func(err error) {
		if err != nil {
			e.log.Warn("the new certificate is invalid; the previous one is still served", zap.Error(err))
			return
		}
		e.log.Info("certificate reloaded")
	})
}

// selfMade is the certificate of our own that is kept in a folder. That of the embedded broker
// and that of the endpoints are one where they are kept in one: it has the names of both. section is where the settings of who
// asks are.
func selfMade(c *config.Config, section, directory string) (*listener.Certificate, error) {
	var names []string
	add := func(dir string, hosts []string, addresses []config.Address) {
		if dir != directory {
			return
		}
		names = append(names, hosts...)
		for _, a := range addresses {
			if host, err := config.SplitAddress(a.Addr); err == nil && net.ParseIP(host) != nil && !net.ParseIP(host).IsUnspecified() {
				names = append(names, host)
			}
		}
	}
	if c.Broker.TLS.Enabled && c.Embedded() {
		add(c.Broker.TLS.Directory, c.Broker.TLS.Hosts, c.Broker.Addresses())
	}
	if c.Listen.ServesTLS() {
		add(c.Listen.TLS.Directory, c.Listen.TLS.Hosts, c.Listen.Endpoints())
	}
	cert, err := listener.SelfMade(directory, names...)
	if err != nil {
		return nil, fmt.Errorf("%w; set %s.directory to a folder that can be written, or give %s.certFile and %s.keyFile", err, section, section, section)
	}
	return cert, nil
}

// endpoints are where apps connect to the proxy.
type endpoints struct {
	cfg         *config.Config
	proxy       *proxy.Proxy          // nil: there are none
	certificate *listener.Certificate // nil without TLS
	addrs       []string              // of config.endpoints, as bound
}

// newEndpoints makes the proxy with its endpoints, which serve opens.
func newEndpoints(e *environment, cfg proxy.Config, ns *connection) (_ endpoints, err error) {
	d := endpoints{cfg: e.cfg}
	if t := &e.cfg.Listen.TLS; e.cfg.Listen.ServesTLS() {
		if d.certificate, err = e.certificate("listen.tls", t.CertFile, t.KeyFile, t.Directory); err != nil {
			return d, &config.Error{Err: fmt.Errorf("the endpoints have no certificate: %w", err)}
		}
		cfg.TLS = d.certificate.TLS
	}
	cfg.Keys, cfg.ClientTokens = e.cfg.Listen.SASKeys(), e.cfg.Proxy.PassesCredentials()
	cfg.AMQP = relayTo(ns.Namespace)
	if e.cfg.Log.Frames {
		cfg.AMQP.Trace = traceFrames(e.log)
	}
	cfg.AMQP.MaxConns = int(e.cfg.Listen.MaxConnections)
	cfg.AMQP.MaxMessageSize = uint64(cfg.MaxBodySize)
	cfg.Upstream = proxy.Upstream{Dial: ns.OpenHTTP, Host: ns.Host}
	if !cfg.ClientTokens {
		cfg.Upstream.Authorize = func(ctx context.Context, address string) (string, error) {
			t, err := ns.tokens.Token(ctx, address)
			return t.Authorization(), err
		}
		cfg.AMQP.Tokens = func(ctx context.Context, audience string) (relay.Token, error) {
			t, err := ns.tokens.Token(ctx, audience)
			return relay.Token{Text: t.Value, Type: t.Type, Expires: t.Expires}, err
		}
	}
	if d.proxy, err = proxy.New(cfg); err != nil {
		return d, fmt.Errorf("make the proxy: %w", err)
	}
	return d, nil
}

// relayTo is where the AMQP endpoint leads.
func relayTo(ns *connect.Namespace) relay.Config {
	host := ns.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return relay.Config{Dial: ns.Open, Hostname: host}
}

// serve serves the listeners, one for each of config.endpoints.
func (d *endpoints) serve(e *environment, listeners []net.Listener) {
	px, settings := d.proxy, d.cfg.Listen.Endpoints()
	d.addrs = addresses(listeners)
	e.life.Links("proxy", px.Close)
	e.life.Delays = lifecycle.Delays{Min: d.cfg.MinSigtermDelay, Max: d.cfg.MaxSigtermDelay, Apps: px}
	registerConnections(e.registry, px)
	closed := make(chan struct{})
	e.life.Run("endpoints", func() error {
		var all errgroup.Group
		for i, ln := range listeners {
			serve := px.Serve
			if settings[i].TLSOnly() {
				serve = px.ServeTLS
			}
			all.Go(func() error { return serve(ln) })
		}
		if err := all.Wait(); err != nil {
			return err
		}
		<-closed // a drain closes the listeners before it is the turn of this component
		return nil
	}, func(ctx context.Context) error {
		close(closed)
		// Connections of AMQP that are there end with the proxy, which lets what was sent be
		// settled first.
		return px.Shutdown(ctx)
	})
}

// addr is where one of config.endpoints listens, "" if there is none.
func (d *endpoints) addr(i int) string {
	if i >= len(d.addrs) {
		return ""
	}
	return d.addrs[i]
}

// rows says what listens where.
func (d *endpoints) rows(row func(what, where, note string)) {
	notes := [...]string{"for the Service Bus SDKs; " + monitored(d.cfg), "POST /{queue}/messages; " + monitored(d.cfg), "both, over TLS"}
	for i, addr := range d.addrs {
		s := d.cfg.Listen.Endpoints()[i]
		what, scheme, note := "AMQP endpoint", "amqp", notes[i]
		switch s.Key {
		case "listen.http":
			what, scheme = "REST endpoint", "http"
		case "listen.amqps":
			what = "TLS endpoint"
		}
		if s.TLSOnly() {
			scheme += "s"
		}
		row(what, scheme+"://"+addr, note)
	}
}

// banner prints the connection strings to paste into an app. Keys are not shown.
func (d *endpoints) banner(b *strings.Builder) {
	name, key := config.AnyKeyName, config.AnyKey
	if keys := d.cfg.Listen.Keys; len(keys) > 0 {
		name, key = keys[0].Name, "<the key>"
	}
	endpoints := d.cfg.Listen.Endpoints()
	secure := slices.IndexFunc(endpoints, func(a config.Address) bool { return a.Key == "listen.amqps" })
	if secure < 0 {
		secure = 0
	}
	if d.cfg.Proxy.PassesCredentials() {
		fmt.Fprintf(b, "\nApps keep the connection string of the namespace, or its name and their credential, and come here by the custom endpoint address of their SDK")
		if d.certificate != nil {
			fmt.Fprintf(b, ":\n  %s\n", "sb://"+named(d.addrs[secure], d.certificate.Names))
		} else {
			fmt.Fprintf(b, ", for which the endpoints need TLS: see listen.amqps.\n")
		}
		b.WriteString(trust(d.certificate))
		return
	}
	what := "Connection string of the AMQP endpoint, to paste into an app"
	if !endpoints[0].TLSOnly() {
		fmt.Fprintf(b, "\n%s:\n%s\n", what, config.ConnectionString(reachable(d.addrs[0]), name, key))
		what = "and over TLS"
	} else {
		b.WriteByte('\n')
	}
	if d.certificate != nil {
		fmt.Fprintf(b, "%s:\n%s\n", what, secureConnectionString(d.addrs[secure], d.certificate.Names, name, key))
	}
	b.WriteString(trust(d.certificate))
}

// deliveryTag is the delivery tag of a frame, which Service Bus makes of the lock token.
var deliveryTag = regexp.MustCompile(` tag=[^ ]*`)

// traceFrames logs the frames of the AMQP endpoint without their tags, for relay.Config.Trace.
// While the level is above debug a frame costs the making of its line and no more.
func traceFrames(log *zap.Logger) func(side, dir, line string) {
	return func(side, dir, line string) {
		if entry := log.Check(zapcore.DebugLevel, "frame"); entry != nil {
			entry.Write(zap.String("side", side), zap.String("dir", dir), zap.String("frame", deliveryTag.ReplaceAllString(line, "")))
		}
	}
}
