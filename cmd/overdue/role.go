// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
)

// A role is which components a process has.
type role struct {
	name    string
	proxy   bool
	monitor bool
	broker  bool // the embedded broker when no namespace is configured
}

// The roles, each the name of a command.
var (
	roleRun     = role{name: "run", proxy: true, monitor: true, broker: true}
	roleProxy   = role{name: "proxy", proxy: true}
	roleMonitor = role{name: "monitor", monitor: true}
	roleBroker  = role{name: "broker", broker: true}
)

// roles are all of them, the one with every component first.
var roles = []role{roleRun, roleProxy, roleMonitor, roleBroker}

// wants reports whether a setting has a meaning for the role.
func (r *role) wants(path string) bool {
	switch {
	case strings.HasPrefix(path, "broker."):
		return r.broker
	case path == "onMonitorDown" || strings.HasPrefix(path, "journal.") || path == "listen.amqp" || path == "listen.http" || strings.HasSuffix(path, "SigtermDelay") || strings.HasPrefix(path, "proxy."):
		return r.proxy
	case path == "namespace":
		return r.proxy || r.monitor
	}
	return true
}

// fit checks what depends on the role: the namespace, and what it listens on. The files of a door
// need not be there where there is none.
func (c *config) fit(r role) error {
	switch {
	case !r.broker && c.embedded():
		return fmt.Errorf("%s needs a namespace; set --namespace or %s, or use `overdue run`, which brings a broker of its own",
			r.name, settingOf("namespace").env())
	case !r.proxy && !r.monitor && !c.embedded():
		return fmt.Errorf("%s is given, but `overdue broker` is a namespace itself; remove it, or use `overdue run`", c.at("namespace"))
	case r.proxy && c.OnMonitorDown == passOn && c.Journal.Directory == "":
		return fmt.Errorf("%s is %s, which needs journal.directory: a directory on a disk, for the companions that the monitor queue does not take", c.at("onMonitorDown"), passOn)
	}
	if r.proxy || r.monitor {
		if err := c.checkOwnQueue(); err != nil {
			return err
		}
	}
	if r.proxy {
		if err := errors.Join(c.checkListen(), c.readDoorKeys()); err != nil {
			return err
		}
	}
	return c.checkAddresses(r)
}
