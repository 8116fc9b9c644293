// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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
	Insecure              bool          `mapstructure:"insecure"`
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

// The embedded broker: from settings to a namespace that is served.

// An Address is where to listen, and the setting that says so.
type Address struct{ Key, Addr string }

// Addresses are where the embedded broker listens, that of broker.listen first.
func (b *Broker) Addresses() []Address {
	endpoints := []Address{{"broker.listen", b.Listen}}
	for _, addr := range b.AlsoListen {
		endpoints = append(endpoints, Address{"broker.alsoListen", addr})
	}
	if b.TLS.Enabled && b.TLS.Listen != "" {
		endpoints = append(endpoints, Address{"broker.tls.listen", b.TLS.Listen})
	}
	return endpoints
}

// checkAddresses demands TLS and keys of what others can reach, unless broker.insecure gives it to them.
func (b *Broker) checkAddresses(c *Config) error {
	t := &b.TLS
	if (t.CertFile == "") != (t.KeyFile == "") {
		return fmt.Errorf("%s and %s belong together; give both, or none for a certificate that the broker makes itself",
			c.At("broker.tls.certFile"), c.At("broker.tls.keyFile"))
	}
	for _, d := range b.Addresses() {
		host, err := SplitAddress(d.Addr)
		if err != nil {
			return fmt.Errorf("%s: %w", c.At(d.Key), err)
		}
		if !OnLoopback(host) && !b.Insecure && !b.isGuarded() {
			return fmt.Errorf("%s: %s is not on loopback, where others can reach it; set broker.tls.enabled and broker.keys, "+
				"or listen on 127.0.0.1, [::1] or localhost, or set broker.insecure: true if everyone who reaches it may use it", c.At(d.Key), d.Addr)
		}
	}
	return nil
}

// isGuarded reports whether the embedded broker has keys, and TLS so that nobody sees their tokens.
func (b *Broker) isGuarded() bool { return b.TLS.Enabled && len(b.Keys) > 0 }

// Unguarded are the addresses that broker.insecure opens to others.
func (b *Broker) Unguarded() (addrs []string) {
	for _, d := range b.Addresses() {
		if host, err := SplitAddress(d.Addr); err == nil && !OnLoopback(host) && !b.isGuarded() {
			addrs = append(addrs, d.Addr)
		}
	}
	return addrs
}

// readKeys checks the keys of a list, and puts what their files hold in its place.
func (c *Config) readKeys(list string, keys []Key) error {
	seen := map[string]bool{}
	for i := range keys {
		k := &keys[i]
		at := func(field string) string { return c.At(fmt.Sprintf("%s[%d].%s", list, i, field)) }
		if seen[k.Name] {
			return fmt.Errorf("%s: there is another key %q", at("name"), k.Name)
		}
		seen[k.Name] = true
		if err := k.read(at); err != nil {
			return err
		}
	}
	return nil
}

// read checks one key. at names a field of it.
func (k *Key) read(at func(field string) string) error {
	if !keyName.MatchString(k.Name) {
		return fmt.Errorf("%s: %q is not the name of a key; use letters, digits, '.', '-' and '_', with a letter or digit at both ends", at("name"), Clip(k.Name))
	}
	if (k.Key == "") == (k.KeyFile == "") {
		return fmt.Errorf("%s: %q needs one of key and keyFile", at("name"), k.Name)
	}
	from := "key"
	if k.KeyFile != "" {
		from = "keyFile"
		var err error
		if k.Key, err = readSecret(k.KeyFile, "a key"); err != nil {
			return fmt.Errorf("%s: %w", at(from), err)
		}
	}
	switch n := utf8.RuneCountInString(k.Key); {
	case strings.TrimSpace(k.Key) == "":
		return fmt.Errorf("%s: the key %q is blank; give at least %d characters that nobody guesses", at(from), k.Name, minKey)
	case strings.ContainsFunc(k.Key, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return fmt.Errorf("%s: the key %q has white space or control characters in it, which no connection string carries", at(from), k.Name)
	case n < minKey:
		return fmt.Errorf("%s: the key %q is too short (%d of at least %d characters); give one that nobody guesses, such as the output of: openssl rand -base64 32", at(from), k.Name, n, minKey)
	case k.rights() == 0:
		return fmt.Errorf("%s: %q grants nothing; set send, listen or manage to true", at("name"), k.Name)
	}
	return nil
}

// keyName is what Service Bus allows. A connection string cannot carry every other name.
var keyName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// minKey is the fewest characters of a key. Anyone who sees one token can try keys until one makes
// its signature, without asking anybody: 12 characters of base64 are 72 bits. The keys of Service
// Bus have 44, and that of its emulator, SAS_KEY_VALUE, which nobody takes for a secret, has 13.
const minKey = 12

// MaxEmulatorConfig bounds the emulator's file. Fifty queues and topics have some 100 KiB.
const MaxEmulatorConfig = 4 << 20

func (b *Broker) readEmulatorConfig(c *Config) error {
	if b.EmulatorConfig == emulator.Default && len(b.Queues)+len(b.Topics) > 0 {
		b.EmulatorConfig = "" // its entities are for those who name none
	}
	if b.EmulatorConfig == "" {
		return nil
	}
	if _, given := c.Sources.origin["broker.autoCreate"]; !given {
		b.AutoCreate = false // it lists all queues, as a file of ours does
	}
	text, err := []byte(b.EmulatorConfig), error(nil)
	if !isContent(b.EmulatorConfig) {
		text, err = ReadBounded(b.EmulatorConfig, MaxEmulatorConfig)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.At("broker.emulatorConfig"), err)
	}
	if b.emulator, err = emulator.Parse(text); err != nil {
		return fmt.Errorf("%s: %s: %w", c.At("broker.emulatorConfig"), b.EmulatorSource(), err)
	}
	return nil
}

// isContent reports whether a value of broker.emulatorConfig is not the name of a file, but what
// could stand in one.
func isContent(value string) bool { return strings.HasPrefix(strings.TrimSpace(value), "{") }

// isFileName reports whether a value that names a file names one on a disk.
func isFileName(value string) bool {
	return value != "" && value != standardInput && !isContent(value)
}

// EmulatorSource names where the configuration of the emulator is from, "" if there is none.
func (b *Broker) EmulatorSource() string {
	switch {
	case b.EmulatorConfig == emulator.Default:
		return "the emulator's default"
	case isContent(b.EmulatorConfig):
		return "its value"
	case b.EmulatorConfig == standardInput:
		return "standard input"
	}
	return b.EmulatorConfig
}

// BrokerQueues are the queues of the configuration and of the emulator's file.
func (c *Config) BrokerQueues() []broker.QueueConfig { return slices.Collect(c.brokerQueues()) }

func (c *Config) brokerQueues() iter.Seq[broker.QueueConfig] {
	return func(yield func(broker.QueueConfig) bool) {
		if c.Broker.emulator != nil {
			for _, q := range c.Broker.emulator.Namespaces[0].Queues {
				if c.isMonitorQueue(q.Name) {
					q = forCompanions(q)
				}
				if !yield(q) {
					return
				}
			}
		}
		for i := range c.Broker.Queues {
			if !yield(c.Broker.Queues[i].broker()) {
				return
			}
		}
	}
}

// BrokerTopics are the topics that the embedded broker makes at its start.
func (c *Config) BrokerTopics() []broker.TopicSetup {
	var all []broker.TopicSetup
	if c.Broker.emulator != nil {
		all = append(all, c.Broker.emulator.Namespaces[0].Topics...)
	}
	for i := range c.Broker.Topics {
		all = append(all, c.Broker.Topics[i].broker())
	}
	return all
}

// BrokerNamespaces are those of the emulator's file, if it has several. The first is the default
// one: its entities are BrokerQueues and BrokerTopics.
func (c *Config) BrokerNamespaces() []broker.NamespaceSetup {
	if c.Broker.emulator == nil || len(c.Broker.emulator.Namespaces) == 1 {
		return nil
	}
	return c.Broker.emulator.Namespaces
}

// EntityNames are the queues and topics that the embedded broker makes at its start.
func (c *Config) EntityNames() (names []string) {
	for q := range c.brokerQueues() {
		names = append(names, q.Name)
	}
	for _, t := range c.BrokerTopics() {
		names = append(names, t.Name)
	}
	return names
}

func (q *Queue) broker() broker.QueueConfig {
	cfg := q.QueueConfig
	cfg.MaxSize = q.MaxSizeInMegabytes << 20
	return cfg
}

func (t *Topic) broker() broker.TopicSetup {
	setup := broker.TopicSetup{TopicConfig: t.TopicConfig}
	setup.MaxSize = t.MaxSizeInMegabytes << 20
	for _, s := range t.Subscriptions {
		sub := broker.SubscriptionSetup{SubscriptionConfig: s.SubscriptionConfig}
		sub.IgnoreFilterEvaluationExceptions = !s.DeadLetteringOnFilterEvaluationExceptions
		for _, r := range s.Rules {
			sub.Rules = append(sub.Rules, r.broker())
		}
		setup.Subscriptions = append(setup.Subscriptions, sub)
	}
	return setup
}

func (r *Rule) broker() broker.RuleConfig {
	cfg := broker.RuleConfig{Name: r.Name, Action: broker.Action{SQL: r.Action}}
	// The broker refuses a rule with both; one with neither matches everything.
	if r.SQL != "" {
		cfg.Filter.SQL = &broker.SQLFilter{Expression: r.SQL}
	}
	some := len(r.Correlation.Properties) > 0
	given := func(s string) *string {
		if s == "" {
			return nil
		}
		some = true
		return &s
	}
	c := &r.Correlation
	correlation := &broker.CorrelationFilter{
		CorrelationID: given(c.CorrelationID), MessageID: given(c.MessageID), To: given(c.To), ReplyTo: given(c.ReplyTo),
		Label: given(c.Subject), SessionID: given(c.SessionID), ReplyToSessionID: given(c.ReplyToSessionID),
		ContentType: given(c.ContentType), Properties: broker.ValuesOf(c.Properties),
	}
	if some {
		cfg.Filter.Correlation = correlation
	}
	if r.SQL == "" && cfg.Filter.Correlation == nil {
		cfg.Filter.True = true
	}
	return cfg
}
