// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/quirk"
)

// The rows of the embedded broker.

var brokerSettings = slices.Concat([]*Setting{
	{Path: "broker.enabled", Kind: KindBool, Default: "true", DefaultNote: "; false in the image and as a service",
		Help: "Whether `overdue run` brings the embedded broker where no namespace is given. Unless broker.directory is set, it keeps messages in memory, so they are lost at stop. With `false` it refuses to start without a namespace. The default is `false` where `OVERDUE_UNATTENDED` is set, as it is in the image and in the unit of systemd."},
	{Path: "broker.directory", Kind: kindFile, Flag: "broker-directory",
		Help: "The directory in which the embedded broker keeps its entities and messages, so that they survive a restart, a kill and a loss of power. It belongs to one process and lies on a local disk; the directory above it has to exist. Without it, everything is in memory and lost at stop."},
	{Path: "broker.listen", Kind: kindEndpoint, Default: "127.0.0.1:5673", Flag: "broker-listen",
		Help: "Where the embedded broker listens: for AMQP, AMQP over WebSocket, TLS and HTTP, as their first bytes show. What is sent there directly is not monitored. Port 0 takes any free one."},
	{Path: "broker.alsoListen", Kind: kindEndpoints, Flag: "broker-also-listen",
		Help: "Further addresses for the same, separated by commas. `127.0.0.1:5672,127.0.0.1:5300` are those of the official emulator."},
	{Path: "broker.tls.enabled", Kind: KindBool, Default: "false", Flag: "tls",
		Help: "Whether the embedded broker speaks TLS. Without certFile it makes a certificate of its own, and prints where it is."},
	{Path: "broker.tls.listen", Kind: kindEndpoint, Default: "127.0.0.1:5671", DefaultNote: "; none when broker.listen takes any free port",
		Help: "One more address when TLS is enabled: the port that clients choose by themselves. All others speak TLS then, too."},
}, certificateSettings("broker.tls"), []*Setting{
	{Path: "broker.keys", Kind: kindList,
		Help: "The keys of the embedded broker. Without this list every key is good, and none is needed."},
}, keySettings("broker.keys"), []*Setting{
	{Path: "broker.acceptJwt", Kind: KindBool, Default: "false",
		Help: "Whether any token of Microsoft Entra ID is good in addition to the keys. The broker cannot check whose it is."},
	{Path: "broker.isolate", Kind: KindBool, Default: "false", Flag: "isolate",
		Help: "Whether each SharedAccessKeyName other than RootManageSharedAccessKey is a namespace of its own, so that parallel tests share one broker."},
	{Path: "broker.expiry", Kind: KindChoice, Default: "lazy", Choices: []string{"lazy", "lazy-head", "eager"}, Flag: "broker-expiry",
		Help: "When expired messages leave a queue of the embedded broker: `lazy`, as in Azure, moves all of them when somebody receives; " +
			"`lazy-head` then moves only what stands before the first live message; `eager` moves each at once."},
	{Path: "broker.quirks", Kind: kindStrings, Choices: quirk.Names(),
		Help: "Ways in which the embedded broker differs from what is assumed of Service Bus, separated by commas; docs/internals/servicebus.md explains each. " +
			"For tests of what happens if an assumption is wrong."},
	{Path: "broker.autoCreate", Kind: KindBool, Default: "false", DefaultNote: "; true without a file", Flag: "broker-auto-create",
		Help: "Whether a queue exists from the moment a client names it. Such a queue dead-letters what expires, so that Overdue can do its work; in Azure, deadLetteringOnMessageExpiration is off by default."},
	{Path: "broker.monitorQueue", Kind: KindBool, Default: "true", Flag: "broker-monitor-queue",
		Help: "Whether `overdue broker` makes the monitor queue, so that a proxy and a monitor can use it at once. `overdue run` always does."},
	{Path: "broker.clockOffset", Kind: kindDuration, Default: "0s", min: -day / 2, max: day / 2,
		Help: "How far the embedded broker's clock is ahead of the machine's. For tests of skewed clocks."},
	{Path: "broker.maxMessageSize", Kind: kindSize, Default: "256KiB", min: 1 << 10, max: 100 << 20,
		Help: "The largest message that the embedded broker takes. 256 KiB is that of the Standard tier."},
	{Path: "broker.linkIdleTimeout", Kind: kindDuration, Default: "0s", max: day,
		Help: "Detach a link that has been idle for this long, unless it leads to `$cbs`. Azure does so after 10m; 0 = never."},
	{Path: "broker.connectionIdleTimeout", Kind: kindDuration, Default: "0s", max: day,
		Help: "Close a connection that has had no link for this long, but to `$cbs`. Azure does so after 5m; 0 = never."},
	{Path: "broker.emulatorConfig", Kind: kindFile, Flag: "emulator-config",
		Help: "The Config.json of Microsoft's Service Bus emulator, as it is: its queues and topics come on top of those below."},
	{Path: "broker.queues", Kind: kindList,
		Help: "The queues of the embedded broker."},
	{Path: "broker.queues[].name", Kind: kindEntity, need: true,
		Help: "What the queue is called. Upper and lower case are the same."},
})

// entitySettings are those of a queue or a subscription; what says which.
func entitySettings(prefix, what string) []*Setting {
	rows := []*Setting{
		{Path: ".deadLetteringOnMessageExpiration", Kind: KindBool, Default: "false",
			Help: "Whether an expired message goes to the dead-letter queue. Otherwise it is dropped."},
		{Path: ".lockDuration", Kind: kindDuration, Default: "1m", min: int64(time.Second), max: int64(5 * time.Minute),
			Help: "How long a received message, or a session, stays locked."},
		{Path: ".maxDeliveryCount", Kind: kindCount, Default: "10", min: 1, max: broker.MaxMaxDeliveryCount,
			Help: "How often a message is delivered before it is dead-lettered."},
		{Path: ".requiresSession", Kind: KindBool, Default: "false",
			Help: "Whether messages belong to sessions, and are received one session at a time."},
		{Path: ".forwardTo", Kind: kindString,
			Help: "The queue or topic that every message is passed on to. Not with `requiresSession`, and what forwards is never deleted for idleness."},
		{Path: ".forwardDeadLetteredMessagesTo", Kind: kindString,
			Help: "The queue or topic that dead letters are passed on to."},
	}
	return under(prefix, append(rows, lifeSettings(what)...))
}

// lifeSettings are what a queue, a topic and a subscription have in common.
func lifeSettings(what string) []*Setting {
	return []*Setting{
		{Path: ".defaultMessageTimeToLive", Kind: kindDuration, Default: "0s", max: 1<<63 - 1,
			Help: "The time to live of messages that state none, and a cap for those that do. 0 = unlimited."},
		{Path: ".autoDeleteOnIdle", Kind: kindDuration, Default: "0s", max: 1<<63 - 1,
			Help: "Delete the " + what + " when it has not been used for this long. 0 = never."},
	}
}

// storeSettings are those of what messages are sent to: a queue or a topic.
func storeSettings() []*Setting {
	return []*Setting{
		{Path: ".requiresDuplicateDetection", Kind: KindBool, Default: "false",
			Help: "Whether a message whose message-id came before is dropped."},
		{Path: ".duplicateDetectionHistoryTimeWindow", Kind: kindDuration, Default: "10m", min: int64(20 * time.Second), max: 7 * day,
			Help: "For how long message-ids are remembered."},
		{Path: ".enablePartitioning", Kind: KindBool, Default: "false",
			Help: "Whether the entity is partitioned: its sequence numbers name a partition, and one batch has one session or partition key."},
		{Path: ".maxSizeInMegabytes", Kind: kindCount, Default: "0", max: 1 << 20,
			Help: "How much it holds, subscriptions and dead letters included. 0 = as much as there is memory."},
	}
}

// under puts rows below a prefix.
func under(prefix string, rows []*Setting) []*Setting {
	for _, r := range rows {
		r.Path = prefix + r.Path
	}
	return rows
}

const subscription = "broker.topics[].subscriptions[]"

var queueSettings = slices.Concat(entitySettings("broker.queues[]", "queue"), under("broker.queues[]", storeSettings()))

var topicSettings = slices.Concat([]*Setting{
	{Path: "broker.topics", Kind: kindList,
		Help: "The topics of the embedded broker."},
	{Path: "broker.topics[].name", Kind: kindEntity, need: true,
		Help: "What the topic is called."},
}, under("broker.topics[]", slices.Concat(lifeSettings("topic"), storeSettings())), []*Setting{
	{Path: "broker.topics[].subscriptions", Kind: kindList,
		Help: "The subscriptions of the topic."},
	{Path: subscription + ".name", Kind: kindEntity, need: true,
		Help: "What the subscription is called."},
}, entitySettings(subscription, "subscription"), []*Setting{
	{Path: subscription + ".deadLetteringOnFilterEvaluationExceptions", Kind: KindBool, Default: "true",
		Help: "Whether a message that a filter fails on goes to the dead-letter queue. Otherwise it does not match."},
	{Path: subscription + ".rules", Kind: kindList,
		Help: "Which messages the subscription gets; without rules all of them."},
	{Path: subscription + ".rules[].name", Kind: kindString, need: true,
		Help: "What the rule is called."},
	{Path: subscription + ".rules[].sql", Kind: kindString,
		Help: "A filter in the SQL of Service Bus, such as `priority > 5 AND sys.Label LIKE 'order%'`."},
	{Path: subscription + ".rules[].action", Kind: kindString,
		Help: "What to change in the copy, such as `SET region = 'eu'; REMOVE priority`."},
	{Path: subscription + ".rules[].correlation.correlationId", Kind: kindString,
		Help: "The correlation-id that a message has to have."},
	{Path: subscription + ".rules[].correlation.messageId", Kind: kindString,
		Help: "The message-id that a message has to have."},
	{Path: subscription + ".rules[].correlation.to", Kind: kindString,
		Help: "The address that a message has to have."},
	{Path: subscription + ".rules[].correlation.replyTo", Kind: kindString,
		Help: "The address for replies that a message has to have."},
	{Path: subscription + ".rules[].correlation.subject", Kind: kindString,
		Help: "The subject, or label that a message has to have."},
	{Path: subscription + ".rules[].correlation.sessionId", Kind: kindString,
		Help: "The session-id that a message has to have."},
	{Path: subscription + ".rules[].correlation.replyToSessionId", Kind: kindString,
		Help: "The session-id for replies that a message has to have."},
	{Path: subscription + ".rules[].correlation.contentType", Kind: kindString,
		Help: "The content type that a message has to have."},
	{Path: subscription + ".rules[].correlation.properties", Kind: kindMap,
		Help: "Application properties that a message has to have, with these values."},
})
