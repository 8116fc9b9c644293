// SPDX-License-Identifier: Apache-2.0

// Package entityfile writes the entities of a namespace into a file that makes them again: the
// configuration of Overdue, or the Config.json of the official emulator. Neither has messages or
// keys. Each setting that a file cannot hold is named: as a comment in YAML, in a list otherwise.
package entityfile

import (
	"cmp"
	"fmt"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
)

// Remarks are what is to be said of entities besides, by their paths.
type Remarks map[string][]string

// The files that can hold a property.
const (
	inYAML = 1 << iota
	inEmulator
	inBoth = inYAML | inEmulator
)

// A property is a setting of an entity. The name is that of the service.
type property struct {
	name     string
	value    any // bool, int, string or time.Duration
	standard any // what it is where nobody says anything
	in       int // files
}

func (p *property) given() bool { return p.value != p.standard }

// text is the property in a sentence.
func (p *property) text() string {
	switch v := p.value.(type) {
	case time.Duration:
		return p.name + ": " + duration.Format(v)
	case string:
		return fmt.Sprintf("%s: %.100q", p.name, v)
	}
	return fmt.Sprintf("%s: %v", p.name, p.value)
}

func queueProperties(q *broker.QueueConfig) []property {
	properties := receiving(q.LockDuration, q.MaxDeliveryCount, q.RequiresSession, q.DeadLetteringOnMessageExpiration)
	properties = append(properties, sending(q.DefaultMessageTimeToLive, q.RequiresDuplicateDetection, q.DuplicateDetectionHistoryTimeWindow)...)
	properties = append(properties, forwards(q.ForwardTo, q.ForwardDeadLetteredMessagesTo)...)
	properties = append(properties, store(q.EnablePartitioning, q.MaxSize, q.MaxMessageSize, q.EnableExpress, len(q.AuthorizationRules))...)
	return append(properties, kept(q.AutoDeleteOnIdle, q.Status, q.UserMetadata, q.DisableBatchedOperations)...)
}

func topicProperties(t *broker.TopicConfig) []property {
	properties := sending(t.DefaultMessageTimeToLive, t.RequiresDuplicateDetection, t.DuplicateDetectionHistoryTimeWindow)
	properties = append(properties, store(t.EnablePartitioning, t.MaxSize, t.MaxMessageSize, t.EnableExpress, len(t.AuthorizationRules))...)
	return append(properties, kept(t.AutoDeleteOnIdle, t.Status, t.UserMetadata, t.DisableBatchedOperations)...)
}

func subscriptionProperties(s *broker.SubscriptionConfig) []property {
	properties := receiving(s.LockDuration, s.MaxDeliveryCount, s.RequiresSession, s.DeadLetteringOnMessageExpiration)
	properties = append(properties,
		property{"DefaultMessageTimeToLive", s.DefaultMessageTimeToLive, time.Duration(0), inBoth},
		property{"DeadLetteringOnFilterEvaluationExceptions", !s.IgnoreFilterEvaluationExceptions, true, inYAML},
	)
	properties = append(properties, forwards(s.ForwardTo, s.ForwardDeadLetteredMessagesTo)...)
	return append(properties, kept(s.AutoDeleteOnIdle, s.Status, s.UserMetadata, s.DisableBatchedOperations)...)
}

// receiving are the properties of what messages are received from.
func receiving(lock time.Duration, deliveries int, sessions, deadLetters bool) []property {
	return []property{
		{"LockDuration", cmp.Or(lock, queue.DefaultLockDuration), queue.DefaultLockDuration, inBoth},
		{"MaxDeliveryCount", cmp.Or(deliveries, queue.DefaultMaxDeliveryCount), queue.DefaultMaxDeliveryCount, inBoth},
		{"RequiresSession", sessions, false, inBoth},
		{"DeadLetteringOnMessageExpiration", deadLetters, false, inBoth},
	}
}

// sending are the properties of what messages are sent to.
func sending(ttl time.Duration, duplicates bool, window time.Duration) []property {
	return []property{
		{"DefaultMessageTimeToLive", ttl, time.Duration(0), inBoth},
		{"RequiresDuplicateDetection", duplicates, false, inBoth},
		{"DuplicateDetectionHistoryTimeWindow", cmp.Or(window, broker.DefaultDuplicateDetectionWindow), broker.DefaultDuplicateDetectionWindow, inBoth},
	}
}

func forwards(to, deadLettersTo string) []property {
	return []property{
		{"ForwardTo", pathOf(to), "", inBoth},
		{"ForwardDeadLetteredMessagesTo", pathOf(deadLettersTo), "", inBoth},
	}
}

// pathOf is the path of what an entity forwards to. The service has a URL there.
func pathOf(to string) string {
	a, err := address.Parse(to)
	if err != nil {
		return to
	}
	return a.String()
}

func store(partitioned bool, size int64, messageSize uint64, express bool, keys int) []property {
	properties := []property{
		{"EnablePartitioning", partitioned, false, inYAML},
		{"MaxSizeInMegabytes", int((size + 1<<20 - 1) >> 20), 0, inYAML},
		{"EnableExpress", express, false, 0},
	}
	// Unless a namespace is of the tier Premium, all entities have that of the namespace.
	if kilobytes := int(messageSize >> 10); kilobytes > broker.DefaultMaxMessageSize>>10 {
		properties = append(properties, property{"MaxMessageSizeInKilobytes", kilobytes, 0, 0})
	}
	return append(properties, property{"AuthorizationRules", keys, 0, 0})
}

func kept(idle time.Duration, status broker.Status, metadata string, unbatched bool) []property {
	return []property{
		{"AutoDeleteOnIdle", idle, time.Duration(0), inYAML},
		{"Status", status.String(), broker.Active.String(), 0},
		{"UserMetadata", metadata, "", 0},
		{"EnableBatchedOperations", !unbatched, true, 0},
	}
}
