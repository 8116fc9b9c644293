// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"overdue/internal/servicebus/sas"
)

// The endpoints of the proxy: where they listen, and what one has to show there.

// Listen says where this process listens; port 0 is any free one.
type Listen struct {
	AMQP           string `mapstructure:"amqp"`
	HTTP           string `mapstructure:"http"`
	AMQPS          string `mapstructure:"amqps"`
	Admin          string `mapstructure:"admin"`
	Probes         string `mapstructure:"probes"`
	TLS            TLS    `mapstructure:"tls"`
	Keys           []Key  `mapstructure:"keys"`
	MaxConnections int64  `mapstructure:"maxConnections"`
}

// rights are what the key is good for.
func (k *Key) rights() (r sas.Rights) {
	if k.Manage {
		return sas.All
	}
	if k.Send {
		r |= sas.Send
	}
	if k.Listen {
		r |= sas.Listen
	}
	return r
}

// The values of proxy.credentials say whose credentials the proxy uses at the namespace.
const (
	OwnCredentials    = "own"
	clientCredentials = "client"
)

// PassesCredentials reports whether the namespace judges the clients of the endpoints.
func (p *Proxy) PassesCredentials() bool { return p.Credentials == clientCredentials }

// Endpoints are the addresses of the endpoints, that of listen.amqp first.
func (l *Listen) Endpoints() []Address {
	endpoints := []Address{{"listen.amqp", l.AMQP}, {"listen.http", l.HTTP}}
	if l.AMQPS != "" {
		endpoints = append(endpoints, Address{"listen.amqps", l.AMQPS})
	}
	return endpoints
}

// ServesTLS reports whether the endpoints speak TLS.
func (l *Listen) ServesTLS() bool { return l.TLS.Enabled || l.AMQPS != "" }

// TLSOnly reports whether nothing but TLS is taken at the address: everywhere but on loopback,
// and where the setting says so.
func (a Address) TLSOnly() bool {
	host, err := SplitAddress(a.Addr)
	return err == nil && !OnLoopback(host) || a.Key == "listen.amqps"
}

// check demands TLS of the endpoints that others can reach, and that somebody judges who comes.
func (l *Listen) check(c *Config) error {
	t := &l.TLS
	switch {
	case (t.CertFile == "") != (t.KeyFile == ""):
		return fmt.Errorf("%s and %s belong together; give both, or none for a certificate that Overdue makes itself",
			c.At("listen.tls.certFile"), c.At("listen.tls.keyFile"))
	case t.CertFile != "" && !l.ServesTLS():
		return fmt.Errorf("%s: no endpoint speaks TLS; set listen.tls.enabled or listen.amqps", c.At("listen.tls.certFile"))
	case c.Proxy.PassesCredentials() && len(l.Keys) > 0:
		return fmt.Errorf("%s: with proxy.credentials: client the namespace judges the keys of apps; remove listen.keys, or set proxy.credentials: own", c.At("listen.keys"))
	}
	for _, d := range l.Endpoints() {
		host, err := SplitAddress(d.Addr)
		if err != nil {
			return fmt.Errorf("%s: %w", c.At(d.Key), err)
		}
		switch judged := len(l.Keys) > 0 || c.Proxy.PassesCredentials(); {
		case OnLoopback(host):
		case !l.ServesTLS() || !judged:
			return fmt.Errorf("%s: %s is not on loopback, where others can reach it; set listen.tls.enabled and listen.keys (or proxy.credentials: client), "+
				"or listen on 127.0.0.1, [::1] or localhost", c.At(d.Key), d.Addr)
		case c.Proxy.PassesCredentials() && c.Embedded() && len(c.Broker.Keys) == 0:
			return fmt.Errorf("%s: %s is not on loopback, and the embedded broker, which is to judge who comes, has no keys; set broker.keys, or listen.keys and proxy.credentials: own",
				c.At(d.Key), d.Addr)
		}
	}
	return nil
}

// readKeys puts what keyFiles hold in its place, and checks what the keys are for.
func (l *Listen) readKeys(c *Config) error {
	if err := c.readKeys("listen.keys", l.Keys); err != nil {
		return err
	}
	for i := range l.Keys {
		k := &l.Keys[i]
		if k.Entity == "" {
			continue
		}
		at := c.At(fmt.Sprintf("listen.keys[%d].entity", i))
		if err := CheckEntity(k.Entity); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if c.isMonitorQueue(k.Entity) {
			return fmt.Errorf("%s is %q, the monitor queue, which no app sends to or receives from; give the key of another entity", at, k.Entity)
		}
		if k.Manage { // it could have the entity forward to any other
			return fmt.Errorf("%s: %q may manage, which no key of one entity can; set send and listen instead, or leave entity out", at, k.Name)
		}
	}
	return nil
}

// SASKeys are the keys that the endpoints accept.
func (l *Listen) SASKeys() (keys sas.Keys) {
	for _, k := range l.Keys {
		keys = append(keys, sas.Key{Name: k.Name, Value: k.Key, Rights: k.rights(), Entity: k.Entity})
	}
	return keys
}
