// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"slices"
	"strconv"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

var queueFields = slices.Concat([]field[broker.QueueInfo]{
	lock(func(q *broker.QueueInfo) *time.Duration { return &q.Config.LockDuration }),
	megabytes(func(q *broker.QueueInfo) *int64 { return &q.Config.MaxSize }),
	boolean("RequiresDuplicateDetection", func(q *broker.QueueInfo) *bool { return &q.Config.RequiresDuplicateDetection }),
	boolean("RequiresSession", func(q *broker.QueueInfo) *bool { return &q.Config.RequiresSession }),
	limit("DefaultMessageTimeToLive", MinTimeToLive,
		func(q *broker.QueueInfo) *time.Duration { return &q.Config.DefaultMessageTimeToLive }, queueStated),
	boolean("DeadLetteringOnMessageExpiration",
		func(q *broker.QueueInfo) *bool { return &q.Config.DeadLetteringOnMessageExpiration }),
	span("DuplicateDetectionHistoryTimeWindow", MinWindow, MaxWindow,
		func(q *broker.QueueInfo) *time.Duration { return &q.Config.DuplicateDetectionHistoryTimeWindow }),
	deliveries(func(q *broker.QueueInfo) *int { return &q.Config.MaxDeliveryCount }),
	inverse("EnableBatchedOperations", func(q *broker.QueueInfo) *bool { return &q.Config.DisableBatchedOperations }),
	text("SizeInBytes", func(q *broker.QueueInfo) string { return strconv.FormatInt(q.Counts.Size, 10) }),
	text("MessageCount", func(q *broker.QueueInfo) string { return messageCount(q.Counts) }),
	storedText("IsAnonymousAccessible", queueStated, "false", "true"),
	authorizationRules(func(q *broker.QueueInfo) *[]broker.AuthorizationRule { return &q.Config.AuthorizationRules }),
	status(func(q *broker.QueueInfo) *broker.Status { return &q.Config.Status }),
	destination("ForwardTo", func(q *broker.QueueInfo) *string { return &q.Config.ForwardTo }),
}, instants(
	func(q *broker.QueueInfo) time.Time { return q.CreatedAt },
	func(q *broker.QueueInfo) time.Time { return q.UpdatedAt },
	func(q *broker.QueueInfo) time.Time { return q.AccessedAt },
), []field[broker.QueueInfo]{
	words("UserMetadata", maxUserMetadata, func(q *broker.QueueInfo) *string { return &q.Config.UserMetadata }),
	supportOrdering(func(q *broker.QueueInfo) *bool { return &q.Config.EnablePartitioning }, queueStated),
	countDetails(func(q *broker.QueueInfo) queue.Counts { return q.Counts }),
	limit("AutoDeleteOnIdle", minAutoDelete,
		func(q *broker.QueueInfo) *time.Duration { return &q.Config.AutoDeleteOnIdle }, queueStated),
	boolean("EnablePartitioning", func(q *broker.QueueInfo) *bool { return &q.Config.EnablePartitioning }),
	availability(queueStated),
	destination("ForwardDeadLetteredMessagesTo",
		func(q *broker.QueueInfo) *string { return &q.Config.ForwardDeadLetteredMessagesTo }),
	boolean("EnableExpress", func(q *broker.QueueInfo) *bool { return &q.Config.EnableExpress }),
	since("2021-05", kilobytes(func(q *broker.QueueInfo) *uint64 { return &q.Config.MaxMessageSize })),
})

func queueStated(q *broker.QueueInfo) *map[string]string { return &q.Config.Stated }

var queues = &kind[broker.QueueInfo]{
	noun:   "Queue",
	fields: queueFields,
	parts: func(q *broker.QueueInfo) parts {
		return parts{
			name:             &q.Config.Name,
			created:          q.CreatedAt,
			updated:          q.UpdatedAt,
			maxSize:          &q.Config.MaxSize,
			maxMessageSize:   &q.Config.MaxMessageSize,
			partitioned:      &q.Config.EnablePartitioning,
			detectsDuplicate: &q.Config.RequiresDuplicateDetection,
			requiresSession:  &q.Config.RequiresSession,
			forwards:         [2]string{q.Config.ForwardTo, q.Config.ForwardDeadLetteredMessagesTo},
			stated:           &q.Config.Stated,
			unapplied:        &q.Config.Unapplied,
		}
	},
	all:  (*broker.Namespace).Queues,
	find: (*broker.Namespace).QueueInfo,
	create: func(ns *broker.Namespace, q broker.QueueInfo) (broker.QueueInfo, error) {
		return ns.CreateQueue(q.Config)
	},
	update: func(ns *broker.Namespace, q broker.QueueInfo) (broker.QueueInfo, error) {
		return ns.UpdateQueue(q.Config)
	},
}
