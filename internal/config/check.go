// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/broker"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/namespace"
)

// complete reads the namespace's file and checks what no setting can be checked for alone.
func (c *Config) complete() error {
	if err := c.readNamespace(); err != nil {
		return err
	}
	c.normalise()
	c.choosePorts()
	if err := c.Broker.readEmulatorConfig(c); err != nil {
		return err
	}
	return errors.Join(c.Broker.checkAddresses(c), c.readKeys("broker.keys", c.Broker.Keys), c.Broker.checkQueues(c), c.Broker.checkRules(c), c.Broker.checkForwards(c), c.checkEntities(), c.readRedis(), c.checkStore(), c.completeAlerts(), cmp.Or(c.Canary.complete(c), c.Heartbeat.complete(c)), c.readDashboard(), c.checkDelays())
}

// Unlimited is from when on a time to live is none.
const Unlimited = 100 * 365 * 24 * time.Hour

// normalise turns the ways to say "unlimited" into one, and gives every entity the deadline that is
// stated for all of them. Azure writes a duration of some 29,000 years for "unlimited".
func (c *Config) normalise() {
	bound := func(d *time.Duration) {
		if *d > Unlimited {
			*d = 0
		}
	}
	for i := range c.Broker.Queues {
		bound(&c.Broker.Queues[i].DefaultMessageTimeToLive)
	}
	for i := range c.Broker.Topics {
		t := &c.Broker.Topics[i]
		bound(&t.DefaultMessageTimeToLive)
		for j := range t.Subscriptions {
			bound(&t.Subscriptions[j].DefaultMessageTimeToLive)
		}
	}
	for i := range c.Monitor.Entities {
		e := &c.Monitor.Entities[i]
		e.Deadline = cmp.Or(e.Deadline, c.Monitor.Deadline)
		bound(&e.DefaultMessageTimeToLive)
		for j := range e.Subscriptions {
			bound(&e.Subscriptions[j].DefaultMessageTimeToLive)
		}
	}
}

// choosePorts gives an embedded broker on any free port nothing that two of them would
// fight for: the other listeners that have a port by default.
func (c *Config) choosePorts() {
	if _, port, err := net.SplitHostPort(c.Broker.Listen); err != nil || port != "0" || !c.Embedded() {
		return
	}
	if _, given := c.Sources.origin["listen.admin"]; !given {
		c.Listen.Admin = "127.0.0.1:0"
	}
	if _, given := c.Sources.origin["broker.tls.listen"]; !given {
		c.Broker.TLS.Listen = "" // broker.listen speaks TLS too
	}
}

// At names a key with the place it was given at; a section, with that of the first of its keys.
func (c *Config) At(key string) string {
	if place, ok := c.Sources.origin[key]; ok {
		return keyAt(place, key)
	}
	first, least := "", 0
	for k, place := range c.Sources.origin {
		if rest, ok := strings.CutPrefix(k, key); !ok || rest[0] != '.' && rest[0] != '[' {
			continue
		}
		_, number, _ := cutLast(place, ":")
		line, _ := strconv.Atoi(number) // 0 for what is not of a file
		if first == "" || line < least {
			first, least = place, line
		}
	}
	if first == "" {
		return key
	}
	return first + ": " + key
}

// readNamespace puts what the namespace's file holds in its place, and checks it there.
func (c *Config) readNamespace() error {
	if c.NamespaceFile != "" {
		if c.Namespace != "" {
			return fmt.Errorf("%s and %s are both given; keep one", c.At("namespace"), c.At("namespaceFile"))
		}
		var err error
		if c.Namespace, err = readSecret(c.NamespaceFile, "a connection string or the name of a namespace"); err != nil {
			return fmt.Errorf("%s: %w", c.At("namespaceFile"), err)
		}
	}
	if c.Namespace == "" {
		return nil
	}
	if _, err := namespace.Parse(c.Namespace); err != nil {
		return fmt.Errorf("%s: %w", c.namespaceAt(), err)
	}
	return nil
}

// namespaceAt names the key that gives the namespace, with its place.
func (c *Config) namespaceAt() string {
	if c.NamespaceFile != "" {
		return c.At("namespaceFile")
	}
	return c.At("namespace")
}

// checkDelays refuses to be done before it has begun.
func (c *Config) checkDelays() error {
	if c.MaxSigtermDelay != 0 && c.MaxSigtermDelay < c.MinSigtermDelay {
		return fmt.Errorf("%s is %s, which is before %s is over (%s); make it at least as long, or 0",
			c.At("maxSigtermDelay"), c.MaxSigtermDelay, c.At("minSigtermDelay"), c.MinSigtermDelay)
	}
	return nil
}

// checkAddresses refuses two listeners on one address, which would otherwise end as "address
// already in use" by ourselves. An address that a role does not listen on is free for another.
func (c *Config) checkAddresses(r Role) error {
	taken := map[string]string{}
	var all []Address
	if r.Proxy {
		all = append(all, c.Listen.Endpoints()...)
	}
	all = append(all, Address{"listen.admin", c.Listen.Admin})
	if c.Listen.Probes != "" {
		all = append(all, Address{"listen.probes", c.Listen.Probes})
	}
	if r.Broker && c.Embedded() {
		all = append(all, c.Broker.Addresses()...)
	}
	for _, a := range all {
		_, port, err := net.SplitHostPort(a.Addr)
		if err != nil {
			return fmt.Errorf("%s: %w", c.At(a.Key), err)
		}
		if port == "0" {
			continue
		}
		if other, ok := taken[a.Addr]; ok {
			return fmt.Errorf("%s is %s, which %s has already; give them different ports", c.At(a.Key), a.Addr, other)
		}
		taken[a.Addr] = a.Key
	}
	return nil
}

// checkQueues refuses what the embedded broker would refuse, in the words of the file.
func (b *Broker) checkQueues(c *Config) error {
	seen := map[string]bool{}
	another := func(key, name string) error {
		folded := strings.ToLower(name)
		if seen[folded] {
			return fmt.Errorf("%s: there is another queue or topic %q; names differ by more than upper and lower case", c.At(key), name)
		}
		seen[folded] = true
		return nil
	}
	one := func(key, name string) error {
		if err := another(key, name); err != nil {
			return err
		}
		if c.isMonitorQueue(name) {
			return fmt.Errorf("%s is %q, the monitor queue, which the broker makes by itself; remove it or change monitorQueue", c.At(key), name)
		}
		return nil
	}
	var errs []error
	if e := b.emulator; e != nil {
		const key = "broker.emulatorConfig"
		for _, q := range e.Namespaces[0].Queues {
			errs = append(errs, another(key, q.Name))
			// The official emulator has to be given the monitor queue, so its file names it.
			if why := unfit(q); why != "" && c.isMonitorQueue(q.Name) {
				errs = append(errs, fmt.Errorf("%s: queue %q, the monitor queue: %s, or change monitorQueue", c.At(key), q.Name, why))
			}
		}
		for _, t := range e.Namespaces[0].Topics {
			errs = append(errs, one(key, t.Name))
		}
	}
	for i, q := range b.Queues {
		errs = append(errs, another(fmt.Sprintf("broker.queues[%d].name", i), q.Name))
	}
	for i, t := range b.Topics {
		errs = append(errs, one(fmt.Sprintf("broker.topics[%d].name", i), t.Name))
	}
	return cmp.Or(errs...)
}

// checkMonitorQueue refuses a monitor queue that is listed where Overdue makes one that is fit for
// it. With a broker alone it is a queue like any other.
func (b *Broker) checkMonitorQueue(c *Config) error {
	for i, q := range b.Queues {
		if c.isMonitorQueue(q.Name) {
			return fmt.Errorf("%s is %q, the monitor queue, which the broker makes by itself; remove it or change monitorQueue", c.At(fmt.Sprintf("broker.queues[%d].name", i)), q.Name)
		}
	}
	return nil
}

// checkRules refuses rules with two filters, which may have been meant as both or as either.
func (b *Broker) checkRules(c *Config) error {
	for i, t := range b.Topics {
		for j, s := range t.Subscriptions {
			for k, r := range s.Rules {
				if r.SQL != "" && r.broker().Filter.Correlation != nil {
					return fmt.Errorf("%s: rule %q has both sql and correlation; keep one, or make two rules of them, of which either may match",
						c.At(fmt.Sprintf("broker.topics[%d].subscriptions[%d].rules[%d].sql", i, j, k)), r.Name)
				}
			}
		}
	}
	return nil
}

// checkForwards refuses to forward to what will not be there. The broker takes it, as
// the service does when the target is deleted later, and every message would be a
// dead letter.
func (b *Broker) checkForwards(c *Config) error {
	if b.AutoCreate {
		return nil
	}
	known := append(c.AllMonitorQueues().Names(), c.EntityNames()...)
	var errs []error
	check := func(key, target, place string) {
		name := entities.Target(target)
		if target != "" && !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			errs = append(errs, fmt.Errorf("%s: there is no queue or topic %q; add it to broker.queues or broker.topics%s", c.At(key), name, place))
		}
	}
	if e := b.emulator; e != nil {
		for _, f := range e.Forwards {
			check("broker.emulatorConfig", f.To, fmt.Sprintf(" (line %d: %s)", f.Line, f.What))
		}
	}
	for i, q := range b.Queues {
		check(fmt.Sprintf("broker.queues[%d].forwardTo", i), q.ForwardTo, "")
		check(fmt.Sprintf("broker.queues[%d].forwardDeadLetteredMessagesTo", i), q.ForwardDeadLetteredMessagesTo, "")
	}
	for i, t := range b.Topics {
		for j, s := range t.Subscriptions {
			check(fmt.Sprintf("broker.topics[%d].subscriptions[%d].forwardTo", i, j), s.ForwardTo, "")
			check(fmt.Sprintf("broker.topics[%d].subscriptions[%d].forwardDeadLetteredMessagesTo", i, j), s.ForwardDeadLetteredMessagesTo, "")
		}
	}
	return errors.Join(errs...)
}

// checkEntities refuses a list of monitored queues and topics that cannot be meant as it stands.
func (c *Config) checkEntities() error {
	seen := map[string]bool{}
	var errs []error
	for i := range c.Monitor.Entities {
		errs = append(errs, c.Monitor.Entities[i].check(c, fmt.Sprintf("monitor.entities[%d]", i), seen))
	}
	return errors.Join(errs...)
}

// check is checkEntities for one element. seen has the names of those before it.
func (e *Entity) check(c *Config, key string, seen map[string]bool) error {
	if (e.Queue == "") == (e.Topic == "") {
		return fmt.Errorf("%s: an element has either queue or topic; give one of them", c.At(key))
	}
	kind := "queue"
	if e.Topic != "" {
		kind = "topic"
	}
	place := c.At(key + "." + kind)
	name := strings.ToLower(e.Name())
	if seen[name] {
		return fmt.Errorf("%s: %q is in the list already; keep one", place, e.Name())
	}
	seen[name] = true
	if c.isMonitorQueue(name) {
		return fmt.Errorf("%s is %q, the monitor queue, which cannot monitor itself", place, e.Name())
	}
	if err := errors.Join(e.checkMade(c, key), e.checkForwardMissed(c, key), e.checkReminders(c, key), e.checkLabels(c, key)); err != nil {
		return err
	}
	if !c.Embedded() || !c.Broker.Enabled {
		return nil
	}
	q, isQueue := c.Queue(e.Name())
	isTopic := slices.ContainsFunc(c.BrokerTopics(), func(t broker.TopicSetup) bool { return strings.EqualFold(t.Name, e.Name()) })
	switch {
	case e.Topic != "" && isQueue || e.Queue != "" && isTopic:
		return fmt.Errorf("%s: %q of the embedded broker is not a %s; write it under the other key", place, e.Name(), kind)
	case e.Topic != "" && !isTopic:
		return fmt.Errorf("%s: the embedded broker has no topic %q; add it to broker.topics", place, e.Topic)
	case e.Queue != "" && !isQueue && !c.Broker.AutoCreate:
		return fmt.Errorf("%s: the embedded broker has no queue %q; add it to broker.queues or set broker.autoCreate: true", place, e.Queue)
	case isQueue && e.Expire == "native" && !q.DeadLetteringOnMessageExpiration:
		return fmt.Errorf("%s: expire is native, but queue %q drops what expires; set its deadLetteringOnMessageExpiration: true or choose expire: scan", place, e.Queue)
	}
	return nil
}

// checkForwardMissed refuses to send missed messages where they came from, or among the companions.
func (e *Entity) checkForwardMissed(c *Config, key string) error {
	to, place := e.ForwardMissedTo, c.At(key+".forwardMissedTo")
	switch {
	case to == "":
		return nil
	case strings.EqualFold(to, e.Name()):
		return fmt.Errorf("%s is %q, where the messages come from; give another queue or topic", place, to)
	case c.isMonitorQueue(to):
		return fmt.Errorf("%s is %q, the monitor queue; give another queue or topic", place, to)
	}
	if err := CheckEntity(to); err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	_, isQueue := c.Queue(to)
	isTopic := slices.ContainsFunc(c.BrokerTopics(), func(t broker.TopicSetup) bool { return strings.EqualFold(t.Name, to) })
	if c.Embedded() && c.Broker.Enabled && !isQueue && !isTopic && !c.Broker.AutoCreate {
		return fmt.Errorf("%s: the embedded broker has no queue or topic %q; add it to broker.queues or broker.topics", place, to)
	}
	return nil
}

// checkMade refuses words about how an entity was made that no entity can be made like.
func (e *Entity) checkMade(c *Config, key string) error {
	if e.Queue != "" && len(e.Subscriptions) > 0 {
		return fmt.Errorf("%s: %q is a queue and has no subscriptions; write it under topic", c.At(key+".subscriptions"), e.Queue)
	}
	seen := map[string]bool{}
	for i, s := range e.Subscriptions {
		if name := strings.ToLower(s.Name); seen[name] {
			return fmt.Errorf("%s: %q is in the list already; keep one", c.At(fmt.Sprintf("%s.subscriptions[%d].name", key, i)), s.Name)
		} else {
			seen[name] = true
		}
	}
	for _, field := range []string{"requiresSession", "deadLetteringOnMessageExpiration"} {
		if e.Topic != "" && c.Given(key+"."+field) {
			return fmt.Errorf("%s: a topic has no such setting; its subscriptions have", c.At(key+"."+field))
		}
	}
	return nil
}

// Given reports whether somebody has set the key, to whatever value.
func (c *Config) Given(key string) bool {
	_, ok := c.Sources.origin[key]
	return ok
}

// Queue is the embedded broker's queue of that name.
func (c *Config) Queue(name string) (broker.QueueConfig, bool) {
	for q := range c.brokerQueues() {
		if strings.EqualFold(q.Name, name) {
			return q, true
		}
	}
	return broker.QueueConfig{}, false
}

// Lists reports whether a name is on the list of monitored queues and topics.
func (c *Config) Lists(name string) bool {
	return slices.ContainsFunc(c.Monitor.Entities, func(e Entity) bool { return strings.EqualFold(e.Name(), name) })
}

// maxWarnings bounds the warnings of one deadline: each takes a check, and a companion that is
// written again.
const maxWarnings = 8

// parseDurations reads several, separated by commas, within the bounds of the setting. They are
// kept as they are written in Go.
func (s *Setting) parseDurations(text string) ([]string, error) {
	all := splitList(text)
	for i, one := range all {
		d, err := ParseDuration(one)
		if err == nil {
			err = s.bounds(int64(d), func(n int64) string { return duration.Format(time.Duration(n)) })
		}
		if err != nil {
			return nil, err
		}
		all[i] = d.String()
	}
	return all, nil
}

// checkReminders refuses reminders that can never be sent.
func (e *Entity) checkReminders(c *Config, key string) error {
	within, of := e.Deadline, "deadline"
	if ttl := e.DefaultMessageTimeToLive; ttl > 0 && (within == 0 || ttl < within) {
		within, of = ttl, "defaultMessageTimeToLive"
	}
	switch {
	case e.CompleteWithin > 0 && e.CompleteWithin <= e.Deadline:
		return fmt.Errorf("%s is %v, and deadline is %v: a message has to be received before it can be completed; make completeWithin the longer one",
			c.At(key+".completeWithin"), e.CompleteWithin, e.Deadline)
	case !e.Adopt && e.AdoptEvery != byPath["monitor.entities[].adoptEvery"].standard():
		return fmt.Errorf("%s is given and adopt is not; set adopt: true, or remove it", c.At(key+".adoptEvery"))
	case within > 0 && slices.ContainsFunc(e.WarnBefore, func(d time.Duration) bool { return d >= within }):
		return fmt.Errorf("%s is %v, and %s is %v: the reminder would come before the message; make each of warnBefore shorter than %s",
			c.At(key+".warnBefore"), slices.Max(e.WarnBefore), of, within, of)
	case len(e.WarnBefore) > maxWarnings:
		return fmt.Errorf("%s has %d durations; give at most %d", c.At(key+".warnBefore"), len(e.WarnBefore), maxWarnings)
	}
	return nil
}

// checkLabels refuses labels that alerts and metrics cannot have.
func (e *Entity) checkLabels(c *Config, key string) error {
	if err := alert.CheckLabels(e.Labels); err != nil {
		return fmt.Errorf("%s: %w", c.At(key+".labels"), err)
	}
	return nil
}

// maxSecretFile bounds a file with a secret. A connection string has a few hundred bytes.
const maxSecretFile = 16 << 10

// readSecret is what a file holds that has one secret in it. what names that for errors, which show
// nothing of it.
func readSecret(name, what string) (string, error) {
	text, err := ReadBounded(name, maxSecretFile)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty; it has to hold %s", name, what)
	}
	if why := namespace.EncodingFault(secret); why != "" {
		return "", fmt.Errorf("%s %s", name, why)
	}
	return secret, nil
}

// orTextFault is err, or what is wrong with the text as such.
func orTextFault(text string, err error) error {
	if why := namespace.TextFault(text); err != nil && why != "" {
		return errors.New("the value " + why)
	}
	return err
}

// readRedis puts what the files of Redis hold in its place, and checks it there. No error shows a
// value.
func (c *Config) readRedis() error {
	key := "redis"
	if c.RedisFile != "" {
		if c.Redis != "" {
			return fmt.Errorf("%s and %s are both given; keep one", c.At("redis"), c.At("redisFile"))
		}
		key = "redisFile"
		var err error
		if c.Redis, err = readSecret(c.RedisFile, "the address of a Redis"); err != nil {
			return fmt.Errorf("%s: %w", c.At(key), err)
		}
	}
	if c.Redis == "" {
		if c.RedisAuthorityFile != "" {
			return fmt.Errorf("%s is given, and no redis; give both or none", c.At("redisAuthorityFile"))
		}
		return nil
	}
	address, err := redisstore.ParseAddress(c.Redis)
	if err = orTextFault(c.Redis, err); err != nil {
		return fmt.Errorf("%s: %w", c.At(key), err)
	}
	if c.RedisAuthorityFile == "" {
		c.RedisAddress = address
		return nil
	}
	if !address.TLS {
		return fmt.Errorf("%s is given, and the address in %s is not of the form rediss://; write that for TLS", c.At("redisAuthorityFile"), key)
	}
	pem, err := ReadBounded(c.RedisAuthorityFile, maxCAFile)
	if err != nil {
		return fmt.Errorf("%s: %w", c.At("redisAuthorityFile"), err)
	}
	c.RedisRoots, c.RedisAuthority = x509.NewCertPool(), string(pem)
	if !c.RedisRoots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: %s holds no certificate in PEM", c.At("redisAuthorityFile"), c.RedisAuthorityFile)
	}
	c.RedisAddress = address
	return nil
}

// maxCAFile bounds a redisAuthorityFile: a bundle of every public authority has some 250 KiB.
const maxCAFile = 1 << 20
