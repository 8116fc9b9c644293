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

var queueFields = slices.Concat([]field[broker.QueueInfo]{
	lock(func(q *broker.QueueInfo) *time.Duration { return &q.Config.LockDuration }),
	megabytes(func(q *broker.QueueInfo) *int64 { return &q.Config.MaxSize }),
	boolean("RequiresDuplicateDetection", func(q *broker.QueueInfo) *bool { return &q.Config.RequiresDuplicateDetection }),
	boolean("RequiresSession", func(q *broker.QueueInfo) *bool { return &q.Config.RequiresSession }),
	limit("DefaultMessageTimeToLive", minTimeToLive,
		func(q *broker.QueueInfo) *time.Duration { return &q.Config.DefaultMessageTimeToLive }, queueStated),
	boolean("DeadLetteringOnMessageExpiration",
		func(q *broker.QueueInfo) *bool { return &q.Config.DeadLetteringOnMessageExpiration }),
	span("DuplicateDetectionHistoryTimeWindow", minWindow, maxWindow,
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

func (c *call) queueEntry(q broker.QueueInfo) entry { return c.queueAnswer(q, nil) }

// queueAnswer is queueEntry where the answer has something instead of what some
// elements are like.
func (c *call) queueAnswer(q broker.QueueInfo, instead map[string]string) entry {
	q.Config.MaxMessageSize = cmp.Or(q.Config.MaxMessageSize, c.ns.MaxMessageSize())
	return entry{
		title: q.Config.Name, created: q.CreatedAt, updated: q.UpdatedAt, authored: true,
		content: func(w writer) {
			writeFields(w, "QueueDescription", c.version, queueFields, &q, instead, q.Config.Unapplied)
		},
	}
}

func (c *call) listQueues() error {
	if err := c.allow(Read, ""); err != nil {
		return err
	}
	return list(c, "Queues", c.ns.Queues(), c.queueEntry)
}

func (c *call) putQueue(d *node) error {
	if c.updates() {
		return c.updateQueue(d)
	}
	q := c.newQueue()
	if err := c.readQueue(d, &q); err != nil {
		return err
	}
	q.Config.Name = c.target.Name
	if err := c.destinations(q.Config.ForwardTo, q.Config.ForwardDeadLetteredMessagesTo); err != nil {
		return err
	}
	q, err := c.ns.CreateQueue(q.Config)
	if err != nil {
		return err
	}
	return c.writeEntry(http.StatusCreated, c.queueAnswer(q, unused))
}

// newQueue is a queue of which nothing has been said.
func (c *call) newQueue() broker.QueueInfo {
	return broker.QueueInfo{Config: broker.QueueConfig{MaxSize: defaultSize, MaxMessageSize: c.defaultMessageSize()}}
}

func (c *call) updateQueue(d *node) error {
	q, err := c.ns.QueueInfo(c.target.Name)
	if err != nil {
		return err
	}
	was := q.Config
	q.Config.MaxMessageSize = cmp.Or(q.Config.MaxMessageSize, c.ns.MaxMessageSize())
	fresh := c.newQueue()
	forgetFields(d, queueFields, &q, &fresh)
	q.Config.Stated = c.statedByUpdate(d)
	if err := c.readQueue(d, &q); err != nil {
		return err
	}
	switch {
	case q.Config.RequiresSession != was.RequiresSession:
		return d.cannotChange("RequiresSession")
	case q.Config.RequiresDuplicateDetection != was.RequiresDuplicateDetection:
		return d.cannotChange("RequiresDuplicateDetection")
	case q.Config.EnablePartitioning != was.EnablePartitioning:
		return badRequest("Partitioning cannot be changed for Queue. ")
	}
	if err := c.destinations(q.Config.ForwardTo, q.Config.ForwardDeadLetteredMessagesTo); err != nil {
		return err
	}
	if q, err = c.ns.UpdateQueue(q.Config); err != nil {
		return err
	}
	return c.writeEntry(http.StatusOK, c.queueAnswer(q, echo(c, d, queueFields)))
}

func (c *call) readQueue(d *node, q *broker.QueueInfo) error {
	was := q.Config
	err := readFields(c, d, queueFields, q)
	if err != nil {
		return err
	}
	if q.Config.MaxSize, err = c.size(d, q.Config.EnablePartitioning, was.MaxSize, q.Config.MaxSize); err != nil {
		return err
	}
	if q.Config.ForwardTo != "" {
		delete(q.Config.Stated, "AutoDeleteOnIdle") // it is forever then
	}
	q.Config.Unapplied = d.unapplied
	return c.messageSize(d, was.MaxMessageSize, q.Config.MaxMessageSize)
}
