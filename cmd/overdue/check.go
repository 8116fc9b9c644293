// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// maxSecretFile bounds a namespaceFile. A connection string has a few hundred bytes.
const maxSecretFile = 16 << 10

// complete reads the namespace's file and checks what no setting can be checked for alone.
func (c *config) complete() error {
	if err := c.readNamespace(); err != nil {
		return err
	}
	c.normalise()
	return errors.Join(c.checkAddresses(), c.checkQueues(), c.checkEntities())
}

// normalise turns the ways to say "unlimited" into one. Azure writes a duration of some
// 29,000 years for it.
func (c *config) normalise() {
	const century = 100 * 365 * 24 * time.Hour
	for i := range c.Broker.Queues {
		if q := &c.Broker.Queues[i]; q.DefaultMessageTimeToLive > century {
			q.DefaultMessageTimeToLive = 0
		}
	}
	for i := range c.Monitor.Entities {
		if e := &c.Monitor.Entities[i]; e.DefaultMessageTimeToLive > century {
			e.DefaultMessageTimeToLive = 0
		}
	}
}

// at names a key with the place it was given at.
func (c *config) at(key string) string {
	if place, ok := c.origin[key]; ok {
		return place + ": " + key
	}
	return key
}

// readNamespace puts what the namespace's file holds in its place, and checks it there.
func (c *config) readNamespace() error {
	if c.NamespaceFile != "" {
		if c.Namespace != "" {
			return fmt.Errorf("%s and %s are both given; keep one", c.at("namespace"), c.at("namespaceFile"))
		}
		text, err := readBounded(c.NamespaceFile, maxSecretFile)
		if err != nil {
			return fmt.Errorf("%s: %w", c.at("namespaceFile"), err)
		}
		if c.Namespace = strings.TrimSpace(string(text)); c.Namespace == "" {
			return fmt.Errorf("%s: %s is empty; it has to hold a connection string or the name of a namespace",
				c.at("namespaceFile"), c.NamespaceFile)
		}
	}
	if c.Namespace == "" {
		return nil
	}
	if _, err := parseNamespace(c.Namespace); err != nil {
		key := "namespace"
		if c.NamespaceFile != "" {
			key = "namespaceFile"
		}
		return fmt.Errorf("%s: %w", c.at(key), err)
	}
	return nil
}

// checkAddresses refuses two listeners on one address, which would otherwise end as
// "address already in use" by ourselves.
func (c *config) checkAddresses() error {
	taken := map[string]string{}
	for _, a := range []struct{ key, addr string }{
		{"listen.http", c.Listen.HTTP}, {"listen.admin", c.Listen.Admin}, {"broker.listen", c.Broker.Listen},
	} {
		_, port, err := net.SplitHostPort(a.addr)
		if err != nil {
			return fmt.Errorf("%s: %w", c.at(a.key), err)
		}
		if port == "0" {
			continue
		}
		if other, ok := taken[a.addr]; ok {
			return fmt.Errorf("%s is %s, which %s has already; give them different ports", c.at(a.key), a.addr, other)
		}
		taken[a.addr] = a.key
	}
	return nil
}

// checkQueues refuses what the embedded broker would refuse, in the words of the file.
func (c *config) checkQueues() error {
	seen := map[string]bool{}
	for i, q := range c.Broker.Queues {
		key := fmt.Sprintf("broker.queues[%d].name", i)
		name := strings.ToLower(q.Name)
		if seen[name] {
			return fmt.Errorf("%s: there is another queue %q; names differ by more than upper and lower case", c.at(key), q.Name)
		}
		seen[name] = true
		if name == strings.ToLower(c.MonitorQueue) {
			return fmt.Errorf("%s is %q, the monitor queue, which the broker makes by itself; remove it or change monitorQueue", c.at(key), q.Name)
		}
	}
	return nil
}

// checkEntities refuses a list of monitored queues that cannot be meant as it stands.
func (c *config) checkEntities() error {
	seen := map[string]bool{}
	for i, e := range c.Monitor.Entities {
		key := fmt.Sprintf("monitor.entities[%d].queue", i)
		name := strings.ToLower(e.Queue)
		if seen[name] {
			return fmt.Errorf("%s: %q is in the list already; keep one", c.at(key), e.Queue)
		}
		seen[name] = true
		if name == strings.ToLower(c.MonitorQueue) {
			return fmt.Errorf("%s is %q, the monitor queue, which cannot monitor itself", c.at(key), e.Queue)
		}
		if !c.embedded() {
			continue
		}
		q, known := c.queue(e.Queue)
		if !known && !c.Broker.AutoCreate {
			return fmt.Errorf("%s: the embedded broker has no queue %q; add it to broker.queues or set broker.autoCreate: true", c.at(key), e.Queue)
		}
		if known && e.Expire == "native" && !q.DeadLetteringOnMessageExpiration {
			return fmt.Errorf("%s: expire is native, but queue %q drops what expires; set its deadLetteringOnMessageExpiration: true or choose expire: scan", c.at(key), e.Queue)
		}
	}
	return nil
}

// queue is the embedded broker's queue of that name.
func (c *config) queue(name string) (queueConfig, bool) {
	for _, q := range c.Broker.Queues {
		if strings.EqualFold(q.Name, name) {
			return q, true
		}
	}
	return queueConfig{}, false
}

// entity is the monitored queue of that name, as it was listed.
func (c *config) entity(name string) (entityConfig, bool) {
	for _, e := range c.Monitor.Entities {
		if strings.EqualFold(e.Queue, name) {
			return e, true
		}
	}
	return entityConfig{}, false
}
