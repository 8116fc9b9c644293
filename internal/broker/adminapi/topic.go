// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

var topicFields = slices.Concat([]field[broker.TopicInfo]{
	limit("DefaultMessageTimeToLive", minTimeToLive,
		func(t *broker.TopicInfo) *time.Duration { return &t.Config.DefaultMessageTimeToLive }, topicStated),
	megabytes(func(t *broker.TopicInfo) *int64 { return &t.Config.MaxSize }),
	boolean("RequiresDuplicateDetection", func(t *broker.TopicInfo) *bool { return &t.Config.RequiresDuplicateDetection }),
	span("DuplicateDetectionHistoryTimeWindow", minWindow, maxWindow,
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

func (c *call) topicEntry(t broker.TopicInfo) entry { return c.topicAnswer(t, nil) }

// topicAnswer is like queueAnswer.
func (c *call) topicAnswer(t broker.TopicInfo, instead map[string]string) entry {
	t.Config.MaxMessageSize = cmp.Or(t.Config.MaxMessageSize, c.ns.MaxMessageSize())
	return entry{
		title: t.Config.Name, created: t.CreatedAt, updated: t.UpdatedAt, authored: true,
		content: func(w writer) {
			writeFields(w, "TopicDescription", c.version, topicFields, &t, instead, t.Config.Unapplied)
		},
	}
}

func (c *call) listTopics() error {
	if err := c.allow(Read, ""); err != nil {
		return err
	}
	return list(c, "Topics", c.ns.Topics(), c.topicEntry)
}

func (c *call) putTopic(d *node) error {
	if c.updates() {
		return c.updateTopic(d)
	}
	t := c.newTopic()
	if err := c.readTopic(d, &t); err != nil {
		return err
	}
	t.Config.Name = c.target.Name
	t, err := c.ns.CreateTopic(t.Config)
	if err != nil {
		return err
	}
	return c.writeEntry(http.StatusCreated, c.topicAnswer(t, unused))
}

// newTopic is a topic of which nothing has been said.
func (c *call) newTopic() broker.TopicInfo {
	return broker.TopicInfo{Config: broker.TopicConfig{MaxSize: defaultSize, MaxMessageSize: c.defaultMessageSize()}}
}

func (c *call) updateTopic(d *node) error {
	t, err := c.ns.TopicInfo(c.target.Name)
	if err != nil {
		return err
	}
	was := t.Config
	t.Config.MaxMessageSize = cmp.Or(t.Config.MaxMessageSize, c.ns.MaxMessageSize())
	fresh := c.newTopic()
	forgetFields(d, topicFields, &t, &fresh)
	t.Config.Stated = c.statedByUpdate(d)
	if err := c.readTopic(d, &t); err != nil {
		return err
	}
	switch {
	case t.Config.RequiresDuplicateDetection != was.RequiresDuplicateDetection:
		return d.cannotChange("RequiresDuplicateDetection")
	case t.Config.EnablePartitioning != was.EnablePartitioning:
		return badRequest("Partitioning cannot be changed for Topic. ")
	}
	if t, err = c.ns.UpdateTopic(t.Config); err != nil {
		return err
	}
	return c.writeEntry(http.StatusOK, c.topicAnswer(t, echo(c, d, topicFields)))
}

func (c *call) readTopic(d *node, t *broker.TopicInfo) error {
	was := t.Config
	err := readFields(c, d, topicFields, t)
	if err != nil {
		return err
	}
	if t.Config.MaxSize, err = c.size(d, t.Config.EnablePartitioning, was.MaxSize, t.Config.MaxSize); err != nil {
		return err
	}
	t.Config.Unapplied = d.unapplied
	return c.messageSize(d, was.MaxMessageSize, t.Config.MaxMessageSize)
}
