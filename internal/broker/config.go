// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"math"
	"time"

	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
)

// Bounds and defaults, those of a Standard namespace where it has any.
const (
	// DefaultMaxMessageSize is the largest message, in bytes.
	DefaultMaxMessageSize = 256 << 10
	// DefaultMaxEntities is how many queues and topics a namespace holds.
	DefaultMaxEntities = 10_000
	// MaxMaxDeliveryCount is the largest MaxDeliveryCount.
	MaxMaxDeliveryCount = math.MaxInt32
	// MaxSubscriptions is how many subscriptions a topic holds.
	MaxSubscriptions = 2_000
	// DefaultDuplicateDetectionWindow is for how long message-ids are remembered.
	DefaultDuplicateDetectionWindow = 10 * time.Minute

	minMaxMessageSize = 1 << 10 // less has no room for a reply
	maxMaxMessageSize = 100 << 20
	maxBatchSize      = 1 << 20 // bytes per batch, however large one message may be
	maxNameLength     = 260     // of an entity path
	maxShortName      = 50      // of a subscription or a rule
)

// Config configures a Broker. The zero value is a namespace without entities.
type Config struct {
	// Queues exist from the start, in the default namespace. Those that the Disk has stay as they are, see
	// Broker.Differences.
	Queues []QueueConfig
	// Topics exist from the start, as Queues do.
	Topics []TopicSetup
	// Namespaces exist from the start beside the default one, whose entities Queues and Topics are.
	// A client names one by the name of its key, or by its host.
	Namespaces []NamespaceSetup
	// DefaultName is one that means the default namespace. "" is none.
	DefaultName string
	// Isolate lets clients name namespaces that Namespaces does not have. They are made with the
	// entities of the default one.
	Isolate bool
	// Keys are the authorization rules of the namespace. As long as there are none
	// the broker is open: every token is good, and none is needed, whatever rules
	// entities have. With keys, the tokens of a client say what it may do, and
	// the rules of entities count too.
	Keys []AuthorizationRule
	// AcceptJWT lets every JSON Web Token in, unread, with all claims: whose they
	// are, only Microsoft Entra could tell. It is for tests of clients that have
	// nothing else. Only with Keys.
	AcceptJWT bool
	// AutoCreate makes a queue like AutoCreateConfig exist from the
	// time a client opens a link to it or schedules a message on it.
	AutoCreate bool
	// AutoCreateConfig is what such a queue is like; its Name is not used. The
	// zero value is a queue with the defaults, which drops what expires.
	AutoCreateConfig QueueConfig
	// MaxEntities bounds the queues and topics of a namespace, however they are
	// made. 0 means DefaultMaxEntities.
	MaxEntities int
	// Disk keeps the entities and what they hold. nil: memory alone does.
	Disk Disk
	// Expiry says when expired messages leave their queue. The zero value is
	// lazy, like the service.
	Expiry queue.Expiry
	// Quirks are the ways in which the broker is not like the service.
	Quirks quirk.Set
	// ClockOffset is the broker's clock minus the machine's, to test skew.
	ClockOffset time.Duration
	// MaxMessageSize bounds a message, and a batch, in bytes. It is advertised on
	// every link. 0 means DefaultMaxMessageSize; at most 100 MiB.
	MaxMessageSize uint64
	// LinkIdleTimeout detaches a link over which nothing passes for so long, and
	// ConnectionIdleTimeout closes a connection without links. Those to $cbs stay, and
	// do not count. The service allows ten and five minutes. 0 means for ever.
	LinkIdleTimeout, ConnectionIdleTimeout time.Duration
	// ErrorLog gets the reason of each connection that did not end cleanly. It may
	// be called from several goroutines at once. nil drops the errors.
	ErrorLog func(error)
	// Trace, if set, gets every AMQP performative, see server.Config.
	Trace func(dir, line string)
}

// check returns what is wrong with c, all of it.
func (c *Config) check() error {
	var errs []error
	if size := c.MaxMessageSize; size != 0 && (size < minMaxMessageSize || size > maxMaxMessageSize) {
		errs = append(errs, fmt.Errorf("broker: MaxMessageSize %d is not within %d and %d bytes",
			size, minMaxMessageSize, maxMaxMessageSize))
	}
	if c.MaxEntities < 0 {
		errs = append(errs, fmt.Errorf("broker: MaxEntities %d is negative", c.MaxEntities))
	}
	if c.Expiry < queue.Lazy || c.Expiry > queue.Eager {
		errs = append(errs, fmt.Errorf("broker: Expiry %d does not exist", c.Expiry))
	}
	for _, n := range c.Namespaces {
		if !validNamespaceName(n.Name) {
			errs = append(errs, fmt.Errorf("broker: no namespace can be called %.300q", n.Name))
		}
	}
	errs = append(errs, checkKeys(c.Keys))
	auto := c.AutoCreateConfig
	auto.Name = "auto" // any that is valid: it gets the one that a client names
	errs = append(errs, auto.check())
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MaxMessageSize == 0 {
		c.MaxMessageSize = DefaultMaxMessageSize
	}
	if c.MaxEntities == 0 {
		c.MaxEntities = DefaultMaxEntities
	}
	return c
}
