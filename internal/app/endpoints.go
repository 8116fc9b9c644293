// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"overdue/internal/amqp/relay"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/lifecycle"
	"overdue/internal/listener"
	"overdue/internal/servicebus/link"
	"overdue/proxy"
)

// endpointCertificate is the certificate that the endpoints serve TLS with; nil without TLS.
func endpointCertificate(c *config.Config, changed func(error)) (*listener.Certificate, error) {
	if !c.ServesTLS() {
		return nil, nil
	}
	t := &c.Listen.TLS
	if t.CertFile != "" {
		return listener.LoadCertificate(t.CertFile, t.KeyFile, changed)
	}
	return selfMade(c, "listen.tls", t.Directory)
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
		add(c.Broker.TLS.Directory, c.Broker.TLS.Hosts, c.BrokerAddresses())
	}
	if c.ServesTLS() {
		add(c.Listen.TLS.Directory, c.Listen.TLS.Hosts, c.Endpoints())
	}
	cert, err := listener.SelfMade(directory, names...)
	if err != nil {
		return nil, fmt.Errorf("%w; set %s.directory to a folder that can be written, or give %s.certFile and %s.keyFile", err, section, section, section)
	}
	return cert, nil
}

// newProxy gives the proxy its endpoints.
func (p *Process) newProxy(cfg proxy.Config, ns *connect.Namespace, tokens link.TokenSource) (*proxy.Proxy, error) {
	cert, err := endpointCertificate(p.cfg, p.certificateChanged)
	if err != nil {
		return nil, &config.Error{Err: fmt.Errorf("the endpoints have no certificate: %w", err)}
	}
	if p.endpointCertificate = cert; cert != nil {
		cfg.TLS = cert.TLS
	}
	cfg.Keys, cfg.ClientTokens = p.cfg.EndpointKeys(), p.cfg.PassesCredentials()
	cfg.AMQP = relayTo(ns)
	if p.cfg.Log.Frames {
		cfg.AMQP.Trace = traceFrames(p.log)
	}
	cfg.AMQP.MaxConns = int(p.cfg.Listen.MaxConnections)
	cfg.AMQP.MaxMessageSize = uint64(cfg.MaxBodySize)
	cfg.Upstream = proxy.Upstream{Dial: ns.OpenHTTP, Host: ns.Host}
	if !cfg.ClientTokens {
		cfg.Upstream.Authorize = func(ctx context.Context, address string) (string, error) {
			t, err := tokens.Token(ctx, address)
			return t.Authorization(), err
		}
		cfg.AMQP.Tokens = func(ctx context.Context, audience string) (relay.Token, error) {
			t, err := tokens.Token(ctx, audience)
			return relay.Token{Text: t.Value, Type: t.Type, Expires: t.Expires}, err
		}
	}
	px, err := proxy.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the proxy: %w", err)
	}
	return px, nil
}

// relayTo is where the AMQP endpoint leads.
func relayTo(ns *connect.Namespace) relay.Config {
	host := ns.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return relay.Config{Dial: ns.Open, Hostname: host}
}

// openEndpoints serves the listeners, one for each of config.endpoints.
func (p *Process) openEndpoints(px *proxy.Proxy, listeners []net.Listener) {
	p.life.Links("proxy", px.Close)
	for _, ln := range listeners {
		p.endpointAddrs = append(p.endpointAddrs, ln.Addr().String())
	}
	endpoints := p.cfg.Endpoints()
	p.life.Delays = lifecycle.Delays{Min: p.cfg.MinSigtermDelay, Max: p.cfg.MaxSigtermDelay, Apps: px}
	registerConnections(p.registry, px)
	closed := make(chan struct{})
	p.life.Run("endpoints", func() error {
		var all errgroup.Group
		for i, ln := range listeners {
			serve := px.Serve
			if endpoints[i].TLSOnly() {
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

// AMQPAddr is where the first endpoint listens, "" if there is none.
func (p *Process) AMQPAddr() string { return p.endpointAddr(0) }

// RestAddr is likewise that of listen.http.
func (p *Process) RestAddr() string { return p.endpointAddr(1) }

func (p *Process) endpointAddr(i int) string {
	if i >= len(p.endpointAddrs) {
		return ""
	}
	return p.endpointAddrs[i]
}

// rowsOfEndpoints says what listens where.
func (p *Process) rowsOfEndpoints(row func(what, where, note string)) {
	notes := [...]string{"for the Service Bus SDKs; " + p.monitored(), "POST /{queue}/messages; " + p.monitored(), "both, over TLS"}
	for i, addr := range p.endpointAddrs {
		d := p.cfg.Endpoints()[i]
		what, scheme, note := "AMQP endpoint", "amqp", notes[i]
		switch d.Key {
		case "listen.http":
			what, scheme = "REST endpoint", "http"
		case "listen.amqps":
			what = "TLS endpoint"
		}
		if d.TLSOnly() {
			scheme += "s"
		}
		row(what, scheme+"://"+addr, note)
	}
}

// bannerOfEndpoints prints the connection strings to paste into an app. Keys are not shown.
func (p *Process) bannerOfEndpoints(b *strings.Builder) {
	name, key := config.AnyKeyName, config.AnyKey
	if keys := p.cfg.Listen.Keys; len(keys) > 0 {
		name, key = keys[0].Name, "<the key>"
	}
	endpoints := p.cfg.Endpoints()
	secure := slices.IndexFunc(endpoints, func(a config.Address) bool { return a.Key == "listen.amqps" })
	if secure < 0 {
		secure = 0
	}
	if p.cfg.PassesCredentials() {
		fmt.Fprintf(b, "\nApps keep the connection string of the namespace, and come here by the custom endpoint address of their SDK")
		if p.endpointCertificate != nil {
			fmt.Fprintf(b, ":\n  %s\n", "sb://"+named(p.endpointAddrs[secure], p.endpointCertificate.Names))
		} else {
			fmt.Fprintf(b, ", for which the endpoints need TLS: see listen.amqps.\n")
		}
		b.WriteString(trust(p.endpointCertificate))
		return
	}
	what := "Connection string of the AMQP endpoint, to paste into an app"
	if !endpoints[0].TLSOnly() {
		fmt.Fprintf(b, "\n%s:\n%s\n", what, config.ConnectionString(reachable(p.endpointAddrs[0]), name, key))
		what = "and over TLS"
	} else {
		b.WriteByte('\n')
	}
	if p.endpointCertificate != nil {
		fmt.Fprintf(b, "%s:\n%s\n", what, secureConnectionString(p.endpointAddrs[secure], p.endpointCertificate.Names, name, key))
	}
	b.WriteString(trust(p.endpointCertificate))
}
