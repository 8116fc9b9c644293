// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// config holds every setting. Names, defaults, bounds and help are in the table of
// settings.go; the tags here are checked against it by a test.
type config struct {
	Namespace       string        `koanf:"namespace"`
	NamespaceFile   string        `koanf:"namespaceFile"`
	MonitorQueue    string        `koanf:"monitorQueue"`
	Listen          listenConfig  `koanf:"listen"`
	Broker          brokerConfig  `koanf:"broker"`
	Monitor         monitorConfig `koanf:"monitor"`
	Alerts          []alertConfig `koanf:"alerts"`
	Proxy           proxyConfig   `koanf:"proxy"`
	Log             logConfig     `koanf:"log"`
	ShutdownTimeout time.Duration `koanf:"shutdownTimeout"`

	// raw is what the settings were read into, by key, and origin says where each value
	// that is not a default came from. Both are for /configz.
	raw    map[string]any
	origin map[string]string
}

// listenConfig says where this process listens, always on loopback; port 0 is any free one.
type listenConfig struct {
	AMQP  string `koanf:"amqp"`
	HTTP  string `koanf:"http"`
	Admin string `koanf:"admin"`
}

// brokerConfig is for the embedded broker. With a namespace it has no effect, so that one
// file can serve both development and production.
type brokerConfig struct {
	Listen         string        `koanf:"listen"`
	Expiry         string        `koanf:"expiry"`
	AutoCreate     bool          `koanf:"autoCreate"`
	ClockOffset    time.Duration `koanf:"clockOffset"`
	MaxMessageSize int64         `koanf:"maxMessageSize"`
	Queues         []queueConfig `koanf:"queues"`
}

// queueConfig is one queue of the embedded broker, in the words of Service Bus.
type queueConfig struct {
	Name                             string        `koanf:"name"`
	DeadLetteringOnMessageExpiration bool          `koanf:"deadLetteringOnMessageExpiration"`
	DefaultMessageTimeToLive         time.Duration `koanf:"defaultMessageTimeToLive"`
	LockDuration                     time.Duration `koanf:"lockDuration"`
	MaxDeliveryCount                 int64         `koanf:"maxDeliveryCount"`
}

// monitorConfig lists the monitored queues; an empty list means all.
type monitorConfig struct {
	Entities []entityConfig `koanf:"entities"`
}

// entityConfig is one monitored queue. The last field says how the queue was made, for a
// namespace that we do not ask.
type entityConfig struct {
	Queue                    string        `koanf:"queue"`
	Deadline                 time.Duration `koanf:"deadline"`
	Expire                   string        `koanf:"expire"`
	StampTTL                 bool          `koanf:"stampTTL"`
	DefaultMessageTimeToLive time.Duration `koanf:"defaultMessageTimeToLive"`
}

// alertConfig is one sink of alerts. Each kind of sink has a field; so far there is one.
type alertConfig struct {
	Webhook webhookConfig `koanf:"webhook"`
}

// webhookConfig is a sink that gets a POST for each event. The URL may hold a secret.
type webhookConfig struct {
	URL     string        `koanf:"url"`
	Timeout time.Duration `koanf:"timeout"`
}

// proxyConfig bounds what apps can make the proxy hold.
type proxyConfig struct {
	MaxInFlight int64 `koanf:"maxInFlight"`
	MaxBodySize int64 `koanf:"maxBodySize"`
}

// logConfig says what is logged and how it looks.
type logConfig struct {
	Level  string `koanf:"level"`
	Format string `koanf:"format"`
}

// embedded reports whether the broker runs in this process instead of in a namespace.
func (c *config) embedded() bool { return c.Namespace == "" }
