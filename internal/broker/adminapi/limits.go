// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
)

// Bounds of the service. A namespace of a test may have entities beyond them, by
// its configuration.
const (
	MinLockDuration = time.Millisecond // ours: the service documents none
	MaxLockDuration = 5 * time.Minute
	MinTimeToLive   = time.Second
	minAutoDelete   = 5 * time.Minute
	MinWindow       = 20 * time.Second
	MaxWindow       = 7 * 24 * time.Hour
	maxUserMetadata = 1024 // characters
	maxForward      = 2048 // characters of a path or URL
	maxExpression   = 1024 // characters of a SQL filter or action

	// Sizes in megabytes are whole gigabytes. Clients give that of one partition,
	// and read that of all of them.
	sizeStep        = 1024
	maxStandardSize = 5 * 1024
	maxPremiumSize  = 80 * 1024
	partitions      = 16
	defaultSize     = sizeStep << 20 // bytes

	// On Premium, where messages have a size to set. The smaller one is the default.
	minMessageKilobytes = 1 << 10
	maxMessageKilobytes = 100 << 10
)

// megabytes is the size of an entity. Its bounds are the tier's, see size. 0 is no bound to the
// broker, which is nothing that the service can say: it is shown as the default.
func megabytes[T any](at func(*T) *int64) field[T] {
	return whole("MaxSizeInMegabytes", math.MinInt64>>20, math.MaxInt64>>20, sizeStep,
		func(v *T) int64 {
			if *at(v) == 0 {
				return sizeStep
			}
			return (*at(v)-1)>>20 + 1
		},
		func(v *T, megabytes int64) { *at(v) = megabytes << 20 })
}

// size is the bytes of an entity that d states the size of, or that of one of its
// partitions; was is what it had. A client that writes back what it read names that
// of all partitions.
func (s space) size(d *node, partitioned bool, was, now int64) (int64, error) {
	most := int64(maxStandardSize)
	if s.tier() == premium {
		most = maxPremiumSize
	}
	switch {
	case now != was && (now < sizeStep<<20 || now > most<<20):
		return 0, d.child("MaxSizeInMegabytes").outside(sizeStep, most, now>>20)
	case partitioned && now > 0 && now <= maxStandardSize<<20:
		return now * partitions, nil
	}
	return now, nil
}

// kilobytes is the size of a message. Its bounds are the tier's, see messageSize.
func kilobytes[T any](at func(*T) *uint64) field[T] {
	return whole(maxMessageSize, 0, math.MaxInt64>>10, 1,
		func(v *T) int64 { return int64(min(*at(v), math.MaxInt64-1023)+1023) >> 10 },
		func(v *T, kilobytes int64) { *at(v) = uint64(kilobytes) << 10 })
}

const maxMessageSize = "MaxMessageSizeInKilobytes"

// messageSize checks what d says about the size of messages, which was so many
// bytes before: it is only for a Premium namespace to say. A client that writes
// back what it read says nothing new.
func (s space) messageSize(d *node, was, now uint64) error {
	n := d.child(maxMessageSize)
	switch kilobytes := now >> 10; {
	case n == nil || now == was:
		return nil
	case s.tier() != premium:
		return refusef(http.StatusBadRequest, "SubCode=40000. Bad Request.%s .", knowMore)
	case kilobytes < minMessageKilobytes || kilobytes > maxMessageKilobytes:
		return n.refuse(fmt.Sprintf("The property value for '%s' must be between %d and %d when the namespace '%s' is using 'Premium' tier.",
			maxMessageSize, minMessageKilobytes, maxMessageKilobytes, s.name()), kilobytes)
	}
	return nil
}

// defaultMessageSize is what a message may have in bytes in an entity that does not say.
func (s space) defaultMessageSize() uint64 {
	return min(s.MaxMessageSize(), minMessageKilobytes<<10)
}

// lock is the LockDuration.
func lock[T any](at func(*T) *time.Duration) field[T] {
	f := span("LockDuration", MinLockDuration, MaxLockDuration, at)
	inBounds := f.read
	f.read = func(n *node, v *T) error {
		if d, ok := duration.ParseISO8601(n.value()); ok && d > MaxLockDuration && d != *at(v) {
			return n.refuse("The supplied lock time exceeds the allowed maximum of '5' minutes."+knowMore+" ", timeSpan(d))
		}
		return inBounds(n, v)
	}
	return f
}

func deliveries[T any](at func(*T) *int) field[T] {
	return whole("MaxDeliveryCount", 1, broker.MaxMaxDeliveryCount, 1,
		func(v *T) int64 { return int64(*at(v)) },
		func(v *T, n int64) { *at(v) = int(n) })
}

// cannotChange refuses to change a property of d, which describes a Queue, a Topic or a
// Subscription.
func (d *node) cannotChange(property string) error {
	return refusef(http.StatusBadRequest, "%sThe value for the %s property of an existing %s cannot be changed.%s .",
		d.subCode(), property, strings.TrimSuffix(d.name.Local, "Description"), knowMore)
}

// destinations checks that there is something to forward to, messages and dead letters, and that it
// may be. Where queues are made on demand this makes them. The broker refuses an entity that leads
// to itself.
func (c *call) destinations(forwards [2]string) error {
	for i, to := range forwards {
		at, err := address.Parse(to)
		if err != nil {
			return badRequest("The messaging entity to forward to could not be found: %v.", err)
		}
		if to == "" || strings.EqualFold(at.String(), c.target.Path) {
			continue
		}
		if !c.at.isHere(to) {
			return badRequest("The messaging entity '%.300s' to forward to is in another namespace.", to)
		}
		if err := c.gate.allowForward(at.String(), forwardTokens[i]); err != nil {
			return err
		}
		if e, err := c.ns.Entity(to); errors.Is(err, broker.ErrEntityNotFound) {
			return refusef(http.StatusBadRequest, "SubCode=40400. The auto forwarding destination entity does not exist.%s .", knowMore)
		} else if err != nil {
			return err
		} else if e.Kind() == broker.KindSubscription {
			return badRequest("Messages cannot be forwarded to '%.300s', which is a subscription.", to)
		}
	}
	return nil
}
