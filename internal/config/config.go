// SPDX-License-Identifier: Apache-2.0

// Package config is the configuration of a process. One table of settings (settings.go) is the
// source of flags, environment variables, checks, the JSON schema and
// docs/reference/configuration.md.
//
// Load reads defaults, file, environment and flags, the strongest last, and checks whatever can be checked
// without the network. Every error names the key and where it was given. A Config that Load returns is right
// for some role; CheckRole says whether it is right for one in particular. A running process compares it with a
// later one (Differing) and adopts what it can (WithLive).
package config

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"overdue/internal/redisstore"
)

// Config holds every setting. Names, defaults, bounds and help are in the table of
// settings.go; the tags here are checked against it by a test.
type Config struct {
	Namespace          string        `mapstructure:"namespace"`
	NamespaceFile      string        `mapstructure:"namespaceFile"`
	AdminURL           string        `mapstructure:"namespaceAdmin"`
	Companions         string        `mapstructure:"companions"`
	CompanionStore     string        `mapstructure:"companionStore"`
	MonitorQueue       string        `mapstructure:"monitorQueue"`
	MonitorQueues      int64         `mapstructure:"monitorQueues"`
	OnMonitorDown      string        `mapstructure:"onMonitorDown"`
	Journal            Journal       `mapstructure:"journal"`
	History            History       `mapstructure:"history"`
	Listen             Listen        `mapstructure:"listen"`
	Broker             Broker        `mapstructure:"broker"`
	Monitor            Monitor       `mapstructure:"monitor"`
	Alerts             []Alert       `mapstructure:"alerts"`
	Canary             Canary        `mapstructure:"canary"`
	Heartbeat          Heartbeat     `mapstructure:"heartbeat"`
	Proxy              Proxy         `mapstructure:"proxy"`
	Log                Log           `mapstructure:"log"`
	Redis              string        `mapstructure:"redis"`
	RedisFile          string        `mapstructure:"redisFile"`
	RedisAuthorityFile string        `mapstructure:"redisAuthorityFile"`
	ShutdownTimeout    time.Duration `mapstructure:"shutdownTimeout"`
	MinSigtermDelay    time.Duration `mapstructure:"minSigtermDelay"`
	MaxSigtermDelay    time.Duration `mapstructure:"maxSigtermDelay"`

	Dashboard struct { // who gives the token may change something; "" = nobody may
		Token      string `mapstructure:"token"`
		TokenFile  string `mapstructure:"tokenFile"`
		UserHeader string `mapstructure:"userHeader"`
	} `mapstructure:"dashboard"`

	RedisAddress redisstore.Address // of Redis
	RedisRoots   *x509.CertPool     // of RedisAuthorityFile; nil = those of the machine

	RedisAuthority string // what RedisAuthorityFile holds

	StateDirectory string // that systemd gives a service; "" = none

	Sources Sources // what the fields above were read from
}

// Monitor lists the monitored queues and topics; an empty list means all.
type Monitor struct {
	Deadline time.Duration `mapstructure:"deadline"` // of what states none; each entity has its own, see normalise
	Entities []Entity      `mapstructure:"entities"`
}

// Entity is one monitored queue or topic. The fields from DefaultMessageTimeToLive on say how it
// was made, for a namespace that does not say.
type Entity struct {
	Queue                            string               `mapstructure:"queue"`
	Topic                            string               `mapstructure:"topic"`
	Deadline                         time.Duration        `mapstructure:"deadline"`
	CompleteWithin                   time.Duration        `mapstructure:"completeWithin"`
	WarnBefore                       []time.Duration      `mapstructure:"warnBefore"`
	Adopt                            bool                 `mapstructure:"adopt"`
	AdoptEvery                       time.Duration        `mapstructure:"adoptEvery"`
	Expire                           string               `mapstructure:"expire"`
	StampTTL                         bool                 `mapstructure:"stampTTL"`
	DefaultMessageTimeToLive         time.Duration        `mapstructure:"defaultMessageTimeToLive"`
	RequiresSession                  bool                 `mapstructure:"requiresSession"`
	DeadLetteringOnMessageExpiration bool                 `mapstructure:"deadLetteringOnMessageExpiration"`
	Subscriptions                    []EntitySubscription `mapstructure:"subscriptions"`
	ForwardMissedTo                  string               `mapstructure:"forwardMissedTo"`
	ReportToSender                   bool                 `mapstructure:"reportToSender"`
	Labels                           map[string]string    `mapstructure:"labels"`
}

// EntitySubscription is a subscription of a monitored topic.
type EntitySubscription struct {
	Name                             string        `mapstructure:"name"`
	DefaultMessageTimeToLive         time.Duration `mapstructure:"defaultMessageTimeToLive"`
	RequiresSession                  bool          `mapstructure:"requiresSession"`
	DeadLetteringOnMessageExpiration bool          `mapstructure:"deadLetteringOnMessageExpiration"`
}

// Name is what the queue or topic is called.
func (e *Entity) Name() string { return cmp.Or(e.Queue, e.Topic) }

// MonitoredNames are the monitored queues and topics that the configuration names: those of
// monitor.entities or, where there are none, those of the embedded broker.
func (c *Config) MonitoredNames() (names []string) {
	for i := range c.Monitor.Entities {
		names = append(names, c.Monitor.Entities[i].Name())
	}
	if len(names) > 0 || !c.Embedded() {
		return names
	}
	for _, q := range c.Broker.Queues {
		names = append(names, q.Name)
	}
	for _, t := range c.Broker.Topics {
		names = append(names, t.Name)
	}
	return slices.DeleteFunc(names, c.isMonitorQueue)
}

// Proxy bounds what apps can make the proxy hold.
type Proxy struct {
	Credentials string `mapstructure:"credentials"`
	MaxInFlight int64  `mapstructure:"maxInFlight"`
	MaxBodySize int64  `mapstructure:"maxBodySize"`
}

// Journal says where companions are kept that the monitor queue does not take.
type Journal struct {
	Directory string `mapstructure:"directory"`
	MaxSize   int64  `mapstructure:"maxSize"`
}

// The values of onMonitorDown.
const (
	OnMonitorDownPass   = "pass"
	OnMonitorDownRefuse = "refuse"
)

// History says where and for how long missed deadlines and counts are kept.
type History struct {
	Enabled   bool          `mapstructure:"enabled"`
	Directory string        `mapstructure:"directory"` // "" = where there is a place for state
	Keep      time.Duration `mapstructure:"keep"`
	MaxSize   int64         `mapstructure:"maxSize"`
}

// Log says what is logged, and in which format.
type Log struct {
	Level  string `mapstructure:"level"`
	Format string `mapstructure:"format"`
	Frames bool   `mapstructure:"frames"`
}

// WithNamespace is c with another namespace. Its own addresses count as not given: another process listens there.
func (c *Config) WithNamespace(text string) *Config {
	other := *c
	other.Sources.origin, other.Namespace = nil, text
	return &other
}

// Embedded reports whether the broker runs in this process instead of in a namespace.
func (c *Config) Embedded() bool { return c.Namespace == "" }

// A Role is which components a process has.
type Role struct {
	Name    string
	Proxy   bool
	Monitor bool
	Broker  bool   // the embedded broker when no namespace is configured
	Private bool   // it is the endpoint of one command, and no process of the fleet
	Ready   string // a line that it prints when it serves; "" = none
	// Presets are its own defaults, as the environment has them; nil = those of the table.
	Presets func(getenv func(string) string) []Preset
}

// The roles, each the name of a command.
var (
	RoleRun     = Role{Name: "run", Proxy: true, Monitor: true, Broker: true}
	RoleProxy   = Role{Name: "proxy", Proxy: true}
	RoleMonitor = Role{Name: "monitor", Monitor: true}
	RoleBroker  = Role{Name: "broker", Broker: true}
	// RoleEmulator is RoleBroker in the place of the official emulator, for which others wait by this line.
	RoleEmulator = Role{
		Name:    "emulator",
		Broker:  true,
		Ready:   "Emulator Service is Successfully Up!",
		Presets: emulatorPresets,
	}
)

// Roles are those that people choose from, the one with every component first.
var Roles = []Role{RoleRun, RoleProxy, RoleMonitor, RoleBroker}

// Roles are those that the configuration could serve: a broker is a namespace itself, and proxy and
// monitor alone need one.
func (c *Config) Roles() []Role {
	if c.Embedded() {
		return []Role{RoleRun, RoleBroker}
	}
	return []Role{RoleRun, RoleProxy, RoleMonitor}
}

// proxyPaths begin the paths of the settings that only the proxy has a use for.
var proxyPaths = []string{"onMonitorDown", "journal.", "listen.amqp", "listen.http", "minSigtermDelay", "maxSigtermDelay", "proxy."}

// Wants reports whether a setting has a meaning for the role.
func (r *Role) Wants(path string) bool {
	switch {
	case strings.HasPrefix(path, "broker."):
		return r.Broker
	case slices.ContainsFunc(proxyPaths, func(begin string) bool { return strings.HasPrefix(path, begin) }):
		return r.Proxy
	case strings.HasPrefix(path, "history."):
		return r.Proxy || r.Monitor
	case path == "namespace":
		return r.Proxy || r.Monitor
	}
	return true
}

// CheckRole checks what depends on the role: the namespace, and what it listens on. The files of an
// endpoint need not be there where there is none.
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
	case c.Broker.Insecure && !c.Embedded():
		return fmt.Errorf("%s opens the embedded broker to everyone, but %s is given, and no endpoint that leads to it is opened so; remove one of the two", c.At("broker.insecure"), c.namespaceAt())
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
