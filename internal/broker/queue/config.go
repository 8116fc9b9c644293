// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"overdue/internal/broker/quirk"
)

// Expiry says when a waiting message that has outlived its time to live leaves the queue. In every
// mode an expired message is never delivered, and a locked one is left alone until its lock ends.
type Expiry int

const (
	// Lazy moves nothing until somebody receives; then everything expired is moved before anything is
	// delivered.
	Lazy Expiry = iota
	// LazyHead moves nothing until somebody receives, and then only what stands before the first live
	// message.
	LazyHead
	// Eager moves a message as soon as it expires.
	Eager
)

// Defaults of Config, those of Service Bus.
const (
	DefaultLockDuration                        = time.Minute
	DefaultMaxDeliveryCount                    = 10
	DefaultDuplicateDetectionHistoryTimeWindow = 10 * time.Minute
)

// Bounds of Config.DuplicateDetectionHistoryTimeWindow, those of Service Bus.
const (
	MinDuplicateDetectionHistoryTimeWindow = 20 * time.Second
	MaxDuplicateDetectionHistoryTimeWindow = 7 * 24 * time.Hour
)

// Config says how a queue behaves. The zero value is a lazy queue with the defaults of Service Bus.
type Config struct {
	// LockDuration is how long a delivery stays locked. 0 or less means DefaultLockDuration.
	LockDuration time.Duration
	// MaxDeliveryCount is how many deliveries may fail before the message is dead-lettered. 0 or less
	// means DefaultMaxDeliveryCount.
	MaxDeliveryCount int
	// DefaultMessageTimeToLive caps the time to live of every message. 0 or less means no cap.
	DefaultMessageTimeToLive time.Duration
	// DeadLetteringOnMessageExpiration moves expired messages to the dead-letter queue. Otherwise they
	// are dropped.
	DeadLetteringOnMessageExpiration bool
	// RequiresSession makes this a session queue: every message belongs to a session, and only
	// the holder of the session's lock receives it. See Sessions.Accept.
	RequiresSession bool
	// Expiry is when expired messages leave the queue.
	Expiry Expiry
	// Shared bounds the bytes held, those of the dead-letter queue and of the history of message-ids
	// included. Several queues may share it. nil: there is no bound.
	Shared *Quota
	// RequiresDuplicateDetection drops messages whose MessageID was sent before, within
	// DuplicateDetectionHistoryTimeWindow of the first. The sender gets no error.
	RequiresDuplicateDetection bool
	// DuplicateDetectionHistoryTimeWindow is brought within its bounds; 0 or less means the default.
	DuplicateDetectionHistoryTimeWindow time.Duration
	// Partitioned numbers messages as a partitioned entity does, see Partitions, and refuses those of
	// one send that do not belong together. Everything else stays as it is.
	Partitioned bool
	// Quirks are the ways in which the queue is not like one of Service Bus.
	Quirks quirk.Set
	// Log gets what has to outlive the process, see Restore. nil: nothing has to.
	Log Log
	// DeadLetters counts what goes to the dead-letter queue. nil: nobody asks.
	DeadLetters *Tally
	// Now is the broker's clock, nil means time.Now. It may be skewed against the machine's and may
	// step. It is called with the queue's mutex held, so it must not call the queue.
	Now func() time.Time
}

// settings is the Config of a queue, which those inside it share.
type settings struct {
	Config
	frozen bool // of a dead-letter queue: nothing expires there, and nobody sends to it
}

// change takes over what may change.
func (s *settings) change(cfg Config) {
	s.LockDuration = cfg.LockDuration
	s.MaxDeliveryCount = cfg.MaxDeliveryCount
	s.DeadLetteringOnMessageExpiration = cfg.DeadLetteringOnMessageExpiration
	s.DuplicateDetectionHistoryTimeWindow = cfg.DuplicateDetectionHistoryTimeWindow
	if !s.frozen {
		s.DefaultMessageTimeToLive = cfg.DefaultMessageTimeToLive
	}
}

// forDeadLetters is the settings of the dead-letter queue of a queue with these.
func (c Config) forDeadLetters() settings {
	c.DefaultMessageTimeToLive = 0
	c.RequiresDuplicateDetection = false
	c.RequiresSession = false // dead letters are received as they come
	return settings{c, true}
}

func (c Config) withDefaults() Config {
	if c.LockDuration <= 0 {
		c.LockDuration = DefaultLockDuration
	}
	if c.MaxDeliveryCount <= 0 {
		c.MaxDeliveryCount = DefaultMaxDeliveryCount
	}
	c.DefaultMessageTimeToLive = max(c.DefaultMessageTimeToLive, 0)
	if c.DuplicateDetectionHistoryTimeWindow <= 0 {
		c.DuplicateDetectionHistoryTimeWindow = DefaultDuplicateDetectionHistoryTimeWindow
	}
	c.DuplicateDetectionHistoryTimeWindow = min(max(c.DuplicateDetectionHistoryTimeWindow,
		MinDuplicateDetectionHistoryTimeWindow), MaxDuplicateDetectionHistoryTimeWindow)
	switch {
	case c.Quirks.Has(quirk.ExpiresAlone):
		c.Expiry = Eager
	case c.Quirks.Has(quirk.FlushHead):
		c.Expiry = LazyHead
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
