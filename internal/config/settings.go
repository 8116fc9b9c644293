// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"overdue/internal/monitorqueue"
)

// A Setting is one row of the table from which flags, environment variables,
// validation and docs/reference/configuration.md come.
type Setting struct {
	Path    string // as in the file; "[]." stands before the keys of a list's elements
	Kind    kind
	Default string // as one would write it; "" = empty, zero or nothing
	Help    string // one or two sentences
	Flag    string // "" = none

	DefaultNote string // more about the default

	min, max int64    // of durations (nanoseconds), sizes (bytes) and counts; both 0 = unbounded
	Choices  []string // of a choice
	need     bool     // an element of the list cannot do without
	secret   bool     // never shown
	template bool     // text of the user's own, in which anything may stand
	optional bool     // it belongs to a section that an element of the list may do without
}

// Env is the environment variable of the setting: OVERDUE_LISTEN_ADMIN for
// listen.admin, OVERDUE_BROKER_AUTO_CREATE for broker.autoCreate. A whole list has one;
// the keys of its elements have none.
func (s *Setting) Env() string {
	if s.element() {
		return ""
	}
	var b strings.Builder
	b.WriteString("OVERDUE_")
	for _, r := range s.Path {
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
func (s *Setting) flagName() string {
	if s.Flag == "" {
		return s.Path
	}
	return "--" + s.Flag
}

// element reports whether the setting belongs to the elements of a list.
func (s *Setting) element() bool { return strings.Contains(s.Path, "[].") }

const day = int64(24 * time.Hour)

// Settings is the table, in the order of docs/reference/configuration.md.
var Settings = slices.Concat(processSettings, brokerSettings, queueSettings, topicSettings, componentSettings, alertSettings, watchSettings)

var processSettings = slices.Concat([]*Setting{
	{Path: "namespace", Kind: kindString, secret: true, Flag: "namespace",
		Help: "Which Service Bus namespace to work with: empty for the embedded broker, a name such as `contoso.servicebus.windows.net` " +
			"to sign in with the machine's Azure identity, or a connection string. A connection string on the command line shows in the process list; " +
			"better give it by environment variable or namespaceFile."},
	{Path: "namespaceFile", Kind: kindFile,
		Help: "A file that holds what namespace would, such as a mounted secret. Give one of the two."},
	{Path: "namespaceAdmin", Kind: kindURL, DefaultNote: "HTTPS at the namespace's name; of an emulator HTTP at its port, or at 5300",
		Help: "Where the administration API of the namespace is, if it is elsewhere, such as `http://localhost:5301`. It is asked how queues and topics were made."},
	{Path: "monitorQueue", Kind: kindEntity, Default: "overdue-monitor", Flag: "monitor-queue",
		Help: "The queue that holds the companions. The embedded broker makes it, or takes the one that a file of the emulator names; in a namespace it has to exist."},
	{Path: "monitorQueues", Kind: kindCount, Default: "1", Flag: "monitor-queues", min: 1, max: monitorqueue.Most,
		Help: "How many monitor queues there are, for loads that outgrow one: with 3 they are monitorQueue itself and, with `.2` and `.3` behind its name, two more. Each queue or topic has its companions on one of them. " +
			"All processes of one monitorQueue need the same value. When the number changes, the companions stay where they are, and monitors still receive them; docs/operate/capacity.md says how to change it."},
	{Path: "companions", Kind: KindChoice, Default: "auto", Choices: []string{"auto", "each", "slot"},
		Help: "What is written for a message with a deadline. `each` names it; `slot` is one that all messages of a queue share whose deadlines fall into the same 100 ms, and costs next to nothing at high rates. `auto` takes slots from 100 messages per second of one queue and time to live on, and from 500 where times to live differ by less than five seconds. " +
			"Slots are for queues without sessions, partitions and forwarding that dead-letter on expiry, and for messages whose deadline is their time to live; everything else is named, as is every message where the monitor queue takes 20 ms or more to answer."},
	{Path: "companionStore", Kind: KindChoice, Default: StoreQueue, Choices: []string{StoreQueue, StoreRedis},
		Help: "Where companions wait for their time: on the monitor queue, as scheduled messages, or with `redis` in the Redis that redis names, for namespaces of the tier Basic, which has none. " +
			"Redis is the truth then and has to be as durable as deadlines are to be; docs/operate/redis.md. The monitor queue is still needed: it tells the broker's clock. All processes of one monitor queue need the same value."},
	{Path: "onMonitorDown", Kind: KindChoice, Default: OnMonitorDownRefuse, Choices: []string{OnMonitorDownRefuse, OnMonitorDownPass},
		Help: "What becomes of a send with a deadline while the monitor queue, or the companionStore, cannot be written: `refuse` fails it with an error after which apps try again; " +
			"`pass` lets it through and keeps its companion in the journal, on disk, until the monitor queue is back."},
	{Path: "redis", Kind: kindString, secret: true,
		Help: "A Redis that the processes of one monitor queue share, so that they do less of the same work twice: `redis://host:6379`, `rediss://user:password@host:6380` for TLS, " +
			"`redis+cluster://host:6379,host2:6379` or `redis+sentinel://host:26379,host2:26379/mymaster`. Every deadline is kept without it, unless companionStore says that it keeps the companions; docs/operate/redis.md. Empty = none."},
	{Path: "redisFile", Kind: kindFile,
		Help: "A file that holds what redis would, such as a mounted secret. Give one of the two."},
	{Path: "redisAuthorityFile", Kind: kindFile, DefaultNote: "the authorities that the machine trusts",
		Help: "The certificates, in PEM, that the certificate of a Redis with TLS is checked against."},
	{Path: "shutdownTimeout", Kind: kindDuration, Default: "25s", min: int64(time.Second), max: int64(10 * time.Minute),
		Help: "How long a clean stop may take before it is a failure. The two delays come before it and do not count."},
	{Path: "minSigtermDelay", Kind: kindDuration, Default: "0s", max: int64(10 * time.Minute), Flag: "min-sigterm-delay",
		Help: "How long the endpoints still accept connections after SIGTERM, while /readyz says that they close. See docs/operate/start-and-stop.md."},
	{Path: "maxSigtermDelay", Kind: kindDuration, Default: "0s", max: int64(time.Hour), Flag: "max-sigterm-delay",
		Help: "How long after SIGTERM the connections of apps are kept, so that apps can end their work: the stop begins when the last one has been closed, at the latest then. 0 = they are closed at once, or after minSigtermDelay."},

	{Path: "listen.amqp", Kind: kindEndpoint, Default: "127.0.0.1:5672", Flag: "listen-amqp",
		Help: "Where the AMQP endpoint listens, the drop-in endpoint for the Service Bus SDKs. Port 0 takes any free one. " +
			"This address, that of listen.http and that of listen.amqps take the same: AMQP, AMQP over WebSocket and REST, as their first bytes show. " +
			"Beyond loopback they need TLS and keys, and take nothing but TLS."},
	{Path: "listen.http", Kind: kindEndpoint, Default: "127.0.0.1:5300", Flag: "listen-http",
		Help: "Where the REST endpoint listens: `POST /{queue}/messages`. Port 0 takes any free one."},
	{Path: "listen.amqps", Kind: kindEndpoint, Flag: "listen-amqps",
		Help: "One more address of the endpoints, for TLS alone, such as `127.0.0.1:5671`: the port that clients choose by themselves. It makes the other endpoints speak TLS, too."},
	{Path: "listen.tls.enabled", Kind: KindBool, Default: "false", DefaultNote: "; true with listen.amqps",
		Help: "Whether the endpoints speak TLS. Without certFile Overdue makes a certificate of its own, and prints where it is."},
}, certificateSettings("listen.tls"), []*Setting{
	{Path: "listen.keys", Kind: kindList,
		Help: "The keys of the endpoints, for the apps that use them; they are no keys of the namespace. Without this list, which is for loopback only, every key is good, and none is needed."},
}, keySettings("listen.keys"), []*Setting{
	{Path: "listen.keys[].entity", Kind: kindString,
		Help: "The queue or topic that the key is good for, and what lies below its name; every one if this is empty."},
	{Path: "listen.maxConnections", Kind: kindCount, Default: "10000", min: 1, max: 1_000_000,
		Help: "How many connections the endpoints take at a time, together. Each AMQP connection has another one to the namespace."},
	{Path: "listen.admin", Kind: kindAddress, Default: "127.0.0.1:9095", DefaultNote: "; any free port when broker.listen takes one", Flag: "listen-admin",
		Help: "Where probes, metrics and the operator's endpoints listen."},
	{Path: "listen.probes", Kind: kindEndpoint, Flag: "listen-probes",
		Help: "One more address for /livez, /readyz, /startupz and /metrics, and nothing else, which other machines may reach: `:9096` for the probes of Kubernetes and for Prometheus. No key is needed there."},
})

var componentSettings = []*Setting{
	{Path: "monitor.deadline", Kind: kindDuration, Default: "0s", max: 366 * day,
		Help: "How soon a message has to be received that states no deadline and no time to live itself, in every monitored queue and topic whose own `deadline` is 0. 0 = the time to live decides."},
	{Path: "monitor.entities", Kind: kindList,
		Help: "The monitored queues and topics. Without this list, every queue and topic that apps send to through Overdue; with it, only these."},
	{Path: "monitor.entities[].queue", Kind: kindEntity,
		Help: "What the queue is called."},
	{Path: "monitor.entities[].topic", Kind: kindEntity,
		Help: "What the topic is called. Each element has one of queue and topic."},
	{Path: "monitor.entities[].deadline", Kind: kindDuration, Default: "0s", max: 366 * day,
		Help: "How soon a message has to be received that states no deadline and no time to live itself. 0 = as monitor.deadline says."},
	{Path: "monitor.entities[].completeWithin", Kind: kindDuration, Default: "0s", max: 366 * day,
		Help: "By when a message has to be completed (or dead-lettered by its consumer), counted from its enqueue time, if it has no `overdue-complete-within`. If it is still there then, sinks get an event; the message is left alone. 0 = no such deadline."},
	{Path: "monitor.entities[].warnBefore", Kind: kindDurations, min: int64(time.Millisecond), max: 366 * day,
		Help: "How long before its deadline sinks get a reminder of a message that is not settled: one duration, or up to eight. Each costs a check, and companions instead of slots. A message with less time than that from the start gets none."},
	{Path: "monitor.entities[].adopt", Kind: KindBool, Default: "false",
		Help: "Whether the monitor finds messages that did not pass an endpoint, in the queue or in the subscriptions of the topic. Not for entities that forward, are partitioned, or are deleted when idle. Set it alike for all monitors; docs/operate/adopt.md has the costs."},
	{Path: "monitor.entities[].adoptEvery", Kind: kindDuration, Default: "30s", min: int64(time.Second), max: day,
		Help: "How often. A message is noticed that much after it was sent, so a shorter deadline may be kept late."},
	{Path: "monitor.entities[].expire", Kind: KindChoice, Default: "auto", Choices: []string{"auto", "native", "scan", "session"},
		Help: "How an overdue message is taken off the queue: `native` wakes the broker's own expiry (the queue must dead-letter on expiry), " +
			"`scan` receives from the head and dead-letters, `session` does so session by session, `auto` picks by the queue's settings."},
	{Path: "monitor.entities[].stampTTL", Kind: KindBool, Default: "true",
		Help: "Whether a message whose deadline comes before the end of its time to live gets the deadline as its time to live. Never where the broker drops what expires."},
	{Path: "monitor.entities[].defaultMessageTimeToLive", Kind: kindDuration, Default: "0s", max: 1<<63 - 1,
		Help: "The setting of that name of the queue or topic in the namespace. Needed only without the Manage right. What the namespace says counts first."},
	{Path: "monitor.entities[].requiresSession", Kind: KindBool, Default: "false",
		Help: "The setting of that name of the queue in the namespace. Needed only without the Manage right."},
	{Path: "monitor.entities[].deadLetteringOnMessageExpiration", Kind: KindBool, Default: "true",
		Help: "The setting of that name of the queue in the namespace. Needed only without the Manage right. If it is false, the broker drops expired messages."},
	{Path: "monitor.entities[].forwardMissedTo", Kind: kindString,
		Help: "A queue or topic of the same namespace that gets a copy of each missed message; the dead letter is completed then. docs/operate/dlq.md describes the copy. Empty = the dead letter stays."},
	{Path: "monitor.entities[].reportToSender", Kind: KindBool, Default: "false",
		Help: "Whether Overdue reports a missed deadline to the message's reply-to, a queue or topic of the same namespace."},
	{Path: "monitor.entities[].subscriptions", Kind: kindList,
		Help: "The subscriptions of the topic. The monitor checks each on its own. Needed only without the Manage right."},
	{Path: "monitor.entities[].subscriptions[].name", Kind: kindEntity, need: true,
		Help: "The name of the subscription."},
	{Path: "monitor.entities[].subscriptions[].defaultMessageTimeToLive", Kind: kindDuration, Default: "0s", max: 1<<63 - 1,
		Help: "The subscription's own setting of that name."},
	{Path: "monitor.entities[].subscriptions[].requiresSession", Kind: KindBool, Default: "false",
		Help: "The subscription's own setting of that name."},
	{Path: "monitor.entities[].subscriptions[].deadLetteringOnMessageExpiration", Kind: KindBool, Default: "true",
		Help: "The subscription's own setting of that name."},

	{Path: "proxy.credentials", Kind: KindChoice, Default: OwnCredentials, Choices: []string{OwnCredentials, clientCredentials},
		Help: "Whose credentials the endpoints use with the namespace: `own`, those of the setting namespace; `client`, the token or key of the app, which is passed on for the namespace to judge. " +
			"For `client` the app keeps the connection string of the namespace and is given the endpoint as its SDK's custom endpoint address, which takes TLS; companions are still written with this process's own credentials, and sends over REST go on over HTTPS."},
	{Path: "proxy.maxInFlight", Kind: kindCount, Default: "1024", min: 1, max: 100_000,
		Help: "How many sends may be under way at once. More have to wait."},
	{Path: "proxy.maxBodySize", Kind: kindSize, Default: "1MiB", min: 1 << 10, max: 100 << 20,
		Help: "The largest request body that the REST endpoint reads, and the largest message that the AMQP endpoint takes to a monitored entity."},

	{Path: "journal.directory", Kind: kindFile,
		Help: "Where the journal is: a directory of this process alone, on a disk that outlives it. `onMonitorDown: pass` needs it. With `refuse` a journal that is there is emptied to the monitor queue and takes nothing more."},
	{Path: "journal.maxSize", Kind: kindSize, Default: "64MiB", min: 1 << 20, max: 4 << 30,
		Help: "How much the journal holds at most; its file takes about twice as much. A full journal refuses sends. A companion has about 250 bytes, and a start reads them all: 64 MiB take a second."},

	{Path: "history.enabled", Kind: KindBool, Default: "true",
		Help: "Whether there is a history: missed deadlines in full, and sends, outcomes, alerts and slack by the minute. Nothing depends on it: if its directory cannot be written, Overdue says so once and goes on without."},
	{Path: "history.directory", Kind: kindFile, DefaultNote: "`history` in the state directory that systemd gives, in the journal of `onMonitorDown: pass`, or in /var/lib/overdue if that exists",
		Help: "Where the history is: a directory of this process alone. By default one of those in docs/operate/monitor.md, if it exists; otherwise there is no history."},
	{Path: "history.keep", Kind: kindDuration, Default: "168h", min: int64(time.Hour), max: 366 * day,
		Help: "How long the history is kept. The oldest is removed first."},
	{Path: "history.maxSize", Kind: kindSize, Default: "32MiB", min: 1 << 20, max: 4 << 30,
		Help: "How much the history holds at most; its file takes about twice as much."},

	{Path: "dashboard.token", Kind: kindString, secret: true,
		Help: "The token that the dashboard demands for each action, of 16 characters at least: to resubmit and purge dead letters. Without one the dashboard only reads."},
	{Path: "dashboard.tokenFile", Kind: kindFile, Help: "A file that holds the token."},

	{Path: "log.level", Kind: KindChoice, Default: "info", Choices: []string{"debug", "info", "warn", "error"}, Flag: "log-level",
		Help: "The least level that is logged, on stderr. `PUT /loglevel` with the body `level=debug` and the header `Overdue-Admin: 1` changes it at run time. " +
			"Of warnings and errors with the same message, and of lines about the connections of apps, five in 10 s are logged; `lines_left_out` in the next one says how many were left out. Events are logged without limit, and so is everything at `debug`, which also logs each send."},
	{Path: "log.format", Kind: KindChoice, Default: "auto", Choices: []string{"auto", "json", "console"}, Flag: "log-format",
		Help: "`auto` is console on a terminal and JSON elsewhere."},
	{Path: "log.frames", Kind: KindBool, Default: "false",
		Help: "Whether every AMQP frame of the AMQP endpoint is logged, at level `debug`: what it says of connections, links, credit and outcomes, and nothing of messages, tokens or locks."},
}
