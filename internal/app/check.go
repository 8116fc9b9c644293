// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"errors"
	"fmt"

	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/connect"
	"overdue/internal/traces"
)

// Check checks what a start would find wrong in parts that it makes: sinks, certificates, the embedded broker.
func Check(c *config.Config, r config.Role) error {
	errs := []error{traces.Check()}
	for i := range c.Alerts {
		a := &c.Alerts[i]
		var err error
		if a.ServiceBus == nil { // it takes a client, and says nothing before it is used
			_, _, err = NewSink(a, nil)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", sinkAt(c, a.Key, err), err))
		}
	}
	pair := func(key, cert, private string) {
		if cert == "" {
			return
		}
		if _, err := tls.LoadX509KeyPair(cert, private); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.At(key), err))
		}
	}
	if r.Proxy {
		pair("listen.tls.certFile", c.Listen.TLS.CertFile, c.Listen.TLS.KeyFile)
	}
	if !c.Embedded() {
		if ns, err := connect.Parse(c.Namespace); err == nil { // it was parsed before
			_, err = connect.AdminAPI(c, ns, nil)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	pair("broker.tls.certFile", c.Broker.TLS.CertFile, c.Broker.TLS.KeyFile)
	cfg, _ := brokerConfig(c, r)
	b, err := broker.New(cfg)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, b.Close())...)
}
