// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"time"
	"unicode"
)

// A setting is one row of the table from which flags, environment variables,
// validation and docs/configuration.md come.
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

// settings is the table, in the order of docs/configuration.md.
var settings = []*setting{
	{path: "namespace", kind: kindString, secret: true, flag: "namespace",
		help: "Which Service Bus namespace to work with: empty for the embedded broker, a name such as `contoso.servicebus.windows.net` " +
			"to sign in with the machine's Azure identity, or a connection string. A connection string on the command line shows in the process list; " +
			"better give it by environment variable or namespaceFile."},
	{path: "namespaceFile", kind: kindString,
		help: "A file that holds what namespace would, such as a mounted secret. Give one of the two."},
	{path: "monitorQueue", kind: kindEntity, def: "overdue-monitor", flag: "monitor-queue",
		help: "The queue that holds the companions. The embedded broker makes it by itself; in a namespace it has to exist."},
	{path: "shutdownTimeout", kind: kindDuration, def: "25s", min: int64(time.Second), max: int64(10 * time.Minute),
		help: "How long a clean stop may take before it is a failure."},

	{path: "listen.amqp", kind: kindAddress, def: "127.0.0.1:5672",
		help: "Reserved for the drop-in AMQP endpoint, which comes in a later release. Nothing listens there yet."},
	{path: "listen.http", kind: kindAddress, def: "127.0.0.1:5300", flag: "listen-http",
		help: "Where the REST door listens: `POST /{queue}/messages`. Port 0 takes any free one."},
	{path: "listen.admin", kind: kindAddress, def: "127.0.0.1:9095", flag: "listen-admin",
		help: "Where probes, metrics and the operator's endpoints listen."},

	{path: "broker.listen", kind: kindAddress, def: "127.0.0.1:5673", flag: "broker-listen",
		help: "Where the embedded broker listens for AMQP. What is sent there directly is not monitored."},
	{path: "broker.expiry", kind: kindChoice, def: "lazy", enum: []string{"lazy", "lazy-head", "eager"}, flag: "broker-expiry",
		help: "When expired messages leave a queue of the embedded broker: `lazy`, as in Azure, moves all of them when somebody receives; " +
			"`lazy-head` then moves only what stands before the first live message; `eager` moves each at once."},
	{path: "broker.autoCreate", kind: kindBool, def: "false", defNote: "; true without a file", flag: "broker-auto-create",
		help: "Whether a queue exists from the moment a client names it. Such a queue dead-letters what expires."},
	{path: "broker.clockOffset", kind: kindDuration, def: "0s", min: -day / 2, max: day / 2,
		help: "How far the embedded broker's clock is ahead of the machine's. For tests of skewed clocks."},
	{path: "broker.maxMessageSize", kind: kindSize, def: "256KiB", min: 1 << 10, max: 100 << 20,
		help: "The largest message that the embedded broker takes. 256 KiB is that of the Standard tier."},
	{path: "broker.queues", kind: kindList,
		help: "The queues of the embedded broker."},
	{path: "broker.queues[].name", kind: kindEntity, need: true,
		help: "What the queue is called. Upper and lower case are the same."},
	{path: "broker.queues[].deadLetteringOnMessageExpiration", kind: kindBool, def: "false",
		help: "Whether an expired message goes to the dead-letter queue. Otherwise it is dropped."},
	{path: "broker.queues[].defaultMessageTimeToLive", kind: kindDuration, def: "0s", max: 1<<63 - 1,
		help: "The time to live of messages that state none, and a cap for those that do. 0 = unlimited."},
	{path: "broker.queues[].lockDuration", kind: kindDuration, def: "1m", min: int64(time.Second), max: int64(5 * time.Minute),
		help: "How long a received message stays locked."},
	{path: "broker.queues[].maxDeliveryCount", kind: kindCount, def: "10", min: 1, max: 2000,
		help: "How often a message is delivered before it is dead-lettered."},

	{path: "monitor.entities", kind: kindList,
		help: "The monitored queues. Without this list, every queue that a send passes through to; with it, exactly these."},
	{path: "monitor.entities[].queue", kind: kindEntity, need: true,
		help: "What the queue is called."},
	{path: "monitor.entities[].deadline", kind: kindDuration, def: "0s", max: 366 * day,
		help: "How soon a message has to be received that states no deadline and no time to live itself. 0 = the time to live decides."},
	{path: "monitor.entities[].expire", kind: kindChoice, def: "auto", enum: []string{"auto", "native", "scan"},
		help: "How an overdue message is taken off the queue: `native` wakes the broker's own expiry (the queue must dead-letter on expiry), " +
			"`scan` receives from the head and dead-letters, `auto` picks by the queue's settings."},
	{path: "monitor.entities[].stampTTL", kind: kindBool, def: "true",
		help: "Whether a message whose deadline comes before the end of its time to live gets the deadline as its time to live."},
	{path: "monitor.entities[].defaultMessageTimeToLive", kind: kindDuration, def: "0s", max: 1<<63 - 1,
		help: "The queue's own setting of that name, for queues of a namespace. Not needed with the embedded broker."},

	{path: "alerts", kind: kindList,
		help: "Who is told of a missed deadline, beside the log."},
	{path: "alerts[].webhook.url", kind: kindURL, need: true, secret: true,
		help: "Where a CloudEvent is posted for each missed deadline."},
	{path: "alerts[].webhook.timeout", kind: kindDuration, def: "5s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
		help: "How long one attempt may take."},

	{path: "proxy.maxInFlight", kind: kindCount, def: "1024", min: 1, max: 100_000,
		help: "How many sends may be under way at once. More have to wait."},
	{path: "proxy.maxBodySize", kind: kindSize, def: "1MiB", min: 1 << 10, max: 100 << 20,
		help: "The largest request body that the REST door reads."},

	{path: "log.level", kind: kindChoice, def: "info", enum: []string{"debug", "info", "warn", "error"}, flag: "log-level",
		help: "The least level that is logged, on stderr. `PUT /loglevel` with the body `level=debug` changes it at run time."},
	{path: "log.format", kind: kindChoice, def: "auto", enum: []string{"auto", "json", "console"}, flag: "log-format",
		help: "`auto` is console on a terminal and JSON elsewhere."},
}

// later are keys that the design knows and this release does not, with the word for what is missing.
var later = map[string]string{
	"redis":                           "Redis",
	"onMonitorDown":                   "a choice of what to do when the monitor queue is down",
	"companions":                      "a choice of the kind of companion",
	"broker.topics":                   "topics",
	"broker.emulatorConfig":           "reading the official emulator's file",
	"broker.queues[].requiresSession": "sessions",
	"monitor.entities[].topic":        "topics",
}
