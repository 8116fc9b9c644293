// SPDX-License-Identifier: Apache-2.0

// Package config is the configuration of a process. One table of settings (settings*.go) is the source of
// flags, environment variables, checks, the JSON schema and docs/reference/configuration.md.
//
// Load reads defaults, file, environment and flags, the strongest last, and checks whatever can be checked
// without the network. Every error names the key and where it was given. A Config that Load returns is right
// for some role; CheckRole says whether it is right for one in particular. A running process compares it with a
// later one (Differing) and adopts what it can (WithLive).
package config

import (
	"cmp"
	"crypto/x509"
	"time"

	"overdue/internal/redisstore"
)

// Config holds every setting. Names, defaults, bounds and help are in the table of
// settings.go; the tags here are checked against it by a test.
type Config struct {
	Namespace          string        `koanf:"namespace"`
	NamespaceFile      string        `koanf:"namespaceFile"`
	AdminURL           string        `koanf:"namespaceAdmin"`
	Companions         string        `koanf:"companions"`
	CompanionStore     string        `koanf:"companionStore"`
	MonitorQueue       string        `koanf:"monitorQueue"`
	OnMonitorDown      string        `koanf:"onMonitorDown"`
	Journal            Journal       `koanf:"journal"`
	Listen             Listen        `koanf:"listen"`
	Broker             Broker        `koanf:"broker"`
	Monitor            Monitor       `koanf:"monitor"`
	Alerts             []Alert       `koanf:"alerts"`
	Canary             Canary        `koanf:"canary"`
	Heartbeat          Heartbeat     `koanf:"heartbeat"`
	Proxy              Proxy         `koanf:"proxy"`
	Log                Log           `koanf:"log"`
	Redis              string        `koanf:"redis"`
	RedisFile          string        `koanf:"redisFile"`
	RedisAuthorityFile string        `koanf:"redisAuthorityFile"`
	ShutdownTimeout    time.Duration `koanf:"shutdownTimeout"`
	MinSigtermDelay    time.Duration `koanf:"minSigtermDelay"`
	MaxSigtermDelay    time.Duration `koanf:"maxSigtermDelay"`

	RedisAddress redisstore.Address // of Redis
	RedisRoots   *x509.CertPool     // of RedisAuthorityFile; nil = those of the machine

	// raw is what the settings were read into, by key, and origin says where each value
	// that is not a default came from. Both are for /configz.
	raw    map[string]any
	origin map[string]string
	file   string // that --config names; "" = none
}

// Monitor lists the monitored queues and topics; an empty list means all.
type Monitor struct {
	Deadline time.Duration `koanf:"deadline"` // of what states none; each entity has its own, see normalise
	Entities []Entity      `koanf:"entities"`
}

// Entity is one monitored queue or topic. The fields from DefaultMessageTimeToLive on say how it
// was made, for a namespace that does not tell us.
type Entity struct {
	Queue                            string               `koanf:"queue"`
	Topic                            string               `koanf:"topic"`
	Deadline                         time.Duration        `koanf:"deadline"`
	CompleteWithin                   time.Duration        `koanf:"completeWithin"`
	WarnBefore                       []time.Duration      `koanf:"warnBefore"`
	Adopt                            bool                 `koanf:"adopt"`
	AdoptEvery                       time.Duration        `koanf:"adoptEvery"`
	Expire                           string               `koanf:"expire"`
	StampTTL                         bool                 `koanf:"stampTTL"`
	DefaultMessageTimeToLive         time.Duration        `koanf:"defaultMessageTimeToLive"`
	RequiresSession                  bool                 `koanf:"requiresSession"`
	DeadLetteringOnMessageExpiration bool                 `koanf:"deadLetteringOnMessageExpiration"`
	Subscriptions                    []EntitySubscription `koanf:"subscriptions"`
	ForwardMissedTo                  string               `koanf:"forwardMissedTo"`
	ReportToSender                   bool                 `koanf:"reportToSender"`
}

// EntitySubscription is a subscription of a monitored topic.
type EntitySubscription struct {
	Name                             string        `koanf:"name"`
	DefaultMessageTimeToLive         time.Duration `koanf:"defaultMessageTimeToLive"`
	RequiresSession                  bool          `koanf:"requiresSession"`
	DeadLetteringOnMessageExpiration bool          `koanf:"deadLetteringOnMessageExpiration"`
}

// Name is what the queue or topic is called.
func (e *Entity) Name() string { return cmp.Or(e.Queue, e.Topic) }

// Proxy bounds what apps can make the proxy hold.
type Proxy struct {
	Credentials string `koanf:"credentials"`
	MaxInFlight int64  `koanf:"maxInFlight"`
	MaxBodySize int64  `koanf:"maxBodySize"`
}

// Journal says where companions are kept that the monitor queue does not take.
type Journal struct {
	Directory string `koanf:"directory"`
	MaxSize   int64  `koanf:"maxSize"`
}

// Log says what is logged and how it looks.
type Log struct {
	Level  string `koanf:"level"`
	Format string `koanf:"format"`
	Frames bool   `koanf:"frames"`
}

// WithNamespace is c with another namespace. Its own addresses count as not given: another process listens there.
func (c *Config) WithNamespace(text string) *Config {
	other := *c
	other.origin, other.Namespace = nil, text
	return &other
}

// Embedded reports whether the broker runs in this process instead of in a namespace.
func (c *Config) Embedded() bool { return c.Namespace == "" }
