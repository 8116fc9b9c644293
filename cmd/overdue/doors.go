// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"overdue/internal/amqp/relay"
	"overdue/internal/listener"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/sas"
	"overdue/proxy"
)

// The doors of the proxy: where they listen, and what one has to show there.

// listenConfig says where this process listens; port 0 is any free one.
type listenConfig struct {
	AMQP           string          `koanf:"amqp"`
	HTTP           string          `koanf:"http"`
	AMQPS          string          `koanf:"amqps"`
	Admin          string          `koanf:"admin"`
	Probes         string          `koanf:"probes"`
	TLS            doorTLSConfig   `koanf:"tls"`
	Keys           []doorKeyConfig `koanf:"keys"`
	MaxConnections int64           `koanf:"maxConnections"`
}

// doorTLSConfig is how the doors serve TLS: with a certificate of our own making, or with the
// files that are named.
type doorTLSConfig struct {
	Enabled   bool     `koanf:"enabled"`
	CertFile  string   `koanf:"certFile"`
	KeyFile   string   `koanf:"keyFile"`
	Hosts     []string `koanf:"hosts"`
	Directory string   `koanf:"directory"`
}

// doorKeyConfig is one key of the doors, what it is good for and where.
type doorKeyConfig struct {
	Name    string `koanf:"name"`
	Key     string `koanf:"key"`
	KeyFile string `koanf:"keyFile"`
	Send    bool   `koanf:"send"`
	Listen  bool   `koanf:"listen"`
	Manage  bool   `koanf:"manage"`
	Entity  string `koanf:"entity"`
}

// rights are what a key is good for.
func rights(send, listen, manage bool) (r sas.Rights) {
	if manage {
		return sas.All
	}
	if send {
		r |= sas.Send
	}
	if listen {
		r |= sas.Listen
	}
	return r
}

const (
	ownCredentials    = "own"
	clientCredentials = "client"
)

// clientTokens reports whether the namespace judges the clients of the doors.
func (c *config) clientTokens() bool { return c.Proxy.Credentials == clientCredentials }

// doors are the addresses of the doors, that of listen.amqp first.
func (c *config) doors() []address {
	doors := []address{{"listen.amqp", c.Listen.AMQP}, {"listen.http", c.Listen.HTTP}}
	if c.Listen.AMQPS != "" {
		doors = append(doors, address{"listen.amqps", c.Listen.AMQPS})
	}
	return doors
}

// doorTLS reports whether the doors speak TLS.
func (c *config) doorTLS() bool { return c.Listen.TLS.Enabled || c.Listen.AMQPS != "" }

// tlsOnly reports whether nothing but TLS is taken at the address: everywhere but on loopback,
// and where the setting says so.
func (a address) tlsOnly() bool {
	host, err := splitAddress(a.addr)
	return err == nil && !onLoopback(host) || a.key == "listen.amqps"
}

// checkListen demands TLS of the doors that others can reach, and that somebody judges who comes.
func (c *config) checkListen() error {
	t := &c.Listen.TLS
	switch {
	case (t.CertFile == "") != (t.KeyFile == ""):
		return fmt.Errorf("%s and %s belong together; give both, or none for a certificate that Overdue makes itself",
			c.at("listen.tls.certFile"), c.at("listen.tls.keyFile"))
	case t.CertFile != "" && !c.doorTLS():
		return fmt.Errorf("%s: no door speaks TLS; set listen.tls.enabled or listen.amqps", c.at("listen.tls.certFile"))
	case c.clientTokens() && len(c.Listen.Keys) > 0:
		return fmt.Errorf("%s: with proxy.credentials: client the namespace judges the keys of apps; remove listen.keys, or set proxy.credentials: own", c.at("listen.keys"))
	}
	for _, d := range c.doors() {
		host, err := splitAddress(d.addr)
		if err != nil {
			return fmt.Errorf("%s: %w", c.at(d.key), err)
		}
		switch judged := len(c.Listen.Keys) > 0 || c.clientTokens(); {
		case onLoopback(host):
		case !c.doorTLS() || !judged:
			return fmt.Errorf("%s: %s is not on loopback, where others can reach it; set listen.tls.enabled and listen.keys (or proxy.credentials: client), "+
				"or listen on 127.0.0.1, [::1] or localhost", c.at(d.key), d.addr)
		case c.clientTokens() && c.embedded() && len(c.Broker.Keys) == 0:
			return fmt.Errorf("%s: %s is not on loopback, and the embedded broker, which is to judge who comes, has no keys; set broker.keys, or listen.keys and proxy.credentials: own",
				c.at(d.key), d.addr)
		}
	}
	return nil
}

// readDoorKeys puts what keyFiles hold in its place.
func (c *config) readDoorKeys() error {
	check := c.newKeyCheck("listen.keys")
	for i := range c.Listen.Keys {
		k := &c.Listen.Keys[i]
		if err := check(i, k.Name, &k.Key, k.KeyFile, rights(k.Send, k.Listen, k.Manage)); err != nil {
			return err
		}
		if k.Entity == "" {
			continue
		}
		at := c.at(fmt.Sprintf("listen.keys[%d].entity", i))
		if err := checkEntity(k.Entity); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if strings.EqualFold(k.Entity, c.MonitorQueue) {
			return fmt.Errorf("%s is %q, the monitor queue, which no app sends to or receives from; give the key of another entity", at, k.Entity)
		}
		if k.Manage { // it could have the entity forward to any other
			return fmt.Errorf("%s: %q may manage, which no key of one entity can; set send and listen instead, or leave entity out", at, k.Name)
		}
	}
	return nil
}

func (c *config) doorKeys() (keys sas.Keys) {
	for _, k := range c.Listen.Keys {
		keys = append(keys, sas.Key{Name: k.Name, Value: k.Key, Rights: rights(k.Send, k.Listen, k.Manage), Entity: k.Entity})
	}
	return keys
}

// endpointCertificate is the certificate that the endpoints serve TLS with; nil without TLS.
func endpointCertificate(c *config, changed func(error)) (*listener.Certificate, error) {
	if !c.doorTLS() {
		return nil, nil
	}
	t := &c.Listen.TLS
	if t.CertFile != "" {
		return listener.LoadCertificate(t.CertFile, t.KeyFile, changed)
	}
	return selfMade(c, "listen.tls", t.Directory)
}

// selfMade is the certificate of our own that is kept in a folder. That of the embedded broker
// and that of the doors are one where they are kept in one: it has the names of both. section is where the settings of who
// asks are.
func selfMade(c *config, section, directory string) (*listener.Certificate, error) {
	var names []string
	add := func(dir string, hosts []string, addresses []address) {
		if dir != directory {
			return
		}
		names = append(names, hosts...)
		for _, a := range addresses {
			if host, err := splitAddress(a.addr); err == nil && net.ParseIP(host) != nil && !net.ParseIP(host).IsUnspecified() {
				names = append(names, host)
			}
		}
	}
	if c.Broker.TLS.Enabled && c.embedded() {
		add(c.Broker.TLS.Directory, c.Broker.TLS.Hosts, c.brokerAddresses())
	}
	if c.doorTLS() {
		add(c.Listen.TLS.Directory, c.Listen.TLS.Hosts, c.doors())
	}
	cert, err := listener.SelfMade(directory, names...)
	if err != nil {
		return nil, fmt.Errorf("%w; set %s.directory to a folder that can be written, or give %s.certFile and %s.keyFile", err, section, section, section)
	}
	return cert, nil
}

// newProxy gives the proxy its doors.
func (p *process) newProxy(cfg proxy.Config, ns *namespace, tokens link.TokenSource) (*proxy.Proxy, error) {
	cert, err := endpointCertificate(p.cfg, p.certificateChanged)
	if err != nil {
		return nil, &configError{fmt.Errorf("the doors have no certificate: %w", err)}
	}
	if p.doorCertificate = cert; cert != nil {
		cfg.TLS = cert.TLS
	}
	cfg.Keys, cfg.ClientTokens = p.cfg.doorKeys(), p.cfg.clientTokens()
	cfg.AMQP = relayTo(ns)
	if p.cfg.Log.Frames {
		cfg.AMQP.Trace = traceFrames(p.log)
	}
	cfg.AMQP.MaxConns = int(p.cfg.Listen.MaxConnections)
	cfg.AMQP.MaxMessageSize = uint64(cfg.MaxBodySize)
	cfg.AMQP.MaxBuffered = max(64<<20, 2*cfg.AMQP.MaxMessageSize)
	cfg.Upstream = proxy.Upstream{Dial: ns.openHTTP, Host: ns.host}
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

// relayTo is where the AMQP door leads.
func relayTo(ns *namespace) relay.Config {
	host := ns.host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return relay.Config{Dial: ns.open, Hostname: host}
}

// openDoors serves the listeners, one for each of config.doors.
func (p *process) openDoors(px *proxy.Proxy, listeners []net.Listener) {
	p.life.links("proxy", px.Close)
	for _, ln := range listeners {
		p.doorAddrs = append(p.doorAddrs, ln.Addr().String())
	}
	doors := p.cfg.doors()
	p.life.farewell = farewell{min: p.cfg.MinSigtermDelay, max: p.cfg.MaxSigtermDelay, apps: px}
	registerConnections(p.registry, px)
	closed := make(chan struct{})
	p.life.room("doors", func() error {
		var all errgroup.Group
		for i, ln := range listeners {
			serve := px.Serve
			if doors[i].tlsOnly() {
				serve = px.ServeTLS
			}
			all.Go(func() error { return serve(ln) })
		}
		if err := all.Wait(); err != nil {
			return err
		}
		<-closed // a farewell closes the listeners before it is the turn of this room
		return nil
	}, func(ctx context.Context) error {
		close(closed)
		// Connections of AMQP that are there end with the proxy, which lets what was sent be
		// settled first.
		return px.Shutdown(ctx)
	})
}

// amqpAddr and restAddr are where the doors listen, "" where there are none.
func (p *process) amqpAddr() string { return p.doorAddr(0) }
func (p *process) restAddr() string { return p.doorAddr(1) }

func (p *process) doorAddr(i int) string {
	if i >= len(p.doorAddrs) {
		return ""
	}
	return p.doorAddrs[i]
}

// rowsOfDoors says what listens where.
func (p *process) rowsOfDoors(row func(what, where, note string)) {
	notes := [...]string{"for the Service Bus SDKs; " + p.monitored(), "POST /{queue}/messages; " + p.monitored(), "both, over TLS"}
	for i, addr := range p.doorAddrs {
		d := p.cfg.doors()[i]
		what, scheme, note := "AMQP door", "amqp", notes[i]
		switch d.key {
		case "listen.http":
			what, scheme = "REST door", "http"
		case "listen.amqps":
			what = "TLS door"
		}
		if d.tlsOnly() {
			scheme += "s"
		}
		row(what, scheme+"://"+addr, note)
	}
}

// bannerOfDoors tells what to paste into an app. Keys are not shown.
func (p *process) bannerOfDoors(b *strings.Builder) {
	name, key := anyKeyName, anyKey
	if keys := p.cfg.Listen.Keys; len(keys) > 0 {
		name, key = keys[0].Name, "<the key>"
	}
	doors := p.cfg.doors()
	secure := slices.IndexFunc(doors, func(a address) bool { return a.key == "listen.amqps" })
	if secure < 0 {
		secure = 0
	}
	if p.cfg.clientTokens() {
		fmt.Fprintf(b, "\nApps keep the connection string of the namespace, and come here by the custom endpoint address of their SDK")
		if p.doorCertificate != nil {
			fmt.Fprintf(b, ":\n  %s\n", "sb://"+named(p.doorAddrs[secure], p.doorCertificate.Names))
		} else {
			fmt.Fprintf(b, ", for which the doors need TLS: see listen.amqps.\n")
		}
		b.WriteString(trust(p.doorCertificate))
		return
	}
	what := "Connection string of the AMQP door, to paste into an app"
	if !doors[0].tlsOnly() {
		fmt.Fprintf(b, "\n%s:\n%s\n", what, connectionString(reachable(p.doorAddrs[0]), name, key))
		what = "and over TLS"
	} else {
		b.WriteByte('\n')
	}
	if p.doorCertificate != nil {
		fmt.Fprintf(b, "%s:\n%s\n", what, secureConnectionString(p.doorAddrs[secure], p.doorCertificate.Names, name, key))
	}
	b.WriteString(trust(p.doorCertificate))
}
