// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"slices"
	"strconv"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

var topicFields = slices.Concat([]field[broker.TopicInfo]{
	limit("DefaultMessageTimeToLive", MinTimeToLive,
		func(t *broker.TopicInfo) *time.Duration { return &t.Config.DefaultMessageTimeToLive }, topicStated),
	megabytes(func(t *broker.TopicInfo) *int64 { return &t.Config.MaxSize }),
	boolean("RequiresDuplicateDetection", func(t *broker.TopicInfo) *bool { return &t.Config.RequiresDuplicateDetection }),
	span("DuplicateDetectionHistoryTimeWindow", MinWindow, MaxWindow,
		func(t *broker.TopicInfo) *time.Duration { return &t.Config.DuplicateDetectionHistoryTimeWindow }),
	inverse("EnableBatchedOperations", func(t *broker.TopicInfo) *bool { return &t.Config.DisableBatchedOperations }),
	text("SizeInBytes", func(t *broker.TopicInfo) string { return strconv.FormatInt(t.Counts.Size, 10) }),
	storedText("FilteringMessagesBeforePublishing", topicStated, "false", "true"),
	storedText("IsAnonymousAccessible", topicStated, "false", "true"),
	authorizationRules(func(t *broker.TopicInfo) *[]broker.AuthorizationRule { return &t.Config.AuthorizationRules }),
	status(func(t *broker.TopicInfo) *broker.Status { return &t.Config.Status }),
}, instants(
	func(t *broker.TopicInfo) time.Time { return t.CreatedAt },
	func(t *broker.TopicInfo) time.Time { return t.UpdatedAt },
	func(t *broker.TopicInfo) time.Time { return t.AccessedAt },
), []field[broker.TopicInfo]{
	words("UserMetadata", maxUserMetadata, func(t *broker.TopicInfo) *string { return &t.Config.UserMetadata }),
	supportOrdering(func(t *broker.TopicInfo) *bool { return &t.Config.EnablePartitioning }, topicStated),
	countDetails(func(t *broker.TopicInfo) queue.Counts { return t.Counts }),
	text("SubscriptionCount", func(t *broker.TopicInfo) string { return strconv.Itoa(t.Subscriptions) }),
	since("2024-05", text("SqlFilterCount", func(t *broker.TopicInfo) string { return strconv.Itoa(t.SQLFilters) })),
	since("2024-05", text("CorrelationFilterCount", func(t *broker.TopicInfo) string { return strconv.Itoa(t.CorrelationFilters) })),
	limit("AutoDeleteOnIdle", minAutoDelete,
		func(t *broker.TopicInfo) *time.Duration { return &t.Config.AutoDeleteOnIdle }, topicStated),
	boolean("EnablePartitioning", func(t *broker.TopicInfo) *bool { return &t.Config.EnablePartitioning }),
	availability(topicStated),
	storedText("EnableSubscriptionPartitioning", topicStated, "false", "true"),
	boolean("EnableExpress", func(t *broker.TopicInfo) *bool { return &t.Config.EnableExpress }),
	since("2021-05", kilobytes(func(t *broker.TopicInfo) *uint64 { return &t.Config.MaxMessageSize })),
})

func topicStated(t *broker.TopicInfo) *map[string]string { return &t.Config.Stated }

var topics = &kind[broker.TopicInfo]{
	noun:   "Topic",
	fields: topicFields,
	parts: func(t *broker.TopicInfo) parts {
		return parts{
			name:             &t.Config.Name,
			created:          t.CreatedAt,
			updated:          t.UpdatedAt,
			maxSize:          &t.Config.MaxSize,
			maxMessageSize:   &t.Config.MaxMessageSize,
			partitioned:      &t.Config.EnablePartitioning,
			detectsDuplicate: &t.Config.RequiresDuplicateDetection,
			stated:           &t.Config.Stated,
			unapplied:        &t.Config.Unapplied,
		}
	},
	all:  (*broker.Namespace).Topics,
	find: (*broker.Namespace).TopicInfo,
	create: func(ns *broker.Namespace, t broker.TopicInfo) (broker.TopicInfo, error) {
		return ns.CreateTopic(t.Config)
	},
	update: func(ns *broker.Namespace, t broker.TopicInfo) (broker.TopicInfo, error) {
		return ns.UpdateTopic(t.Config)
	},
}
