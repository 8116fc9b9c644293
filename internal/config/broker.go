// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/emulator"
)

// Broker is for the embedded broker. With a namespace it has no effect, so that one
// file can serve both development and production. A directory is refused there, since it
// would stay empty.
type Broker struct {
	Enabled               bool          `mapstructure:"enabled"`
	Directory             string        `mapstructure:"directory"`
	Listen                string        `mapstructure:"listen"`
	AlsoListen            []string      `mapstructure:"alsoListen"`
	TLS                   TLS           `mapstructure:"tls"`
	Keys                  []Key         `mapstructure:"keys"`
	AcceptJWT             bool          `mapstructure:"acceptJwt"`
	Isolate               bool          `mapstructure:"isolate"`
	Expiry                string        `mapstructure:"expiry"`
	Quirks                []string      `mapstructure:"quirks"`
	AutoCreate            bool          `mapstructure:"autoCreate"`
	MonitorQueue          bool          `mapstructure:"monitorQueue"`
	ClockOffset           time.Duration `mapstructure:"clockOffset"`
	MaxMessageSize        int64         `mapstructure:"maxMessageSize"`
	LinkIdleTimeout       time.Duration `mapstructure:"linkIdleTimeout"`
	ConnectionIdleTimeout time.Duration `mapstructure:"connectionIdleTimeout"`
	EmulatorConfig        string        `mapstructure:"emulatorConfig"`
	Queues                []Queue       `mapstructure:"queues"`
	Topics                []Topic       `mapstructure:"topics"`

	emulator *emulator.Config // what EmulatorConfig holds; nil without
}

// TLS is how the embedded broker, or the endpoints, serve TLS: with a certificate of Overdue's own
// making, or with the files that are named.
type TLS struct {
	Enabled   bool     `mapstructure:"enabled"`
	Listen    string   `mapstructure:"listen"` // of the embedded broker alone
	CertFile  string   `mapstructure:"certFile"`
	KeyFile   string   `mapstructure:"keyFile"`
	Hosts     []string `mapstructure:"hosts"`
	Directory string   `mapstructure:"directory"`
}

// Key is one key of the embedded broker, or of the endpoints, what it is good for and where.
type Key struct {
	Name    string `mapstructure:"name"`
	Key     string `mapstructure:"key"`
	KeyFile string `mapstructure:"keyFile"`
	Send    bool   `mapstructure:"send"`
	Listen  bool   `mapstructure:"listen"`
	Manage  bool   `mapstructure:"manage"`
	Entity  string `mapstructure:"entity"` // of the endpoints alone
}

// Queue is one queue of the embedded broker. Its keys are those of Service Bus, and so are the
// names of the fields.
type Queue struct {
	broker.QueueConfig `mapstructure:",squash"`
	MaxSizeInMegabytes int64 `mapstructure:"maxSizeInMegabytes"`
}

// Topic is one topic with its subscriptions.
type Topic struct {
	broker.TopicConfig `mapstructure:",squash"`
	MaxSizeInMegabytes int64          `mapstructure:"maxSizeInMegabytes"`
	Subscriptions      []Subscription `mapstructure:"subscriptions"`
}

// Subscription is one subscription. Without rules it gets everything.
type Subscription struct {
	broker.SubscriptionConfig                 `mapstructure:",squash"`
	DeadLetteringOnFilterEvaluationExceptions bool   `mapstructure:"deadLetteringOnFilterEvaluationExceptions"`
	Rules                                     []Rule `mapstructure:"rules"`
}

// Rule is one rule: an SQL filter or a correlation filter, and what to change.
type Rule struct {
	Name        string      `mapstructure:"name"`
	SQL         string      `mapstructure:"sql"`
	Action      string      `mapstructure:"action"`
	Correlation Correlation `mapstructure:"correlation"`
}

// Correlation is what has to be equal; what is empty does not matter.
type Correlation struct {
	CorrelationID    string         `mapstructure:"correlationId"`
	MessageID        string         `mapstructure:"messageId"`
	To               string         `mapstructure:"to"`
	ReplyTo          string         `mapstructure:"replyTo"`
	Subject          string         `mapstructure:"subject"`
	SessionID        string         `mapstructure:"sessionId"`
	ReplyToSessionID string         `mapstructure:"replyToSessionId"`
	ContentType      string         `mapstructure:"contentType"`
	Properties       map[string]any `mapstructure:"properties"`
}

// A broker without keys checks none; the SDKs only want one.
const (
	AnyKeyName = "RootManageSharedAccessKey"
	AnyKey     = "SAS_KEY_VALUE"
)

// ConnectionString is how a client reaches the embedded broker at addr, without TLS.
func ConnectionString(addr, keyName, key string) string {
	return "Endpoint=sb://" + addr + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + key + ";UseDevelopmentEmulator=true;"
}
