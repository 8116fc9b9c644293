// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"errors"
	"math"
	"strings"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
)

// Bounds of the service. A namespace of a test may have entities beyond them, by
// its configuration.
const (
	minLockDuration  = time.Millisecond // ours: the service documents none
	maxLockDuration  = 5 * time.Minute
	minTimeToLive    = time.Second
	minAutoDelete    = 5 * time.Minute
	minWindow        = 20 * time.Second
	maxWindow        = 7 * 24 * time.Hour
	maxDeliveryCount = 2000
	maxUserMetadata  = 1024 // characters
	maxForward       = 2048 // characters of a path or URL
	maxExpression    = 1024 // characters of a SQL filter or action

	// Sizes in megabytes are whole gigabytes. Clients give that of one partition,
	// and read that of all of them.
	sizeStep     = 1024
	maxPlainSize = 5 * 1024
	maxSize      = 80 * 1024
	partitions   = 16
	defaultSize  = sizeStep << 20 // bytes

	// On Premium, where messages have a size to set.
	minMessageKilobytes = 1 << 10
	maxMessageKilobytes = 100 << 10
)

// megabytes is the size of an entity. 0 is no bound to the broker, which is
// nothing that the service can say: it is shown as the default.
func megabytes[T any](at func(*T) *int64) field[T] {
	return whole("MaxSizeInMegabytes", sizeStep, maxSize, sizeStep,
		func(v *T) int64 {
			if *at(v) == 0 {
				return sizeStep
			}
			return (*at(v)-1)>>20 + 1
		},
		func(v *T, megabytes int64) { *at(v) = megabytes << 20 })
}

// ofAllPartitions is the size of an entity that was given the size of one of its
// partitions. A client that writes back what it read names that of all.
func ofAllPartitions(partitioned bool, size int64) int64 {
	if partitioned && size <= maxPlainSize<<20 && size > 0 {
		return size * partitions
	}
	return size
}

// kilobytes is the size of a message. Its bounds are the tier's, see messageSize.
func kilobytes[T any](at func(*T) *uint64) field[T] {
	return whole(maxMessageSize, 0, math.MaxInt64>>10, 1,
		func(v *T) int64 { return int64(min(*at(v), math.MaxInt64-1023)+1023) >> 10 },
		func(v *T, kilobytes int64) { *at(v) = uint64(kilobytes) << 10 })
}

const maxMessageSize = "MaxMessageSizeInKilobytes"

// messageSize checks what d says about the size of messages, which was so many
// bytes before: it is only for a Premium namespace to say, and the words are the
// service's, from Azure/ResourceModules issue 2629. A client that writes back
// what it read says nothing new.
func (c *call) messageSize(d *node, was, now uint64) error {
	switch kilobytes := now >> 10; {
	case d.child(maxMessageSize) == nil || now == was:
		return nil
	case c.tier() != premium:
		return badRequest("The property '%s' can only be set when the namespace '%s' is using 'Premium' tier. It is using '%s' tier.",
			maxMessageSize, c.name(), c.tier())
	case kilobytes < minMessageKilobytes || kilobytes > maxMessageKilobytes:
		return badRequest("The property value for '%s' must be between %d and %d when the namespace '%s' is using 'Premium' tier.",
			maxMessageSize, minMessageKilobytes, maxMessageKilobytes, c.name())
	}
	return nil
}

func deliveries[T any](at func(*T) *int) field[T] {
	return whole("MaxDeliveryCount", 1, maxDeliveryCount, 1,
		func(v *T) int64 { return int64(*at(v)) },
		func(v *T, n int64) { *at(v) = int(n) })
}

// cannotChange is in the words that tests of the SDKs look for.
func cannotChange(property, what string) error {
	return badRequest("The value for the %s property of an existing %s cannot be changed.", property, what)
}

// destinations checks that there is something to forward to, messages and dead
// letters, and that it may be. Where queues are made on demand this makes them.
// What leads to itself is left for the broker to refuse.
func (c *call) destinations(forwardTo, forwardDeadLettersTo string) error {
	for i, to := range [...]string{forwardTo, forwardDeadLettersTo} {
		at, err := address.Parse(to)
		if err != nil {
			return badRequest("The messaging entity to forward to could not be found: %v.", err)
		}
		if to == "" || strings.EqualFold(at.String(), c.target.Path) {
			continue
		}
		if err := c.allowForward(at.String(), forwardTokens[i]); err != nil {
			return err
		}
		if e, err := c.ns.Entity(to); errors.Is(err, broker.ErrEntityNotFound) {
			return badRequest("The messaging entity '%.300s' to forward to could not be found.", to)
		} else if err != nil {
			return err
		} else if e.Kind() == broker.KindSubscription {
			return badRequest("Messages cannot be forwarded to '%.300s', which is a subscription.", to)
		}
	}
	return nil
}
