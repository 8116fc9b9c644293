// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"crypto/x509"
	"time"

	"overdue/internal/redisstore"
)

// config holds every setting. Names, defaults, bounds and help are in the table of
// settings.go; the tags here are checked against it by a test.
type config struct {
	Namespace          string          `koanf:"namespace"`
	NamespaceFile      string          `koanf:"namespaceFile"`
	AdminURL           string          `koanf:"namespaceAdmin"`
	Companions         string          `koanf:"companions"`
	CompanionStore     string          `koanf:"companionStore"`
	MonitorQueue       string          `koanf:"monitorQueue"`
	OnMonitorDown      string          `koanf:"onMonitorDown"`
	Journal            journalConfig   `koanf:"journal"`
	Listen             listenConfig    `koanf:"listen"`
	Broker             brokerConfig    `koanf:"broker"`
	Monitor            monitorConfig   `koanf:"monitor"`
	Alerts             []alertConfig   `koanf:"alerts"`
	Canary             canaryConfig    `koanf:"canary"`
	Heartbeat          heartbeatConfig `koanf:"heartbeat"`
	Proxy              proxyConfig     `koanf:"proxy"`
	Log                logConfig       `koanf:"log"`
	Redis              string          `koanf:"redis"`
	RedisFile          string          `koanf:"redisFile"`
	RedisAuthorityFile string          `koanf:"redisAuthorityFile"`
	ShutdownTimeout    time.Duration   `koanf:"shutdownTimeout"`
	MinSigtermDelay    time.Duration   `koanf:"minSigtermDelay"`
	MaxSigtermDelay    time.Duration   `koanf:"maxSigtermDelay"`

	redisAddress redisstore.Address // of Redis
	redisRoots   *x509.CertPool     // of RedisAuthorityFile; nil = those of the machine

	// raw is what the settings were read into, by key, and origin says where each value
	// that is not a default came from. Both are for /configz.
	raw    map[string]any
	origin map[string]string
	file   string // that --config names; "" = none
}

// monitorConfig lists the monitored queues and topics; an empty list means all.
type monitorConfig struct {
	Deadline time.Duration  `koanf:"deadline"` // of what states none; each entity has its own, see normalise
	Entities []entityConfig `koanf:"entities"`
}

// entityConfig is one monitored queue or topic. The fields from DefaultMessageTimeToLive on say how it
// was made, for a namespace that does not tell us.
type entityConfig struct {
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
	Subscriptions                    []entitySubscription `koanf:"subscriptions"`
	ForwardMissedTo                  string               `koanf:"forwardMissedTo"`
	ReportToSender                   bool                 `koanf:"reportToSender"`
}

// entitySubscription is a subscription of a monitored topic.
type entitySubscription struct {
	Name                             string        `koanf:"name"`
	DefaultMessageTimeToLive         time.Duration `koanf:"defaultMessageTimeToLive"`
	RequiresSession                  bool          `koanf:"requiresSession"`
	DeadLetteringOnMessageExpiration bool          `koanf:"deadLetteringOnMessageExpiration"`
}

// name is what the queue or topic is called.
func (e *entityConfig) name() string { return cmp.Or(e.Queue, e.Topic) }

// proxyConfig bounds what apps can make the proxy hold.
type proxyConfig struct {
	Credentials string `koanf:"credentials"`
	MaxInFlight int64  `koanf:"maxInFlight"`
	MaxBodySize int64  `koanf:"maxBodySize"`
}

// journalConfig says where companions are kept that the monitor queue does not take.
type journalConfig struct {
	Directory string `koanf:"directory"`
	MaxSize   int64  `koanf:"maxSize"`
}

// logConfig says what is logged and how it looks.
type logConfig struct {
	Level  string `koanf:"level"`
	Format string `koanf:"format"`
	Frames bool   `koanf:"frames"`
}

// withNamespace is c with another namespace. Its own addresses count as not given: another process listens there.
func (c *config) withNamespace(text string) *config {
	other := *c
	other.origin, other.Namespace = nil, text
	return &other
}

// embedded reports whether the broker runs in this process instead of in a namespace.
func (c *config) embedded() bool { return c.Namespace == "" }
