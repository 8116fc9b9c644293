// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"overdue/internal/broker"
	"overdue/internal/broker/quirk"
	"overdue/internal/monitorqueue"
)

// A Setting is one row of the table from which flags, environment variables,
// validation and docs/reference/configuration.md come.
type Setting struct {
	Path    string // as in the file; "[]." stands before the keys of a list's elements
	Kind    kind
	Default string // as one would write it; "" = empty, zero or nothing
	Help    string // one or two sentences
	Flag    bool   // whether the commands have a flag for it

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

// FlagName is the flag of the setting without its dashes: listen-admin for listen.admin.
func (s *Setting) FlagName() string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s.Env(), "OVERDUE_"), "_", "-"))
}

// flagPlace names the flag as the source of a value. The demo sets some that have none by their
// keys.
func (s *Setting) flagPlace() string {
	if !s.Flag {
		return s.Path
	}
	return "--" + s.FlagName()
}

// commonSettings are the paths of those that a user meets first. The others are on a page of their
// own, and help does not list their flags.
var commonSettings = []string{
	"namespace", "namespaceFile", "monitorQueue", "onMonitorDown", "redis",
	"listen.amqp", "listen.http", "listen.amqps", "listen.admin", "listen.probes",
	"listen.tls.enabled", "listen.tls.certFile", "listen.tls.keyFile",
	"listen.keys", "listen.keys[].name", "listen.keys[].keyFile", "listen.keys[].send", "listen.keys[].listen",
	"broker.enabled", "broker.directory", "broker.listen", "broker.alsoListen", "broker.tls.enabled",
	"broker.insecure", "broker.isolate", "broker.expiry", "broker.autoCreate", "broker.emulatorConfig",
	"broker.queues", "broker.queues[].name", "broker.queues[].deadLetteringOnMessageExpiration",
	"broker.queues[].lockDuration", "broker.queues[].requiresSession", "broker.queues[].defaultMessageTimeToLive",
	"broker.topics", "broker.topics[].name", "broker.topics[].subscriptions", "broker.topics[].subscriptions[].name",
	"monitor.deadline", "monitor.entities", "monitor.entities[].queue", "monitor.entities[].topic",
	"monitor.entities[].deadline", "monitor.entities[].adopt", "monitor.entities[].expire",
	"proxy.credentials", "journal.directory", "log.level",
	"alerts", "alerts[].webhook.url", "alerts[].alertmanager.url", "alerts[].slack.url", "alerts[].teams.url",
	"alerts[].pagerduty.routingKeyFile", "alerts[].email.host", "alerts[].email.from", "alerts[].email.to",
	"alerts[].shoutrrr.url", "canary.queue", "heartbeat.url",
}

// Common reports whether a user meets the setting first.
func (s *Setting) Common() bool { return slices.Contains(commonSettings, s.Path) }

// element reports whether the setting belongs to the elements of a list.
func (s *Setting) element() bool { return strings.Contains(s.Path, "[].") }

const day = int64(24 * time.Hour)

// Settings is the table, in the order of docs/reference/configuration.md.
var Settings = slices.Concat(processSettings, brokerSettings, queueSettings, topicSettings, componentSettings, alertSettings, watchSettings)

var processSettings = slices.Concat([]*Setting{
	{Path: "namespace", Kind: kindString, secret: true, Flag: true,
		Help: "Which Service Bus namespace to work with: empty for the embedded broker, a name such as `contoso.servicebus.windows.net` " +
			"to sign in with the machine's Azure identity, or a connection string. A connection string on the command line shows in the process list; " +
			"better give it by environment variable or namespaceFile."},
	{Path: "namespaceFile", Kind: kindFile,
		Help: "A file that holds what namespace would, such as a mounted secret. Give one of the two."},
	{Path: "namespaceAdmin", Kind: kindURL, DefaultNote: "HTTPS at the namespace's name; of an emulator HTTP at its port, or at 5300",
		Help: "Where the administration API of the namespace is, if it is elsewhere, such as `http://localhost:5301`. It is asked how queues and topics were made."},
	{Path: "monitorQueue", Kind: kindEntity, Default: "overdue-monitor", Flag: true,
		Help: "The queue that holds the companions. The embedded broker makes it, or takes the one that a file of the emulator names; in a namespace it has to exist."},
	{Path: "monitorQueues", Kind: kindCount, Default: "1", Flag: true, min: 1, max: monitorqueue.Most,
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
	{Path: "minSigtermDelay", Kind: kindDuration, Default: "0s", max: int64(10 * time.Minute), Flag: true,
		Help: "How long the endpoints still accept connections after SIGTERM, while /readyz says that they close. See docs/operate/start-and-stop.md."},
	{Path: "maxSigtermDelay", Kind: kindDuration, Default: "0s", max: int64(time.Hour), Flag: true,
		Help: "How long after SIGTERM the connections of apps are kept, so that apps can end their work: the stop begins when the last one has been closed, at the latest then. 0 = they are closed at once, or after minSigtermDelay."},

	{Path: "listen.amqp", Kind: kindEndpoint, Default: "127.0.0.1:5672", Flag: true,
		Help: "Where the AMQP endpoint for the Service Bus SDKs listens. Port 0 takes any free one. " +
			"This address, that of listen.http and that of listen.amqps take the same: AMQP, AMQP over WebSocket and REST, as their first bytes show. " +
			"Beyond loopback they need TLS and keys, and take nothing but TLS."},
	{Path: "listen.http", Kind: kindEndpoint, Default: "127.0.0.1:5300", Flag: true,
		Help: "Where the REST endpoint listens: `POST /{queue}/messages`. Port 0 takes any free one."},
	{Path: "listen.amqps", Kind: kindEndpoint, Flag: true,
		Help: "One more address of the endpoints, for TLS alone: `127.0.0.1:5671` has the port that clients choose by themselves. It makes the other endpoints speak TLS, too."},
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
	{Path: "listen.admin", Kind: kindAddress, Default: "127.0.0.1:9095", DefaultNote: "; any free port when broker.listen takes one", Flag: true,
		Help: "Where probes, metrics and the operator's endpoints listen."},
	{Path: "listen.probes", Kind: kindEndpoint, Flag: true,
		Help: "One more address for probes and metrics, which other machines may reach: `:9096` for Kubernetes and Prometheus. It has /livez, /readyz, /startupz and /metrics, and nothing else. No key is needed there."},
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
	{Path: "monitor.entities[].labels", Kind: kindTexts,
		Help: "Owner and severity of the queue or topic, such as `{team: payments, service: checkout, severity: warning}`: for its events, for notifications, and for the metric overdue_entity_labels. " +
			"`severity` (critical, error, warning, info) and `runbook` (a URL) apply in place of those of the sinks, `objective` (such as 0.999) to the service level. At most 16, of 200 bytes each."},
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
		Help: "The token that the dashboard demands for each action, of 16 characters at least: to resubmit or purge dead letters, and to mute a queue. Without one the dashboard only reads."},
	{Path: "dashboard.tokenFile", Kind: kindFile, Help: "A file that holds the token."},
	{Path: "dashboard.userHeader", Kind: kindString,
		Help: "The HTTP header in which your reverse proxy names the user, such as `X-Forwarded-User`. The log then names that user with each action, and an action without the header is refused. " +
			"Set it only if nobody reaches the admin port except through the proxy, and if the proxy replaces the header. Without it, whoever acts types a name."},

	{Path: "log.level", Kind: KindChoice, Default: "info", Choices: []string{"debug", "info", "warn", "error"}, Flag: true,
		Help: "The least level that is logged, on stderr. `PUT /loglevel` with the body `level=debug` and the header `Overdue-Admin: 1` changes it at run time. " +
			"Of warnings and errors with the same message, and of lines about the connections of apps, five in 10 s are logged; `lines_left_out` in the next one says how many were left out. Events are logged without limit, and so is everything at `debug`, which also logs each send."},
	{Path: "log.format", Kind: KindChoice, Default: "auto", Choices: []string{"auto", "json", "console"}, Flag: true,
		Help: "`auto` is console on a terminal and JSON elsewhere."},
	{Path: "log.frames", Kind: KindBool, Default: "false",
		Help: "Whether every AMQP frame of the AMQP endpoint is logged, at level `debug`: what it says of connections, links, credit and outcomes, and nothing of messages, tokens or locks."},
}

// The rows of the embedded broker.

var brokerSettings = slices.Concat([]*Setting{
	{Path: "broker.enabled", Kind: KindBool, Default: "true", DefaultNote: "; false in the image and as a service",
		Help: "Whether `overdue run` brings the embedded broker where no namespace is given. Unless broker.directory is set, it keeps messages in memory, so they are lost at stop. With `false` it refuses to start without a namespace. The default is `false` where `OVERDUE_UNATTENDED` is set, as it is in the image and in the unit of systemd."},
	{Path: "broker.directory", Kind: kindFile, Flag: true,
		Help: "Where the embedded broker keeps its entities and messages on disk: they survive a restart, a kill and a loss of power. The directory belongs to one process and lies on a local disk; the directory above it has to exist. Without it, everything is in memory and lost at stop."},
	{Path: "broker.listen", Kind: kindEndpoint, Default: "127.0.0.1:5673", Flag: true,
		Help: "Where the embedded broker listens: for AMQP, AMQP over WebSocket, TLS and HTTP, as their first bytes show. What is sent there directly is not monitored. Port 0 takes any free one."},
	{Path: "broker.alsoListen", Kind: kindEndpoints, Flag: true,
		Help: "Further addresses for the same, separated by commas. `127.0.0.1:5672,127.0.0.1:5300` are those of the official emulator."},
	{Path: "broker.tls.enabled", Kind: KindBool, Default: "false", Flag: true,
		Help: "Whether the embedded broker speaks TLS. Without certFile it makes a certificate of its own, and prints where it is."},
	{Path: "broker.tls.listen", Kind: kindEndpoint, Default: "127.0.0.1:5671", DefaultNote: "; none when broker.listen takes any free port",
		Help: "One more address when TLS is enabled: the port that clients choose by themselves. All others speak TLS then, too."},
}, certificateSettings("broker.tls"), []*Setting{
	{Path: "broker.keys", Kind: kindList,
		Help: "The keys of the embedded broker. Without this list every key is good, and none is needed."},
}, keySettings("broker.keys"), []*Setting{
	{Path: "broker.insecure", Kind: KindBool, Default: "false", Flag: true,
		Help: "Whether the embedded broker may listen on addresses that other machines reach without TLS and keys: everyone who reaches it reads, sends and deletes. For tests in containers. It opens no endpoint of the proxy, and is refused with a namespace."},
	{Path: "broker.acceptJwt", Kind: KindBool, Default: "false",
		Help: "Whether any token of Microsoft Entra ID is good in addition to the keys. The broker cannot check whose it is."},
	{Path: "broker.isolate", Kind: KindBool, Default: "false", Flag: true,
		Help: "Whether each SharedAccessKeyName is a namespace of its own: all but RootManageSharedAccessKey, so that parallel tests share one broker."},
	{Path: "broker.expiry", Kind: KindChoice, Default: "lazy", Choices: []string{"lazy", "lazy-head", "eager"}, Flag: true,
		Help: "When expired messages leave a queue of the embedded broker: `lazy`, as in Azure, moves all of them when somebody receives; " +
			"`lazy-head` then moves only what stands before the first live message; `eager` moves each at once."},
	{Path: "broker.quirks", Kind: kindStrings, Choices: quirk.Names(),
		Help: "Ways in which the embedded broker differs from what is assumed of Service Bus, separated by commas; docs/internals/servicebus.md explains each. " +
			"For tests of what happens if an assumption is wrong."},
	{Path: "broker.autoCreate", Kind: KindBool, Default: "false", DefaultNote: "; true without a file", Flag: true,
		Help: "Whether a queue exists from the moment a client names it. Such a queue dead-letters what expires, so that Overdue can do its work; in Azure, deadLetteringOnMessageExpiration is off by default."},
	{Path: "broker.monitorQueue", Kind: KindBool, Default: "true", Flag: true,
		Help: "Whether `overdue broker` makes the monitor queue, so that a proxy and a monitor can use it at once. `overdue run` always does."},
	{Path: "broker.clockOffset", Kind: kindDuration, Default: "0s", min: -day / 2, max: day / 2,
		Help: "How far the embedded broker's clock is ahead of the machine's. For tests of skewed clocks."},
	{Path: "broker.maxMessageSize", Kind: kindSize, Default: "256KiB", min: 1 << 10, max: 100 << 20,
		Help: "The largest message that the embedded broker takes. 256 KiB is that of the Standard tier."},
	{Path: "broker.linkIdleTimeout", Kind: kindDuration, Default: "0s", max: day,
		Help: "Detach a link that has been idle for this long, unless it leads to `$cbs`. Azure does so after 10m; 0 = never."},
	{Path: "broker.connectionIdleTimeout", Kind: kindDuration, Default: "0s", max: day,
		Help: "Close a connection that has had no link for this long, but to `$cbs`. Azure does so after 5m; 0 = never."},
	{Path: "broker.emulatorConfig", Kind: kindFile, Flag: true,
		Help: "The Config.json of Microsoft's Service Bus emulator, as it is: its queues and topics come on top of those below. A value that begins with `{` is its content, and `-` is standard input."},
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

// The rows that the endpoints of the proxy and of the embedded broker have in common.

// certificateSettings are those of what an endpoint shows who speaks TLS, below the section at.
func certificateSettings(at string) []*Setting {
	return []*Setting{
		{Path: at + ".certFile", Kind: kindFile,
			Help: "A certificate of your own, in PEM, with its chain. It is read again when it has been replaced."},
		{Path: at + ".keyFile", Kind: kindFile,
			Help: "The key of the certificate, in PEM."},
		{Path: at + ".hosts", Kind: kindStrings,
			Help: "Further names and addresses for Overdue's own certificate, separated by commas; localhost is always included. An embedded broker without keys is called by them over HTTP, too."},
		{Path: at + ".directory", Kind: kindFile, DefaultNote: "a folder of the user's cache",
			Help: "Where Overdue keeps its own certificate."},
	}
}

// keySettings are those of the elements of the list of keys at.
func keySettings(at string) []*Setting {
	return []*Setting{
		{Path: at + "[].name", Kind: kindString, need: true,
			Help: "The SharedAccessKeyName."},
		{Path: at + "[].key", Kind: kindString, secret: true,
			Help: "The SharedAccessKey, of at least 12 characters."},
		{Path: at + "[].keyFile", Kind: kindFile,
			Help: "A file that holds the key. Give one of the two."},
		{Path: at + "[].send", Kind: KindBool, Default: "false",
			Help: "Whether the key is good for sending."},
		{Path: at + "[].listen", Kind: KindBool, Default: "false",
			Help: "Whether the key is good for receiving."},
		{Path: at + "[].manage", Kind: KindBool, Default: "false",
			Help: "Whether the key is good for everything, administration included."},
	}
}

// alertSettings is the part of the table about sinks: what all have, then one kind after the other.
var alertSettings = sections("alerts[].", slices.Concat([]*Setting{
	{Path: "alerts", Kind: kindList,
		Help: "Sinks that get the events of missed deadlines and others, in addition to the log. Each element names one kind of sink."},
	{Path: "alerts[].name", Kind: kindString, DefaultNote: "the kind of sink; from the second of a kind on with a number",
		Help: "The name of the sink in logs and metrics. A renamed sink gets the events that it has not accepted yet a second time."},
	{Path: "alerts[].entities", Kind: kindStrings, DefaultNote: "all",
		Help: "Patterns of the queues and topics whose events the sink gets, such as `orders*`. A `*` matches anything but a slash. `\"!audit*\"` excludes those that it matches: alone, the sink gets all others."},
	{Path: "alerts[].labels", Kind: kindStrings, DefaultNote: "all",
		Help: "Matchers of labels (see monitor.entities) that all have to hold for the events that the sink gets, in the syntax of Prometheus: `team=payments`, `severity!=info`, `team=~payments|billing`. A label that is not stated is empty."},
	{Path: "alerts[].events", Kind: kindStrings, DefaultNote: "all",
		Help: "Events that the sink gets: any of `missed` (a deadline), `incomplete` (a message that was not completed in time), `near` (a deadline, see warnBefore) and `blind` (a time without monitoring is over)."},
	{Path: "alerts[].title", Kind: kindString, template: true, DefaultNote: "the default wording",
		Help: "A Go template for the first line of a notification, such as `{{.Count}} late on {{.Where}}`."},
	{Path: "alerts[].text", Kind: kindString, template: true, DefaultNote: "the default wording",
		Help: "A Go template for the rest of a notification."},
	{Path: "alerts[].links.dashboard", Kind: kindString,
		Help: "The URL of a dashboard, which notifications link to, such as `https://grafana.example.com/d/overdue?var-entity={entity}`. `{namespace}`, `{entity}`, `{subscription}` and `{type}` (`missed`, `incomplete`, `near`, `blind`) stand for those of the group."},
	{Path: "alerts[].links.runbook", Kind: kindString,
		Help: "The URL of a runbook, with the same placeholders, such as `https://wiki.example.com/overdue/{entity}`. Without one, a release links its own page on missed deadlines."},
	{Path: "alerts[].group.by", Kind: kindStrings, Default: "type,entity,subscription",
		Help: "The fields that the events of a group share: any of `type`, `entity`, `subscription`, `strategy`, `reason`. The type always counts."},
	{Path: "alerts[].group.wait", Kind: kindDuration, Default: "10s", max: int64(time.Hour),
		Help: "How long the first event of a group waits for others before the notification is sent."},
	{Path: "alerts[].group.interval", Kind: kindDuration, Default: "5m", min: int64(time.Second), max: day,
		Help: "How long after a notification the next one of the group may be sent."},
	{Path: "alerts[].group.resolveAfter", Kind: kindDuration, Default: "15m", min: int64(time.Second), max: 7 * day,
		Help: "How long there must be no event before the group is resolved."},

	{Path: "alerts[].webhook.url", Kind: kindURL, secret: true,
		Help: "The URL that gets a POST with a CloudEvent for each missed deadline."},
	{Path: "alerts[].webhook.timeout", Kind: kindDuration, Default: "30s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
		Help: "How long one attempt may take. Other sinks that take requests over HTTP have 30 s."},
	{Path: "alerts[].webhook.grouped", Kind: KindBool, Default: "false",
		Help: "Post notifications of groups instead, in the form that Alertmanager posts to its webhooks (version 4)."},
	{Path: "alerts[].webhook.signingSecret", Kind: kindString, secret: true,
		Help: "The secret that each request is signed with, by Standard Webhooks: `whsec_` and 24 to 64 bytes in base64. Two, separated by a space, during a rotation: each request has a signature for both. docs/reference/webhooks.md shows how to check one."},
	{Path: "alerts[].webhook.signingSecretFile", Kind: kindFile,
		Help: "A file that holds the secret, or the two on a line each. A changed file takes effect at once."},
}, servers("webhook"),
	[]*Setting{{Path: "alerts[].alertmanager.url", Kind: kindURL, secret: true,
		Help: "The base URL of an Alertmanager. It gets alerts over the API v2, repeated every minute until the group is resolved. It groups and waits itself, so group.wait is 0 here unless you set it. Add one sink for each member of a cluster."}},
	servers("alertmanager"),
	[]*Setting{
		{Path: "alerts[].alertmanager.severity", Kind: KindChoice, Default: "critical", Choices: []string{"critical", "error", "warning", "info"},
			Help: "The label `severity` of a missed deadline, or of a message that was not completed in time. A deadline that is near, or a blind time, is a warning at most."},
		{Path: "alerts[].alertmanager.labels", Kind: kindTexts,
			Help: "Labels that each alert gets in addition, such as `{team: payments}`. Alertmanager routes by labels."},
		{Path: "alerts[].alertmanager.annotations", Kind: kindTexts,
			Help: "Annotations that each alert gets in addition."},
	},
	[]*Setting{
		{Path: "alerts[].slack.url", Kind: kindURL, secret: true,
			Help: "An incoming webhook of Slack."},
		urlFile("slack"),
		{Path: "alerts[].teams.url", Kind: kindURL, secret: true,
			Help: "A workflow of Teams that starts when a Teams webhook request is received."},
		urlFile("teams"),
		{Path: "alerts[].pagerduty.routingKey", Kind: kindString, secret: true,
			Help: "The integration key of a service that uses the Events API v2."},
		{Path: "alerts[].pagerduty.routingKeyFile", Kind: kindFile,
			Help: "A file that holds the integration key."},
		{Path: "alerts[].pagerduty.severity", Kind: KindChoice, Default: "error", Choices: []string{"critical", "error", "warning", "info"},
			Help: "The severity of a missed deadline, or of a message that was not completed in time. A deadline that is near, or a blind time, is a warning at most."},
		{Path: "alerts[].pagerduty.url", Kind: kindURL, Default: "https://events.pagerduty.com/v2/enqueue",
			Help: "The URL of the Events API v2. The service region Europe has another one."},

		{Path: "alerts[].email.host", Kind: kindString,
			Help: "The mail server."},
		{Path: "alerts[].email.port", Kind: kindCount, Default: "0", max: math.MaxUint16,
			Help: "Its port. 0 = 587, 465 or 25, by email.security."},
		{Path: "alerts[].email.security", Kind: KindChoice, Default: "starttls", Choices: []string{"starttls", "tls", "none"},
			Help: "How the connection is protected: it must switch to TLS (`starttls`), uses TLS from the first byte (`tls`), or is in the clear (`none`)."},
		{Path: "alerts[].email.username", Kind: kindString,
			Help: "The user name for the mail server. Empty = no authentication."},
		{Path: "alerts[].email.password", Kind: kindString, secret: true,
			Help: "The password that goes with it."},
		{Path: "alerts[].email.passwordFile", Kind: kindFile,
			Help: "A file that holds the password."},
		{Path: "alerts[].email.from", Kind: kindString,
			Help: "The address of the sender."},
		{Path: "alerts[].email.to", Kind: kindMailboxes,
			Help: "The addresses of the recipients. Each may have a name, as in `Doe, Jane <jane@example.com>`."},

		{Path: "alerts[].serviceBus.entity", Kind: kindString,
			Help: "A queue or topic of the same namespace that gets a CloudEvent for each missed deadline. It is not monitored unless monitor.entities lists it."},

		{Path: "alerts[].shoutrrr.url", Kind: kindString, secret: true,
			Help: "A URL of the library shoutrrr, which supports many more services, such as `ntfy://ntfy.sh/topic`. Its services `smtp`, `generic` and `logger` are not supported: use `email`, `webhook` and the log."},
		{Path: "alerts[].shoutrrr.urlFile", Kind: kindFile,
			Help: "A file that holds the URL."},
	}), "webhook", "alertmanager", "slack", "teams", "pagerduty", "email", "serviceBus", "shoutrrr")

// watchSettings is how Overdue watches itself.
var watchSettings = []*Setting{
	{Path: "canary.queue", Kind: kindString,
		Help: "A queue for nothing but canaries: messages whose deadlines are missed on purpose, to see whether that is noticed. It has to dead-letter on expiry; the embedded broker makes it. Empty = no canary. Sinks get no events of canaries."},
	{Path: "canary.interval", Kind: kindDuration, Default: "1m", min: int64(10 * time.Second), max: day,
		Help: "How often one is sent. Each costs about ten broker operations."},
	{Path: "heartbeat.url", Kind: kindURL, secret: true,
		Help: "Requested (GET) every heartbeat.interval as long as this process is ready and its canary comes back: a dead man's switch behind it, such as healthchecks.io, notices when that ends."},
	{Path: "heartbeat.urlFile", Kind: kindFile,
		Help: "A file that holds the URL."},
	{Path: "heartbeat.interval", Kind: kindDuration, Default: "1m", min: int64(time.Second), max: day,
		Help: "How often."},
}

// sections marks the settings of those that an element may do without: their defaults hold where
// they are given.
func sections(path string, all []*Setting, names ...string) []*Setting {
	for _, s := range all {
		name, _, nested := strings.Cut(strings.TrimPrefix(s.Path, path), ".")
		s.optional = nested && slices.Contains(names, name)
	}
	return all
}

// urlFile is the row of a file with the URL of a sink.
func urlFile(kind string) *Setting {
	return &Setting{Path: "alerts[]." + kind + ".urlFile", Kind: kindFile,
		Help: "A file that holds the URL, such as a mounted secret."}
}

// servers is what sinks have in common that are servers of the operator's own.
func servers(kind string) []*Setting {
	path := "alerts[]." + kind + "."
	return []*Setting{
		urlFile(kind),
		{Path: path + "headers", Kind: kindTexts, secret: true,
			Help: "Headers that each request gets in addition, such as `{X-Scope-OrgID: payments}`."},
		{Path: path + "headersFile", Kind: kindFile,
			Help: "A file that holds such headers, each on a line of its own as `name: value`."},
		{Path: path + "bearerToken", Kind: kindString, secret: true,
			Help: "A token for the header `Authorization: Bearer`."},
		{Path: path + "bearerTokenFile", Kind: kindFile,
			Help: "A file that holds the token."},
		{Path: path + "username", Kind: kindString,
			Help: "The user name for basic authentication."},
		{Path: path + "password", Kind: kindString, secret: true,
			Help: "The password that goes with it."},
		{Path: path + "passwordFile", Kind: kindFile,
			Help: "A file that holds the password."},
		{Path: path + "authorityFile", Kind: kindFile,
			Help: "The certificates, in PEM, that the server's certificate is checked against, instead of those of the machine."},
	}
}
