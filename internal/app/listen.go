// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"overdue/internal/config"
)

// listeners are what a role listens on, as bound.
type listeners struct {
	admin     net.Listener
	probes    net.Listener   // nil without listen.probes
	endpoints []net.Listener // of config.endpoints
	broker    []net.Listener // of config.BrokerAddresses
	all       []net.Listener
}

func (ls *listeners) close() {
	for _, ln := range ls.all {
		_ = ln.Close() // those that were served are closed already
	}
}

// bind opens every listener before anything runs, so that a port in use is an error at once.
func bind(r config.Role, c *config.Config) (*listeners, error) {
	ls := &listeners{}
	var failure error
	open := func(key, addr string) net.Listener {
		if failure != nil {
			return nil
		}
		ln, err := listen(c, key, addr)
		if err != nil {
			failure = err
			return nil
		}
		ls.all = append(ls.all, ln)
		return ln
	}
	ls.admin = open("listen.admin", c.Listen.Admin)
	if c.Listen.Probes != "" {
		ls.probes = open("listen.probes", c.Listen.Probes)
	}
	if r.Proxy {
		for _, d := range c.Listen.Endpoints() {
			ls.endpoints = append(ls.endpoints, open(d.Key, d.Addr))
		}
	}
	if r.Broker && c.Embedded() {
		for _, d := range c.Broker.Addresses() {
			ls.broker = append(ls.broker, open(d.Key, d.Addr))
		}
	}
	if failure != nil {
		ls.close()
		return nil, failure
	}
	return ls, nil
}

// listen opens the address of a setting. Its errors say how to change it.
func listen(c *config.Config, key, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		return ln, nil
	}
	s := config.SettingAt(key)
	ways := fmt.Sprintf("%s or %s in the configuration file", s.Env(), key)
	if s.Flag {
		ways = "--" + s.FlagName() + ", " + ways
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use by another process; stop that one, or choose another port with %s", c.At(key), addr, ways)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: this user may not listen on %s; choose a port above 1023 with %s", c.At(key), addr, ways)
	}
	return nil, fmt.Errorf("%s: cannot listen on %s: %w; choose another address with %s", c.At(key), addr, err, ways)
}

// addresses are those of listeners, as bound.
func addresses(lns []net.Listener) (all []string) {
	for _, ln := range lns {
		all = append(all, ln.Addr().String())
	}
	return all
}
