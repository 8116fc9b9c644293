// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"
)

// The rows of the embedded broker.

var brokerSettings = slices.Concat([]*setting{
	{path: "broker.listen", kind: kindDoor, def: "127.0.0.1:5673", flag: "broker-listen",
		help: "Where the embedded broker listens: for AMQP, AMQP over WebSocket, TLS and HTTP, told apart by their first bytes. What is sent there directly is not monitored. Port 0 takes any free one."},
	{path: "broker.alsoListen", kind: kindDoors, flag: "broker-also-listen",
		help: "Further addresses for the same, separated by commas. `127.0.0.1:5672,127.0.0.1:5300` are those of the official emulator."},
	{path: "broker.tls.enabled", kind: kindBool, def: "false", flag: "tls",
		help: "Whether the embedded broker speaks TLS. Without certFile it makes itself a certificate, and prints where it is."},
	{path: "broker.tls.listen", kind: kindDoor, def: "127.0.0.1:5671", defNote: "; none when broker.listen takes any free port",
		help: "One more address when TLS is enabled: the port that clients choose by themselves. All others speak TLS then, too."},
}, certificateSettings("broker.tls"), []*setting{
	{path: "broker.keys", kind: kindList,
		help: "The keys of the embedded broker. Without this list every key is good, and none is needed."},
}, keySettings("broker.keys"), []*setting{
	{path: "broker.acceptJwt", kind: kindBool, def: "false",
		help: "Whether any token of Microsoft Entra ID is good beside the keys. The broker cannot check whose it is."},
	{path: "broker.isolate", kind: kindBool, def: "false", flag: "isolate",
		help: "Whether each SharedAccessKeyName other than RootManageSharedAccessKey is a namespace of its own, so that parallel tests share one broker."},
	{path: "broker.expiry", kind: kindChoice, def: "lazy", enum: []string{"lazy", "lazy-head", "eager"}, flag: "broker-expiry",
		help: "When expired messages leave a queue of the embedded broker: `lazy`, as in Azure, moves all of them when somebody receives; " +
			"`lazy-head` then moves only what stands before the first live message; `eager` moves each at once."},
	{path: "broker.autoCreate", kind: kindBool, def: "false", defNote: "; true without a file", flag: "broker-auto-create",
		help: "Whether a queue exists from the moment a client names it. Such a queue dead-letters what expires."},
	{path: "broker.clockOffset", kind: kindDuration, def: "0s", min: -day / 2, max: day / 2,
		help: "How far the embedded broker's clock is ahead of the machine's. For tests of skewed clocks."},
	{path: "broker.maxMessageSize", kind: kindSize, def: "256KiB", min: 1 << 10, max: 100 << 20,
		help: "The largest message that the embedded broker takes. 256 KiB is that of the Standard tier."},
	{path: "broker.linkIdleTimeout", kind: kindDuration, def: "0s", max: day,
		help: "Detach a link over which nothing passes for so long. Azure does after 10m; 0 = never."},
	{path: "broker.connectionIdleTimeout", kind: kindDuration, def: "0s", max: day,
		help: "Close a connection that has had no link for so long. Azure does after 5m; 0 = never."},
	{path: "broker.emulatorConfig", kind: kindString, flag: "emulator-config",
		help: "The Config.json of Microsoft's Service Bus emulator, as it is: its queues and topics come on top of those below."},
	{path: "broker.queues", kind: kindList,
		help: "The queues of the embedded broker."},
	{path: "broker.queues[].name", kind: kindEntity, need: true,
		help: "What the queue is called. Upper and lower case are the same."},
})

// entitySettings are those of a queue or a subscription; what says which.
func entitySettings(prefix, what string) []*setting {
	rows := []*setting{
		{path: ".deadLetteringOnMessageExpiration", kind: kindBool, def: "false",
			help: "Whether an expired message goes to the dead-letter queue. Otherwise it is dropped."},
		{path: ".lockDuration", kind: kindDuration, def: "1m", min: int64(time.Second), max: int64(5 * time.Minute),
			help: "How long a received message, or a session, stays locked."},
		{path: ".maxDeliveryCount", kind: kindCount, def: "10", min: 1, max: 2000,
			help: "How often a message is delivered before it is dead-lettered."},
		{path: ".requiresSession", kind: kindBool, def: "false",
			help: "Whether messages belong to sessions, and are received one session at a time."},
		{path: ".forwardTo", kind: kindString,
			help: "The queue or topic that every message is passed on to."},
		{path: ".forwardDeadLetteredMessagesTo", kind: kindString,
			help: "The queue or topic that dead letters are passed on to."},
	}
	return under(prefix, append(rows, lifeSettings(what)...))
}

// lifeSettings are what a queue, a topic and a subscription have in common.
func lifeSettings(what string) []*setting {
	return []*setting{
		{path: ".defaultMessageTimeToLive", kind: kindDuration, def: "0s", max: 1<<63 - 1,
			help: "The time to live of messages that state none, and a cap for those that do. 0 = unlimited."},
		{path: ".autoDeleteOnIdle", kind: kindDuration, def: "0s", max: 1<<63 - 1,
			help: "Delete the " + what + " when it has not been used for so long. 0 = never."},
	}
}

// storeSettings are those of what messages are sent to: a queue or a topic.
func storeSettings() []*setting {
	return []*setting{
		{path: ".requiresDuplicateDetection", kind: kindBool, def: "false",
			help: "Whether a message whose message-id came before is dropped."},
		{path: ".duplicateDetectionHistoryTimeWindow", kind: kindDuration, def: "10m", min: int64(20 * time.Second), max: 7 * day,
			help: "For how long message-ids are remembered."},
		{path: ".enablePartitioning", kind: kindBool, def: "false",
			help: "Whether sequence numbers look like those of a partitioned entity."},
		{path: ".maxSizeInMegabytes", kind: kindCount, def: "0", max: 1 << 20,
			help: "How much it holds, subscriptions and dead letters included. 0 = as much as there is memory."},
	}
}

// under puts rows below a prefix.
func under(prefix string, rows []*setting) []*setting {
	for _, r := range rows {
		r.path = prefix + r.path
	}
	return rows
}

const subscription = "broker.topics[].subscriptions[]"

var queueSettings = slices.Concat(entitySettings("broker.queues[]", "queue"), under("broker.queues[]", storeSettings()))

var topicSettings = slices.Concat([]*setting{
	{path: "broker.topics", kind: kindList,
		help: "The topics of the embedded broker."},
	{path: "broker.topics[].name", kind: kindEntity, need: true,
		help: "What the topic is called."},
}, under("broker.topics[]", slices.Concat(lifeSettings("topic"), storeSettings())), []*setting{
	{path: "broker.topics[].subscriptions", kind: kindList,
		help: "The subscriptions of the topic."},
	{path: subscription + ".name", kind: kindEntity, need: true,
		help: "What the subscription is called."},
}, entitySettings(subscription, "subscription"), []*setting{
	{path: subscription + ".deadLetteringOnFilterEvaluationExceptions", kind: kindBool, def: "true",
		help: "Whether a message that a filter fails on goes to the dead-letter queue. Otherwise it does not match."},
	{path: subscription + ".rules", kind: kindList,
		help: "Which messages the subscription gets; without rules all of them."},
	{path: subscription + ".rules[].name", kind: kindString, need: true,
		help: "What the rule is called."},
	{path: subscription + ".rules[].sql", kind: kindString,
		help: "A filter in the SQL of Service Bus, such as `priority > 5 AND sys.Label LIKE 'order%'`."},
	{path: subscription + ".rules[].action", kind: kindString,
		help: "What to change in the copy, such as `SET region = 'eu'; REMOVE priority`."},
	{path: subscription + ".rules[].correlation.correlationId", kind: kindString,
		help: "The correlation-id that a message has to have."},
	{path: subscription + ".rules[].correlation.messageId", kind: kindString,
		help: "The message-id that a message has to have."},
	{path: subscription + ".rules[].correlation.to", kind: kindString,
		help: "The address that a message has to have."},
	{path: subscription + ".rules[].correlation.replyTo", kind: kindString,
		help: "The address for replies that a message has to have."},
	{path: subscription + ".rules[].correlation.subject", kind: kindString,
		help: "The subject, or label that a message has to have."},
	{path: subscription + ".rules[].correlation.sessionId", kind: kindString,
		help: "The session-id that a message has to have."},
	{path: subscription + ".rules[].correlation.replyToSessionId", kind: kindString,
		help: "The session-id for replies that a message has to have."},
	{path: subscription + ".rules[].correlation.contentType", kind: kindString,
		help: "The content type that a message has to have."},
	{path: subscription + ".rules[].correlation.properties", kind: kindMap,
		help: "Application properties that a message has to have, with these values."},
})
