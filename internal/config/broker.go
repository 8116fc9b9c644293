// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"overdue/internal/broker/emulator"
)

// Broker is for the embedded broker. With a namespace it has no effect, so that one
// file can serve both development and production.
type Broker struct {
	Enabled               bool          `mapstructure:"enabled"`
	Listen                string        `mapstructure:"listen"`
	AlsoListen            []string      `mapstructure:"alsoListen"`
	TLS                   BrokerTLS     `mapstructure:"tls"`
	Keys                  []BrokerKey   `mapstructure:"keys"`
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

// BrokerTLS is how the embedded broker serves TLS: with a certificate of its own making,
// or with the files that are named.
type BrokerTLS struct {
	Enabled   bool     `mapstructure:"enabled"`
	Listen    string   `mapstructure:"listen"`
	CertFile  string   `mapstructure:"certFile"`
	KeyFile   string   `mapstructure:"keyFile"`
	Hosts     []string `mapstructure:"hosts"`
	Directory string   `mapstructure:"directory"`
}

// BrokerKey is one key of the embedded broker, and what it is good for.
type BrokerKey struct {
	Name    string `mapstructure:"name"`
	Key     string `mapstructure:"key"`
	KeyFile string `mapstructure:"keyFile"`
	Send    bool   `mapstructure:"send"`
	Listen  bool   `mapstructure:"listen"`
	Manage  bool   `mapstructure:"manage"`
}

// Queue is one queue of the embedded broker, in the words of Service Bus.
type Queue struct {
	Name                                string        `mapstructure:"name"`
	DeadLetteringOnMessageExpiration    bool          `mapstructure:"deadLetteringOnMessageExpiration"`
	DefaultMessageTimeToLive            time.Duration `mapstructure:"defaultMessageTimeToLive"`
	LockDuration                        time.Duration `mapstructure:"lockDuration"`
	MaxDeliveryCount                    int64         `mapstructure:"maxDeliveryCount"`
	RequiresSession                     bool          `mapstructure:"requiresSession"`
	RequiresDuplicateDetection          bool          `mapstructure:"requiresDuplicateDetection"`
	DuplicateDetectionHistoryTimeWindow time.Duration `mapstructure:"duplicateDetectionHistoryTimeWindow"`
	ForwardTo                           string        `mapstructure:"forwardTo"`
	ForwardDeadLetteredMessagesTo       string        `mapstructure:"forwardDeadLetteredMessagesTo"`
	AutoDeleteOnIdle                    time.Duration `mapstructure:"autoDeleteOnIdle"`
	EnablePartitioning                  bool          `mapstructure:"enablePartitioning"`
	MaxSizeInMegabytes                  int64         `mapstructure:"maxSizeInMegabytes"`
}

// Topic is one topic with its subscriptions.
type Topic struct {
	Name                                string         `mapstructure:"name"`
	DefaultMessageTimeToLive            time.Duration  `mapstructure:"defaultMessageTimeToLive"`
	RequiresDuplicateDetection          bool           `mapstructure:"requiresDuplicateDetection"`
	DuplicateDetectionHistoryTimeWindow time.Duration  `mapstructure:"duplicateDetectionHistoryTimeWindow"`
	AutoDeleteOnIdle                    time.Duration  `mapstructure:"autoDeleteOnIdle"`
	EnablePartitioning                  bool           `mapstructure:"enablePartitioning"`
	MaxSizeInMegabytes                  int64          `mapstructure:"maxSizeInMegabytes"`
	Subscriptions                       []Subscription `mapstructure:"subscriptions"`
}

// Subscription is one subscription. Without rules it gets everything.
type Subscription struct {
	Name                                      string        `mapstructure:"name"`
	DeadLetteringOnMessageExpiration          bool          `mapstructure:"deadLetteringOnMessageExpiration"`
	DeadLetteringOnFilterEvaluationExceptions bool          `mapstructure:"deadLetteringOnFilterEvaluationExceptions"`
	DefaultMessageTimeToLive                  time.Duration `mapstructure:"defaultMessageTimeToLive"`
	LockDuration                              time.Duration `mapstructure:"lockDuration"`
	MaxDeliveryCount                          int64         `mapstructure:"maxDeliveryCount"`
	RequiresSession                           bool          `mapstructure:"requiresSession"`
	ForwardTo                                 string        `mapstructure:"forwardTo"`
	ForwardDeadLetteredMessagesTo             string        `mapstructure:"forwardDeadLetteredMessagesTo"`
	AutoDeleteOnIdle                          time.Duration `mapstructure:"autoDeleteOnIdle"`
	Rules                                     []Rule        `mapstructure:"rules"`
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
