// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"overdue/internal/broker"
	"overdue/internal/monitorqueue"
)

// AllMonitorQueues are the monitor queues.
func (c *Config) AllMonitorQueues() monitorqueue.Queues {
	return monitorqueue.Of(c.MonitorQueue, int(c.MonitorQueues))
}

// isMonitorQueue reports whether that is the name of a monitor queue.
func (c *Config) isMonitorQueue(name string) bool { return c.AllMonitorQueues().Has(name) }

// CompanionQueue is the monitor queue as the embedded broker makes it. Monitors renew the
// locks of companions in hand, so the lock is only how long those of a monitor that was killed wait for the next one. Companions want
// no end of deliveries, because one is given back whenever a monitor stops.
func CompanionQueue(name string) broker.QueueConfig {
	return broker.QueueConfig{Name: name, LockDuration: 10 * time.Second, MaxDeliveryCount: 2000}
}

// forCompanions is a monitor queue that a file of the emulator names. It is as it is there, but for
// settings that companions need and the file cannot have, since it ends at ten deliveries and an
// hour to live.
func forCompanions(q broker.QueueConfig) broker.QueueConfig {
	wanted := CompanionQueue(q.Name)
	q.MaxDeliveryCount, q.DefaultMessageTimeToLive = wanted.MaxDeliveryCount, wanted.DefaultMessageTimeToLive
	q.LockDuration = max(q.LockDuration, wanted.LockDuration)
	return q
}

// raised says what forCompanions changes about q; "" = nothing.
func raised(q broker.QueueConfig) string {
	now := forCompanions(q)
	var what []string
	for name, changed := range map[string]bool{
		"LockDuration": now.LockDuration != q.LockDuration, "MaxDeliveryCount": now.MaxDeliveryCount != q.MaxDeliveryCount,
		"DefaultMessageTimeToLive": now.DefaultMessageTimeToLive != q.DefaultMessageTimeToLive,
	} {
		if changed {
			what = append(what, name)
		}
	}
	if len(what) == 0 {
		return ""
	}
	slices.Sort(what)
	return fmt.Sprintf("queue %s: %s; it is the monitor queue, where companions wait without an end, for a lock of ten seconds and up to %d deliveries",
		q.Name, strings.Join(what, ", "), now.MaxDeliveryCount)
}

// unfit says why q, of a file of the emulator, cannot be the monitor queue, and what to change; "" = it can.
func unfit(q broker.QueueConfig) string {
	switch {
	case q.RequiresSession:
		return "it requires sessions, which companions do not have; set RequiresSession to false"
	case q.ForwardTo != "":
		return fmt.Sprintf("it forwards to %s, where no monitor sees the companions; take ForwardTo out", q.ForwardTo)
	}
	return ""
}

// EmulatorWarnings are what a file of the emulator says in vain.
func (c *Config) EmulatorWarnings() []string {
	e := c.Broker.emulator
	if e == nil {
		return nil
	}
	all := slices.Clone(e.Warnings)
	for _, q := range e.Namespaces[0].Queues {
		if what := raised(q); what != "" && c.isMonitorQueue(q.Name) {
			all = append(all, what)
		}
	}
	return all
}

// OnDemandQueue is how a queue is made that is named first by a client: one that nobody described should show what
// became of its messages.
var OnDemandQueue = broker.QueueConfig{DeadLetteringOnMessageExpiration: true}

// The values of companionStore.
const (
	StoreQueue = "monitorQueue"
	StoreRedis = "redis"
)

// CompanionsInRedis reports whether Redis keeps the companions.
func (c *Config) CompanionsInRedis() bool { return c.CompanionStore == StoreRedis }

// checkStore refuses to keep companions nowhere.
func (c *Config) checkStore() error {
	if c.CompanionsInRedis() && c.Redis == "" {
		return fmt.Errorf("%s is redis, and there is no Redis to keep companions in; give its address with redis or redisFile", c.At("companionStore"))
	}
	if c.CompanionsInRedis() && c.MonitorQueues > 1 {
		return fmt.Errorf("%s is %d, but with companionStore: redis no companion is on a monitor queue; remove it", c.At("monitorQueues"), c.MonitorQueues)
	}
	return nil
}
