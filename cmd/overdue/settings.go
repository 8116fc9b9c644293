// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"time"
	"unicode"
)

// A setting is one row of the table from which flags, environment variables,
// validation and docs/reference/configuration.md come.
type setting struct {
	path string // as in the file; "[]." stands before the keys of a list's elements
	kind kind
	def  string // as one would write it; "" = empty, zero or nothing
	help string // one or two sentences
	flag string // "" = none

	defNote string // what else there is to say of the default

	min, max int64    // of durations (nanoseconds), sizes (bytes) and counts; both 0 = unbounded
	enum     []string // of a choice
	need     bool     // an element of the list cannot do without
	secret   bool     // never shown
	optional bool     // it belongs to a section that an element of the list may do without
}

// env is the environment variable of the setting: OVERDUE_LISTEN_ADMIN for
// listen.admin, OVERDUE_BROKER_AUTO_CREATE for broker.autoCreate. A whole list has one;
// the keys of its elements have none.
func (s *setting) env() string {
	if s.element() {
		return ""
	}
	var b strings.Builder
	b.WriteString("OVERDUE_")
	for _, r := range s.path {
		switch {
		case r == '.':
			b.WriteByte('_')
		case unicode.IsUpper(r):
			b.WriteByte('_')
			b.WriteRune(r)
		default:
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

// flagName is the setting as a flag. The demo sets some that have none by their keys.
func (s *setting) flagName() string {
	if s.flag == "" {
		return s.path
	}
	return "--" + s.flag
}

// element reports whether the setting belongs to the elements of a list.
func (s *setting) element() bool { return strings.Contains(s.path, "[].") }

const day = int64(24 * time.Hour)

// settings is the table, in the order of docs/reference/configuration.md.
var settings = slices.Concat(processSettings, brokerSettings, queueSettings, topicSettings, roomSettings, alertSettings, watchSettings)

var processSettings = slices.Concat([]*setting{
	{path: "namespace", kind: kindString, secret: true, flag: "namespace",
		help: "Which Service Bus namespace to work with: empty for the embedded broker, a name such as `contoso.servicebus.windows.net` " +
			"to sign in with the machine's Azure identity, or a connection string. A connection string on the command line shows in the process list; " +
			"better give it by environment variable or namespaceFile."},
	{path: "namespaceFile", kind: kindString,
		help: "A file that holds what namespace would, such as a mounted secret. Give one of the two."},
	{path: "namespaceAdmin", kind: kindURL, defNote: "HTTPS at the namespace's name; of an emulator HTTP at its port, or at 5300",
		help: "Where the administration API of the namespace is, if it is elsewhere, such as `http://localhost:5301`. It is asked how queues and topics were made."},
	{path: "monitorQueue", kind: kindEntity, def: "overdue-monitor", flag: "monitor-queue",
		help: "The queue that holds the companions. The embedded broker of `overdue run` makes it by itself, that of `overdue broker` when it is named here, and either takes the one that a file of the emulator names; in a namespace it has to exist."},
	{path: "companions", kind: kindChoice, def: "auto", enum: []string{"auto", "each", "slot"},
		help: "What is written for a message with a deadline. `each` names it; `slot` is an alarm that all messages of a queue share whose deadlines fall into the same 20 ms, and costs next to nothing at high rates. `auto` takes slots from 100 messages per second of one queue and time to live on, and from 500 where times to live differ by less than five seconds. " +
			"Slots are for queues without sessions, partitions and forwarding that dead-letter on expiry, and for messages whose deadline is their time to live; everything else is named, and so is all where the monitor queue takes 20 ms or more to answer."},
	{path: "companionStore", kind: kindChoice, def: storeQueue, enum: []string{storeQueue, storeRedis},
		help: "Where companions wait for their time: on the monitor queue, as scheduled messages, or with `redis` in the Redis that redis names, for namespaces of the tier Basic, which has none. " +
			"Redis is the truth then and has to be as durable as deadlines are to be; docs/operate/redis.md. The monitor queue is still needed: it tells the broker's clock. All processes of one monitor queue have the same here."},
	{path: "onMonitorDown", kind: kindChoice, def: refuseOn, enum: []string{refuseOn, passOn},
		help: "What becomes of a send with a deadline while the monitor queue, or the companionStore, cannot be written: `refuse` fails it with an error after which apps try again; " +
			"`pass` lets it through and keeps its companion in the journal, on disk, until the monitor queue is back."},
	{path: "redis", kind: kindString, secret: true,
		help: "A Redis that the processes of one monitor queue share, so that they do less of the same work twice: `redis://host:6379`, `rediss://user:password@host:6380` for TLS, " +
			"`redis+cluster://host:6379,host2:6379` or `redis+sentinel://host:26379,host2:26379/mymaster`. Every deadline is kept without it, unless companionStore says that it keeps the companions; docs/operate/redis.md. Empty = none."},
	{path: "redisFile", kind: kindString,
		help: "A file that holds what redis would, such as a mounted secret. Give one of the two."},
	{path: "redisAuthorityFile", kind: kindString, defNote: "the authorities that the machine trusts",
		help: "The certificates, in PEM, of who may vouch for a Redis with TLS."},
	{path: "shutdownTimeout", kind: kindDuration, def: "25s", min: int64(time.Second), max: int64(10 * time.Minute),
		help: "How long a clean stop may take before it is a failure. The two delays come before it and do not count."},
	{path: "minSigtermDelay", kind: kindDuration, def: "0s", max: int64(10 * time.Minute), flag: "min-sigterm-delay",
		help: "How long the endpoints still accept connections after SIGTERM, while /readyz says that they close. See docs/operate/start-and-stop.md."},
	{path: "maxSigtermDelay", kind: kindDuration, def: "0s", max: int64(time.Hour), flag: "max-sigterm-delay",
		help: "How long after SIGTERM the connections of apps are kept, so that apps can end their work: the stop begins when the last one has been closed, at the latest then. 0 = they are closed at once, or after minSigtermDelay."},

	{path: "listen.amqp", kind: kindDoor, def: "127.0.0.1:5672", flag: "listen-amqp",
		help: "Where the AMQP door listens, the drop-in endpoint for the Service Bus SDKs. Port 0 takes any free one. " +
			"This address, that of listen.http and that of listen.amqps take the same: AMQP, AMQP over WebSocket and REST, told apart by their first bytes. " +
			"Beyond loopback they need TLS and keys, and take nothing but TLS."},
	{path: "listen.http", kind: kindDoor, def: "127.0.0.1:5300", flag: "listen-http",
		help: "Where the REST door listens: `POST /{queue}/messages`. Port 0 takes any free one."},
	{path: "listen.amqps", kind: kindDoor, flag: "listen-amqps",
		help: "One more address of the doors, for TLS alone, such as `127.0.0.1:5671`: the port that clients choose by themselves. It makes the other doors speak TLS, too."},
	{path: "listen.tls.enabled", kind: kindBool, def: "false", defNote: "; true with listen.amqps",
		help: "Whether the doors speak TLS. Without certFile Overdue makes itself a certificate, and prints where it is."},
}, certificateSettings("listen.tls"), []*setting{
	{path: "listen.keys", kind: kindList,
		help: "The keys of the doors, for the apps that use them; they are no keys of the namespace. Without this list, which is for loopback only, every key is good, and none is needed."},
}, keySettings("listen.keys"), []*setting{
	{path: "listen.keys[].entity", kind: kindString,
		help: "The queue or topic that the key is good for, and what lies below its name; every one if this is empty."},
	{path: "listen.maxConnections", kind: kindCount, def: "10000", min: 1, max: 1_000_000,
		help: "How many connections the doors take at a time, together. A connection of AMQP has another one to the namespace."},
	{path: "listen.admin", kind: kindAddress, def: "127.0.0.1:9095", defNote: "; any free port when broker.listen takes one", flag: "listen-admin",
		help: "Where probes, metrics and the operator's endpoints listen."},
	{path: "listen.probes", kind: kindDoor, flag: "listen-probes",
		help: "One more address for /livez, /readyz, /startupz and /metrics, and nothing else, which other machines may reach: `:9096` for the probes of Kubernetes and for Prometheus. Nobody is asked for a key there."},
})

var roomSettings = []*setting{
	{path: "monitor.deadline", kind: kindDuration, def: "0s", max: 366 * day,
		help: "How soon a message has to be received that states no deadline and no time to live itself, in every monitored queue and topic whose own `deadline` is 0. 0 = the time to live decides."},
	{path: "monitor.entities", kind: kindList,
		help: "The monitored queues and topics. Without this list, every one that a send passes through to; with it, exactly these."},
	{path: "monitor.entities[].queue", kind: kindEntity,
		help: "What the queue is called."},
	{path: "monitor.entities[].topic", kind: kindEntity,
		help: "What the topic is called. Each element has one of queue and topic."},
	{path: "monitor.entities[].deadline", kind: kindDuration, def: "0s", max: 366 * day,
		help: "How soon a message has to be received that states no deadline and no time to live itself. 0 = as monitor.deadline says."},
	{path: "monitor.entities[].completeWithin", kind: kindDuration, def: "0s", max: 366 * day,
		help: "By when a message has to be completed (or dead-lettered by its consumer), counted from its enqueue time, if it has no `overdue-complete-within`. If it is still there then, sinks get an event; the message is left alone. 0 = no such deadline."},
	{path: "monitor.entities[].warnBefore", kind: kindDurations, min: int64(time.Millisecond), max: 366 * day,
		help: "How long before its deadline sinks get a reminder of a message that is not settled: one duration, or up to eight. Each costs a check, and companions instead of slots. A message with less time than that from the start gets none."},
	{path: "monitor.entities[].adopt", kind: kindBool, def: "false",
		help: "Whether the monitor finds messages that did not pass an endpoint, in the queue or in the subscriptions of the topic. Not for entities that forward, are partitioned, or are deleted when idle. Set it alike for all monitors; docs/operate/adopt.md has the costs."},
	{path: "monitor.entities[].adoptEvery", kind: kindDuration, def: "30s", min: int64(time.Second), max: day,
		help: "How often. A message is noticed that much after it was sent, so a shorter deadline may be kept late."},
	{path: "monitor.entities[].expire", kind: kindChoice, def: "auto", enum: []string{"auto", "native", "scan", "session"},
		help: "How an overdue message is taken off the queue: `native` wakes the broker's own expiry (the queue must dead-letter on expiry), " +
			"`scan` receives from the head and dead-letters, `session` does so session by session, `auto` picks by the queue's settings."},
	{path: "monitor.entities[].stampTTL", kind: kindBool, def: "true",
		help: "Whether a message whose deadline comes before the end of its time to live gets the deadline as its time to live. Never where the broker drops what expires."},
	{path: "monitor.entities[].defaultMessageTimeToLive", kind: kindDuration, def: "0s", max: 1<<63 - 1,
		help: "The setting of that name of the queue or topic in the namespace. Needed only without the right Manage. What the namespace says counts first."},
	{path: "monitor.entities[].requiresSession", kind: kindBool, def: "false",
		help: "The setting of that name of the queue in the namespace. Needed only without the right Manage."},
	{path: "monitor.entities[].deadLetteringOnMessageExpiration", kind: kindBool, def: "true",
		help: "The setting of that name of the queue in the namespace. Needed only without the right Manage. If it is false, the broker drops expired messages."},
	{path: "monitor.entities[].forwardMissedTo", kind: kindString,
		help: "A queue or topic of the same namespace that gets a copy of each missed message; the dead letter is completed then. docs/operate/alerts.md describes the copy. Empty = the dead letter stays."},
	{path: "monitor.entities[].reportToSender", kind: kindBool, def: "false",
		help: "Whether a message that has missed its deadline is reported to its reply-to, a queue or topic of the same namespace."},
	{path: "monitor.entities[].subscriptions", kind: kindList,
		help: "The subscriptions of the topic. The monitor checks each on its own. Needed only without the right Manage."},
	{path: "monitor.entities[].subscriptions[].name", kind: kindString, need: true,
		help: "The name of the subscription."},
	{path: "monitor.entities[].subscriptions[].defaultMessageTimeToLive", kind: kindDuration, def: "0s", max: 1<<63 - 1,
		help: "The subscription's own setting of that name."},
	{path: "monitor.entities[].subscriptions[].requiresSession", kind: kindBool, def: "false",
		help: "The subscription's own setting of that name."},
	{path: "monitor.entities[].subscriptions[].deadLetteringOnMessageExpiration", kind: kindBool, def: "true",
		help: "The subscription's own setting of that name."},

	{path: "proxy.credentials", kind: kindChoice, def: ownCredentials, enum: []string{ownCredentials, clientCredentials},
		help: "As whom the doors are with the namespace: `own`, as this process, with what namespace says; `client`, as the app, whose token or key is passed on for the namespace to judge. " +
			"For `client` the app keeps the connection string of the namespace and is given the door as its SDK's custom endpoint address, which takes TLS; companions are written as this process all the same, and sends over REST go on over HTTPS."},
	{path: "proxy.maxInFlight", kind: kindCount, def: "1024", min: 1, max: 100_000,
		help: "How many sends may be under way at once. More have to wait."},
	{path: "proxy.maxBodySize", kind: kindSize, def: "1MiB", min: 1 << 10, max: 100 << 20,
		help: "The largest request body that the REST door reads, and the largest message that the AMQP door takes to a monitored entity."},

	{path: "journal.directory", kind: kindString,
		help: "Where the journal is: a directory of this process alone, on a disk that outlives it. `onMonitorDown: pass` needs it. With `refuse` a journal that is there is emptied to the monitor queue and takes nothing more."},
	{path: "journal.maxSize", kind: kindSize, def: "64MiB", min: 1 << 20, max: 4 << 30,
		help: "How much the journal holds at most; its file takes about twice as much. A full journal refuses sends. A companion has about 250 bytes, and a start reads them all: 64 MiB take a second."},

	{path: "log.level", kind: kindChoice, def: "info", enum: []string{"debug", "info", "warn", "error"}, flag: "log-level",
		help: "The least level that is logged, on stderr. `PUT /loglevel` with the body `level=debug` and the header `Overdue-Admin: 1` changes it at run time."},
	{path: "log.format", kind: kindChoice, def: "auto", enum: []string{"auto", "json", "console"}, flag: "log-format",
		help: "`auto` is console on a terminal and JSON elsewhere."},
	{path: "log.frames", kind: kindBool, def: "false",
		help: "Whether every AMQP frame of the AMQP door is logged, at level `debug`: what it says of connections, links, credit and outcomes, and nothing of messages, tokens or locks."},
}
