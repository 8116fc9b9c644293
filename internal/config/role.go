// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"
)

// A Role is which components a process has.
type Role struct {
	Name    string
	Proxy   bool
	Monitor bool
	Broker  bool // the embedded broker when no namespace is configured
}

// The roles, each the name of a command.
var (
	RoleRun     = Role{Name: "run", Proxy: true, Monitor: true, Broker: true}
	RoleProxy   = Role{Name: "proxy", Proxy: true}
	RoleMonitor = Role{Name: "monitor", Monitor: true}
	RoleBroker  = Role{Name: "broker", Broker: true}
)

// Roles are all of them, the one with every component first.
var Roles = []Role{RoleRun, RoleProxy, RoleMonitor, RoleBroker}

// Roles are those that the configuration could serve: a broker is a namespace itself, and proxy and monitor alone
// need one.
func (c *Config) Roles() []Role {
	if c.Embedded() {
		return []Role{RoleRun, RoleBroker}
	}
	return []Role{RoleRun, RoleProxy, RoleMonitor}
}

// Wants reports whether a setting has a meaning for the role.
func (r *Role) Wants(path string) bool {
	switch {
	case strings.HasPrefix(path, "broker."):
		return r.Broker
	case path == "onMonitorDown" || strings.HasPrefix(path, "journal.") || path == "listen.amqp" || path == "listen.http" || strings.HasSuffix(path, "SigtermDelay") || strings.HasPrefix(path, "proxy."):
		return r.Proxy
	case strings.HasPrefix(path, "history."):
		return r.Proxy || r.Monitor
	case path == "namespace":
		return r.Proxy || r.Monitor
	}
	return true
}

// CheckRole checks what depends on the role: the namespace, and what it listens on. The files of an endpoint
// need not be there where there is none.
func (c *Config) CheckRole(r Role) error {
	switch {
	case !r.Broker && c.Embedded():
		return fmt.Errorf("%s needs a namespace; set --namespace or %s, or use `overdue run`, which brings a broker of its own",
			r.Name, SettingAt("namespace").Env())
	case r.Proxy && r.Monitor && c.Embedded() && !c.Broker.Enabled:
		return fmt.Errorf("%s is false, and no namespace is given; set %s or %s, or set broker.enabled (%s) to true for the embedded broker, whose messages are lost at stop without broker.directory",
			c.At("broker.enabled"), SettingAt("namespace").Env(), SettingAt("namespaceFile").Env(), SettingAt("broker.enabled").Env())
	case !r.Proxy && !r.Monitor && !c.Embedded():
		return fmt.Errorf("%s is given, but `overdue broker` is a namespace itself; remove it, or use `overdue run`", c.At("namespace"))
	case c.Broker.Directory != "" && !c.Embedded():
		return fmt.Errorf("%s is for the embedded broker, but %s is given, which keeps its own messages; remove one of the two", c.At("broker.directory"), c.namespaceAt())
	case r.Proxy && c.OnMonitorDown == OnMonitorDownPass && c.Journal.Directory == "":
		return fmt.Errorf("%s is %s, which needs journal.directory: a directory on a disk, for the companions that the monitor queue does not take", c.At("onMonitorDown"), OnMonitorDownPass)
	}
	if r.Proxy || r.Monitor {
		if err := c.Broker.checkMonitorQueue(c); err != nil {
			return err
		}
	}
	if r.Proxy {
		if err := errors.Join(c.Listen.check(c), c.Listen.readKeys(c)); err != nil {
			return err
		}
	}
	return c.checkAddresses(r)
}
