// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"overdue/internal/broker/emulator"
)

// Broker is for the embedded broker. With a namespace it has no effect, so that one
// file can serve both development and production.
type Broker struct {
	Listen                string        `koanf:"listen"`
	AlsoListen            []string      `koanf:"alsoListen"`
	TLS                   BrokerTLS     `koanf:"tls"`
	Keys                  []BrokerKey   `koanf:"keys"`
	AcceptJWT             bool          `koanf:"acceptJwt"`
	Isolate               bool          `koanf:"isolate"`
	Expiry                string        `koanf:"expiry"`
	AutoCreate            bool          `koanf:"autoCreate"`
	ClockOffset           time.Duration `koanf:"clockOffset"`
	MaxMessageSize        int64         `koanf:"maxMessageSize"`
	LinkIdleTimeout       time.Duration `koanf:"linkIdleTimeout"`
	ConnectionIdleTimeout time.Duration `koanf:"connectionIdleTimeout"`
	EmulatorConfig        string        `koanf:"emulatorConfig"`
	Queues                []Queue       `koanf:"queues"`
	Topics                []Topic       `koanf:"topics"`

	emulator *emulator.Config // what EmulatorConfig holds; nil without
}

// BrokerTLS is how the embedded broker serves TLS: with a certificate of its own making,
// or with the files that are named.
type BrokerTLS struct {
	Enabled   bool     `koanf:"enabled"`
	Listen    string   `koanf:"listen"`
	CertFile  string   `koanf:"certFile"`
	KeyFile   string   `koanf:"keyFile"`
	Hosts     []string `koanf:"hosts"`
	Directory string   `koanf:"directory"`
}

// BrokerKey is one key of the embedded broker, and what it is good for.
type BrokerKey struct {
	Name    string `koanf:"name"`
	Key     string `koanf:"key"`
	KeyFile string `koanf:"keyFile"`
	Send    bool   `koanf:"send"`
	Listen  bool   `koanf:"listen"`
	Manage  bool   `koanf:"manage"`
}

// Queue is one queue of the embedded broker, in the words of Service Bus.
type Queue struct {
	Name                                string        `koanf:"name"`
	DeadLetteringOnMessageExpiration    bool          `koanf:"deadLetteringOnMessageExpiration"`
	DefaultMessageTimeToLive            time.Duration `koanf:"defaultMessageTimeToLive"`
	LockDuration                        time.Duration `koanf:"lockDuration"`
	MaxDeliveryCount                    int64         `koanf:"maxDeliveryCount"`
	RequiresSession                     bool          `koanf:"requiresSession"`
	RequiresDuplicateDetection          bool          `koanf:"requiresDuplicateDetection"`
	DuplicateDetectionHistoryTimeWindow time.Duration `koanf:"duplicateDetectionHistoryTimeWindow"`
	ForwardTo                           string        `koanf:"forwardTo"`
	ForwardDeadLetteredMessagesTo       string        `koanf:"forwardDeadLetteredMessagesTo"`
	AutoDeleteOnIdle                    time.Duration `koanf:"autoDeleteOnIdle"`
	EnablePartitioning                  bool          `koanf:"enablePartitioning"`
	MaxSizeInMegabytes                  int64         `koanf:"maxSizeInMegabytes"`
}

// Topic is one topic with its subscriptions.
type Topic struct {
	Name                                string         `koanf:"name"`
	DefaultMessageTimeToLive            time.Duration  `koanf:"defaultMessageTimeToLive"`
	RequiresDuplicateDetection          bool           `koanf:"requiresDuplicateDetection"`
	DuplicateDetectionHistoryTimeWindow time.Duration  `koanf:"duplicateDetectionHistoryTimeWindow"`
	AutoDeleteOnIdle                    time.Duration  `koanf:"autoDeleteOnIdle"`
	EnablePartitioning                  bool           `koanf:"enablePartitioning"`
	MaxSizeInMegabytes                  int64          `koanf:"maxSizeInMegabytes"`
	Subscriptions                       []Subscription `koanf:"subscriptions"`
}

// Subscription is one subscription. Without rules it gets everything.
type Subscription struct {
	Name                                      string        `koanf:"name"`
	DeadLetteringOnMessageExpiration          bool          `koanf:"deadLetteringOnMessageExpiration"`
	DeadLetteringOnFilterEvaluationExceptions bool          `koanf:"deadLetteringOnFilterEvaluationExceptions"`
	DefaultMessageTimeToLive                  time.Duration `koanf:"defaultMessageTimeToLive"`
	LockDuration                              time.Duration `koanf:"lockDuration"`
	MaxDeliveryCount                          int64         `koanf:"maxDeliveryCount"`
	RequiresSession                           bool          `koanf:"requiresSession"`
	ForwardTo                                 string        `koanf:"forwardTo"`
	ForwardDeadLetteredMessagesTo             string        `koanf:"forwardDeadLetteredMessagesTo"`
	AutoDeleteOnIdle                          time.Duration `koanf:"autoDeleteOnIdle"`
	Rules                                     []Rule        `koanf:"rules"`
}

// Rule is one rule: an SQL filter or a correlation filter, and what to change.
type Rule struct {
	Name        string      `koanf:"name"`
	SQL         string      `koanf:"sql"`
	Action      string      `koanf:"action"`
	Correlation Correlation `koanf:"correlation"`
}

// Correlation is what has to be equal; what is empty does not matter.
type Correlation struct {
	CorrelationID    string         `koanf:"correlationId"`
	MessageID        string         `koanf:"messageId"`
	To               string         `koanf:"to"`
	ReplyTo          string         `koanf:"replyTo"`
	Subject          string         `koanf:"subject"`
	SessionID        string         `koanf:"sessionId"`
	ReplyToSessionID string         `koanf:"replyToSessionId"`
	ContentType      string         `koanf:"contentType"`
	Properties       map[string]any `koanf:"properties"`
}
