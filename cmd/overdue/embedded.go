// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"overdue/internal/broker"
	"overdue/internal/broker/emulator"
	"overdue/internal/broker/httpapi"
	"overdue/internal/broker/queue"
	"overdue/internal/listener"
	"overdue/internal/servicebus/sas"
)

// The embedded broker: from settings to a namespace that is served.

// An address is where to listen, and the setting that says so.
type address struct{ key, addr string }

// brokerAddresses are those of the embedded broker, that of broker.listen first.
func (c *config) brokerAddresses() []address {
	doors := []address{{"broker.listen", c.Broker.Listen}}
	for _, addr := range c.Broker.AlsoListen {
		doors = append(doors, address{"broker.alsoListen", addr})
	}
	if c.Broker.TLS.Enabled && c.Broker.TLS.Listen != "" {
		doors = append(doors, address{"broker.tls.listen", c.Broker.TLS.Listen})
	}
	return doors
}

// checkBrokerAddresses demands TLS and keys of what others can reach.
func (c *config) checkBrokerAddresses() error {
	t := &c.Broker.TLS
	if (t.CertFile == "") != (t.KeyFile == "") {
		return fmt.Errorf("%s and %s belong together; give both, or none for a certificate that the broker makes itself",
			c.at("broker.tls.certFile"), c.at("broker.tls.keyFile"))
	}
	for _, d := range c.brokerAddresses() {
		host, err := splitAddress(d.addr)
		if err != nil {
			return fmt.Errorf("%s: %w", c.at(d.key), err)
		}
		if !onLoopback(host) && (!t.Enabled || len(c.Broker.Keys) == 0) {
			return fmt.Errorf("%s: %s is not on loopback, where others can reach it; set broker.tls.enabled and broker.keys, "+
				"or listen on 127.0.0.1, [::1] or localhost", c.at(d.key), d.addr)
		}
	}
	return nil
}

// readKeys puts what keyFiles hold in its place.
func (c *config) readKeys() error {
	check := c.newKeyCheck("broker.keys")
	for i := range c.Broker.Keys {
		k := &c.Broker.Keys[i]
		if err := check(i, k.Name, &k.Key, k.KeyFile, rights(k.Send, k.Listen, k.Manage)); err != nil {
			return err
		}
	}
	return nil
}

// newKeyCheck returns what checks the keys of a list, one after the other, and puts what their
// files hold in its place.
func (c *config) newKeyCheck(list string) func(i int, name string, key *string, file string, rights sas.Rights) error {
	seen := map[string]bool{}
	return func(i int, name string, key *string, file string, rights sas.Rights) error {
		at := func(field string) string { return c.at(fmt.Sprintf("%s[%d].%s", list, i, field)) }
		if seen[name] {
			return fmt.Errorf("%s: there is another key %q", at("name"), name)
		}
		seen[name] = true
		if (*key == "") == (file == "") {
			return fmt.Errorf("%s: %q needs one of key and keyFile", at("name"), name)
		}
		if file != "" {
			text, err := readBounded(file, maxSecretFile)
			if err != nil {
				return fmt.Errorf("%s: %w", at("keyFile"), err)
			}
			if *key = strings.TrimSpace(string(text)); *key == "" {
				return fmt.Errorf("%s: %s is empty; it has to hold a key", at("keyFile"), file)
			}
		}
		from := "key"
		if file != "" {
			from = "keyFile"
		}
		switch n := utf8.RuneCountInString(*key); {
		case strings.TrimSpace(*key) == "":
			return fmt.Errorf("%s: the key %q is blank; give at least %d characters that nobody guesses", at(from), name, minKey)
		case strings.ContainsFunc(*key, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
			return fmt.Errorf("%s: the key %q has white space or control characters in it, which no connection string carries", at(from), name)
		case n < minKey:
			return fmt.Errorf("%s: the key %q is too short (%d of at least %d characters); give one that nobody guesses, such as the output of: openssl rand -base64 32", at(from), name, n, minKey)
		}
		if rights == 0 {
			return fmt.Errorf("%s: %q is good for nothing; set send, listen or manage to true", at("name"), name)
		}
		return nil
	}
}

// minKey is the fewest characters of a key. Whoever sees one token can try keys until one makes its signature,
// without asking anybody: 12 characters of base64 are 72 bits. The keys of Service Bus have 44, and that of its
// emulator, SAS_KEY_VALUE, which nobody takes for a secret, has 13.
const minKey = 12

// maxEmulatorConfig bounds the emulator's file. Fifty queues and topics have some 100 KiB.
const maxEmulatorConfig = 4 << 20

func (c *config) readEmulatorConfig() error {
	name := c.Broker.EmulatorConfig
	if name == "" {
		return nil
	}
	if _, given := c.origin["broker.autoCreate"]; !given {
		c.Broker.AutoCreate = false // it says what there is, as a file of ours does
	}
	text, err := readBounded(name, maxEmulatorConfig)
	if err != nil {
		return fmt.Errorf("%s: %w", c.at("broker.emulatorConfig"), err)
	}
	if c.Broker.emulator, err = emulator.Parse(text); err != nil {
		return fmt.Errorf("%s: %s: %w", c.at("broker.emulatorConfig"), name, err)
	}
	return nil
}

// brokerQueues are the queues of the configuration and of the emulator's file.
func (c *config) brokerQueues() []broker.QueueConfig {
	var all []broker.QueueConfig
	if c.Broker.emulator != nil {
		for _, q := range c.Broker.emulator.Queues {
			if c.isMonitorQueue(q.Name) {
				q = forCompanions(q)
			}
			all = append(all, q)
		}
	}
	for i := range c.Broker.Queues {
		all = append(all, c.Broker.Queues[i].broker())
	}
	return all
}

func (c *config) brokerTopics() []broker.TopicSetup {
	var all []broker.TopicSetup
	if c.Broker.emulator != nil {
		all = append(all, c.Broker.emulator.Topics...)
	}
	for i := range c.Broker.Topics {
		all = append(all, c.Broker.Topics[i].broker())
	}
	return all
}

func (q *queueConfig) broker() broker.QueueConfig {
	return broker.QueueConfig{
		Name: q.Name, LockDuration: q.LockDuration, MaxDeliveryCount: int(q.MaxDeliveryCount),
		DefaultMessageTimeToLive:            q.DefaultMessageTimeToLive,
		DeadLetteringOnMessageExpiration:    q.DeadLetteringOnMessageExpiration,
		RequiresSession:                     q.RequiresSession,
		RequiresDuplicateDetection:          q.RequiresDuplicateDetection,
		DuplicateDetectionHistoryTimeWindow: q.DuplicateDetectionHistoryTimeWindow,
		ForwardTo:                           q.ForwardTo,
		ForwardDeadLetteredMessagesTo:       q.ForwardDeadLetteredMessagesTo,
		AutoDeleteOnIdle:                    q.AutoDeleteOnIdle,
		EnablePartitioning:                  q.EnablePartitioning,
		MaxSize:                             q.MaxSizeInMegabytes << 20,
	}
}

func (t *topicConfig) broker() broker.TopicSetup {
	setup := broker.TopicSetup{TopicConfig: broker.TopicConfig{
		Name:                                t.Name,
		DefaultMessageTimeToLive:            t.DefaultMessageTimeToLive,
		RequiresDuplicateDetection:          t.RequiresDuplicateDetection,
		DuplicateDetectionHistoryTimeWindow: t.DuplicateDetectionHistoryTimeWindow,
		AutoDeleteOnIdle:                    t.AutoDeleteOnIdle,
		EnablePartitioning:                  t.EnablePartitioning,
		MaxSize:                             t.MaxSizeInMegabytes << 20,
	}}
	for _, s := range t.Subscriptions {
		sub := broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{
			Name: s.Name, LockDuration: s.LockDuration, MaxDeliveryCount: int(s.MaxDeliveryCount),
			DefaultMessageTimeToLive:         s.DefaultMessageTimeToLive,
			DeadLetteringOnMessageExpiration: s.DeadLetteringOnMessageExpiration,
			IgnoreFilterEvaluationExceptions: !s.DeadLetteringOnFilterEvaluationExceptions,
			RequiresSession:                  s.RequiresSession,
			ForwardTo:                        s.ForwardTo,
			ForwardDeadLetteredMessagesTo:    s.ForwardDeadLetteredMessagesTo,
			AutoDeleteOnIdle:                 s.AutoDeleteOnIdle,
		}}
		for _, r := range s.Rules {
			sub.Rules = append(sub.Rules, r.broker())
		}
		setup.Subscriptions = append(setup.Subscriptions, sub)
	}
	return setup
}

func (r *ruleConfig) broker() broker.RuleConfig {
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
		ContentType: given(c.ContentType), Properties: c.Properties,
	}
	if some {
		cfg.Filter.Correlation = correlation
	}
	if r.SQL == "" && cfg.Filter.Correlation == nil {
		cfg.Filter.True = true
	}
	return cfg
}

// onDemand is how a queue is made that is named first by a client: one that nobody described should show what
// became of its messages.
var onDemand = broker.QueueConfig{DeadLetteringOnMessageExpiration: true}

// embeddedBroker is how the embedded broker of a role is set up, and the key that the components of the same
// process use where it has keys. broker.New refuses what reading the configuration has not.
func embeddedBroker(c *config, r role, log *zap.Logger) (cfg broker.Config, own broker.AuthorizationRule) {
	b := &c.Broker
	cfg = broker.Config{
		AutoCreate:            b.AutoCreate,
		AutoCreateConfig:      onDemand,
		ClockOffset:           b.ClockOffset,
		MaxMessageSize:        uint64(b.MaxMessageSize),
		Expiry:                map[string]queue.Expiry{"lazy": queue.Lazy, "lazy-head": queue.LazyHead, "eager": queue.Eager}[b.Expiry],
		Isolate:               b.Isolate,
		AcceptJWT:             b.AcceptJWT,
		LinkIdleTimeout:       b.LinkIdleTimeout,
		ConnectionIdleTimeout: b.ConnectionIdleTimeout,
		ErrorLog:              func(err error) { log.Debug("broker connection ended", zap.Error(err)) },
		Queues:                c.brokerQueues(),
		Topics:                c.brokerTopics(),
	}
	// Who uses the broker for itself wants to find there what they asked for and no more.
	if c.given("monitorQueue") || r.proxy || r.monitor {
		if _, there := c.queue(c.MonitorQueue); !there {
			cfg.Queues = append(cfg.Queues, companionQueue(c.MonitorQueue))
		}
	}
	if name := c.Canary.Queue; name != "" && (r.proxy || r.monitor) {
		if _, ok := c.queue(name); !ok {
			cfg.Queues = append(cfg.Queues, broker.QueueConfig{Name: name, DeadLetteringOnMessageExpiration: true})
		}
	}
	for _, k := range b.Keys {
		cfg.Keys = append(cfg.Keys, broker.AuthorizationRule{
			KeyName: k.Name, PrimaryKey: k.Key, Send: k.Send || k.Manage, Listen: k.Listen || k.Manage, Manage: k.Manage,
		})
	}
	if len(cfg.Keys) > 0 && (r.proxy || r.monitor) {
		// Our own components connect to the same endpoint as everybody.
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // it never fails
		own = broker.AuthorizationRule{
			KeyName: ownKeyName, PrimaryKey: base64.StdEncoding.EncodeToString(secret[:]), Send: true, Listen: true, Manage: true,
		}
		cfg.Keys = append(cfg.Keys, own)
	}
	return cfg, own
}

// ownKeyName is the key by which proxy and monitor use the embedded broker of their
// process, where it has keys.
const ownKeyName = "overdue-own"

// brokerCertificate is the certificate that the embedded broker serves TLS with; nil without TLS. changed
// is called when the user's own certificate has been replaced.
func brokerCertificate(c *config, changed func(error)) (*listener.Certificate, error) {
	t := &c.Broker.TLS
	switch {
	case !t.Enabled:
		return nil, nil
	case t.CertFile != "":
		return listener.LoadCertificate(t.CertFile, t.KeyFile, changed)
	}
	return selfMade(c, "broker.tls", t.Directory)
}

// certificateChanged tells of the files of a certificate that have been replaced.
func (p *process) certificateChanged(err error) {
	if err != nil {
		p.log.Warn("the new certificate is of no use; the one before is still served", zap.Error(err))
		return
	}
	p.log.Info("the certificate has been read again")
}

// startBroker serves the embedded broker on all its doors.
func (p *process) startBroker(doors []net.Listener) error {
	cfg, own := embeddedBroker(p.cfg, p.role, p.log)
	cert, err := brokerCertificate(p.cfg, p.certificateChanged)
	if err != nil {
		return &configError{fmt.Errorf("the embedded broker has no certificate: %w", err)}
	}
	b, err := broker.New(cfg)
	if err != nil {
		return &configError{fmt.Errorf("the embedded broker cannot be made: %w", err)}
	}
	p.broker, p.brokerKey, p.certificate = b, own, cert
	for _, ln := range doors {
		p.brokerAddrs = append(p.brokerAddrs, ln.Addr().String())
	}
	for _, w := range p.cfg.emulatorWarnings() {
		p.log.Warn("the emulator's configuration says something that has no effect",
			zap.String("file", p.cfg.Broker.EmulatorConfig), zap.String("what", w))
	}
	web := httpapi.Config{Broker: b, Version: version(), ErrorLog: cfg.ErrorLog}
	if cert != nil {
		web.TLS = cert.TLS
	}
	server := httpapi.New(web)
	var stopping atomic.Bool
	p.life.room("embedded broker", func() error {
		var all errgroup.Group
		for _, ln := range doors {
			all.Go(func() error { return server.Serve(ln) })
		}
		if err := all.Wait(); !stopping.Load() {
			return err
		}
		return nil // that it was closed is what stopping means
	}, func(ctx context.Context) error {
		stopping.Store(true)
		return errors.Join(server.Shutdown(ctx), b.Shutdown(ctx))
	})
	return nil
}

// ownConnectionString is how proxy and monitor reach the embedded broker.
func (p *process) ownConnectionString() string {
	return connectionString(p.brokerAddrs[0], cmp.Or(p.brokerKey.KeyName, anyKeyName), cmp.Or(p.brokerKey.PrimaryKey, anyKey))
}

// shownConnectionString is what a user pastes into an app. Keys are not shown.
func (p *process) shownConnectionString() string {
	name, key := p.shownKey()
	return connectionString(reachable(p.brokerAddrs[0]), name, key)
}

// shownSecureConnectionString is the same for clients that use TLS.
func (p *process) shownSecureConnectionString() string {
	name, key := p.shownKey()
	return secureConnectionString(p.brokerAddrs[0], p.certificate.Names, name, key)
}

// secureConnectionString is how a client reaches addr over TLS: without the flag of the emulator,
// and by a name that the certificate there is for.
func secureConnectionString(addr string, names []string, keyName, key string) string {
	return "Endpoint=sb://" + named(addr, names) + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + key
}

// named is addr, with a name of a certificate for its host.
func named(addr string, names []string) string {
	host, port, err := net.SplitHostPort(reachable(addr))
	if err != nil {
		return addr // it was listened on
	}
	if onLoopback(host) && slices.Contains(names, "localhost") {
		host = "localhost" // an address is no name, and some clients want one for TLS
	}
	if !slices.Contains(names, host) {
		if i := slices.IndexFunc(names, func(n string) bool { return !strings.Contains(n, "*") }); i >= 0 {
			host = names[i]
		}
	}
	return net.JoinHostPort(host, port)
}

func (p *process) shownKey() (name, key string) {
	if keys := p.cfg.Broker.Keys; len(keys) > 0 {
		return keys[0].Name, "<the key>"
	}
	return anyKeyName, anyKey
}

// reachable is an address that a client on this machine can connect to.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}
