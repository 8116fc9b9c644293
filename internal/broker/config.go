// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"time"

	"overdue/internal/queue"
)

// Bounds and defaults, those of a Standard namespace where it has any.
const (
	// DefaultMaxMessageSize is the largest message, in bytes.
	DefaultMaxMessageSize = 256 << 10
	// DefaultMaxQueues is how many queues a namespace holds.
	DefaultMaxQueues = 10_000

	minMaxMessageSize = 1 << 10 // less has no room for a reply
	maxMaxMessageSize = 100 << 20
	maxBatchMessages  = 4500 // messages per batch and per schedule request
	maxNameLength     = 260  // of an entity path
	maxIDLength       = 128  // characters of a message-id, session-id or partition key
)

// Config configures a Broker. The zero value is a namespace without queues.
type Config struct {
	// Queues exist from the start.
	Queues []QueueConfig
	// AutoCreate makes a queue like AutoCreateConfig exist from the
	// moment a client opens a link to it or schedules a message on it.
	AutoCreate bool
	// AutoCreateConfig is what such a queue is like; its Name is not used. The
	// zero value is a queue with the defaults, which drops what expires.
	AutoCreateConfig QueueConfig
	// MaxQueues bounds AutoCreate and AddQueue. 0 means DefaultMaxQueues.
	MaxQueues int
	// Expiry says when expired messages leave their queue. The zero value is
	// lazy, like the service.
	Expiry queue.Expiry
	// ClockOffset is the broker's clock minus the machine's, to test skew.
	ClockOffset time.Duration
	// MaxMessageSize bounds a message, and a batch, in bytes. It is advertised on
	// every link. 0 means DefaultMaxMessageSize; at most 100 MiB.
	MaxMessageSize uint64
	// ErrorLog is told why connections ended, unless they ended cleanly. It may
	// be called from several goroutines at once. nil drops the errors.
	ErrorLog func(error)
	// Trace, if set, is told every AMQP performative, see amqpserver.Config.
	Trace func(dir, line string)
}

// QueueConfig says how one queue behaves. The names are those of the service.
type QueueConfig struct {
	// Name is the path of the queue: letters, digits, '.', '-', '_' and '/', at
	// most 260 bytes. Names that differ only in case are one name.
	Name string
	// LockDuration is how long a delivery stays locked. 0 means one minute.
	LockDuration time.Duration
	// MaxDeliveryCount is after how many failed deliveries a message is
	// dead-lettered. 0 means 10.
	MaxDeliveryCount int
	// DefaultMessageTimeToLive caps the time to live of every message. 0 means
	// no cap.
	DefaultMessageTimeToLive time.Duration
	// DeadLetteringOnMessageExpiration moves expired messages to the dead-letter
	// queue. Otherwise they are dropped.
	DeadLetteringOnMessageExpiration bool
	// MaxSize bounds the bytes held, the dead-letter queue included. 0 means no
	// bound.
	MaxSize int64
}

// check returns what is wrong with c, all of it.
func (c *Config) check() error {
	var errs []error
	if size := c.MaxMessageSize; size != 0 && (size < minMaxMessageSize || size > maxMaxMessageSize) {
		errs = append(errs, fmt.Errorf("broker: MaxMessageSize %d is not within %d and %d bytes",
			size, minMaxMessageSize, maxMaxMessageSize))
	}
	if c.MaxQueues < 0 {
		errs = append(errs, fmt.Errorf("broker: MaxQueues %d is negative", c.MaxQueues))
	}
	if c.Expiry < queue.Lazy || c.Expiry > queue.Eager {
		errs = append(errs, fmt.Errorf("broker: Expiry %d does not exist", c.Expiry))
	}
	auto := c.AutoCreateConfig
	auto.Name = "auto" // any that is valid: it gets the one that a client names
	errs = append(errs, auto.check())
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MaxMessageSize == 0 {
		c.MaxMessageSize = DefaultMaxMessageSize
	}
	if c.MaxQueues == 0 {
		c.MaxQueues = DefaultMaxQueues
	}
	return c
}

// check returns what is wrong with c, all of it.
func (c *QueueConfig) check() error {
	var errs []error
	if !validName(c.Name) {
		errs = append(errs, fmt.Errorf("broker: %.300q is no name for a queue", c.Name))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"LockDuration", c.LockDuration},
		{"DefaultMessageTimeToLive", c.DefaultMessageTimeToLive},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("broker: queue %.300q: %s %v is negative", c.Name, d.name, d.value))
		}
	}
	if c.MaxDeliveryCount < 0 {
		errs = append(errs, fmt.Errorf("broker: queue %.300q: MaxDeliveryCount %d is negative", c.Name, c.MaxDeliveryCount))
	}
	if c.MaxSize < 0 {
		errs = append(errs, fmt.Errorf("broker: queue %.300q: MaxSize %d is negative", c.Name, c.MaxSize))
	}
	return errors.Join(errs...)
}

func (c QueueConfig) withDefaults() QueueConfig {
	if c.LockDuration == 0 {
		c.LockDuration = queue.DefaultLockDuration
	}
	if c.MaxDeliveryCount == 0 {
		c.MaxDeliveryCount = queue.DefaultMaxDeliveryCount
	}
	return c
}
