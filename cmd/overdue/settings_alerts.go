// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"strings"
	"time"
)

// alertSettings is the part of the table about sinks: what all have, then one kind after the other.
var alertSettings = sections("alerts[].", slices.Concat([]*setting{
	{path: "alerts", kind: kindList,
		help: "Who is told of missed deadlines and what else there is to tell, beside the log. Each element names one kind of sink and how it is told."},
	{path: "alerts[].name", kind: kindString, defNote: "the kind of sink; from the second of a kind on with a number",
		help: "What the sink is called in logs and metrics. It is part of what is kept of events that it has not taken yet: one that is renamed is told of those once more."},
	{path: "alerts[].entities", kind: kindStrings, defNote: "all",
		help: "Patterns of the queues and topics that the sink is told of, such as `orders*`. A `*` stands for anything but a slash."},
	{path: "alerts[].events", kind: kindStrings, defNote: "all",
		help: "What the sink is told of: any of `missed` (a deadline), `incomplete` (a message that was not completed in time) and `near` (a deadline, see warnBefore)."},
	{path: "alerts[].title", kind: kindString, defNote: "words of its own",
		help: "A Go template for the first line of a page, such as `{{.Count}} late on {{.Where}}`."},
	{path: "alerts[].text", kind: kindString, defNote: "words of its own",
		help: "A Go template for the rest of a page."},
	{path: "alerts[].group.by", kind: kindStrings, def: "type,entity,subscription",
		help: "What events have to have in common to share a page: any of `type`, `entity`, `subscription`, `strategy`, `reason`. The type always is."},
	{path: "alerts[].group.wait", kind: kindDuration, def: "10s", max: int64(time.Hour),
		help: "How long the first event of a group waits for others before the page is sent."},
	{path: "alerts[].group.interval", kind: kindDuration, def: "5m", min: int64(time.Second), max: day,
		help: "How long after a page the next one of the group may be sent."},
	{path: "alerts[].group.resolveAfter", kind: kindDuration, def: "15m", min: int64(time.Second), max: 7 * day,
		help: "How long there must be no event before the group is told to be over."},

	{path: "alerts[].webhook.url", kind: kindURL, secret: true,
		help: "Where a CloudEvent is posted for each missed deadline."},
	{path: "alerts[].webhook.grouped", kind: kindBool, def: "false",
		help: "Post pages of groups instead, in the form that Alertmanager posts to its webhooks (version 4)."},
}, requests("webhook", "the webhook"),
	[]*setting{{path: "alerts[].alertmanager.url", kind: kindURL, secret: true,
		help: "An Alertmanager, which is told over its API v2 and reminded every minute until the group is over. It does the waiting itself, so group.wait is 0 here unless it is given. Name each of a cluster."}},
	requests("alertmanager", "the Alertmanager"),
	[]*setting{{path: "alerts[].slack.url", kind: kindURL, secret: true,
		help: "An incoming webhook of Slack."}},
	requests("slack", "Slack"),
	[]*setting{{path: "alerts[].teams.url", kind: kindURL, secret: true,
		help: "A workflow of Teams that starts when a Teams webhook request is received."}},
	requests("teams", "Teams"),
	[]*setting{
		{path: "alerts[].pagerduty.routingKey", kind: kindString, secret: true,
			help: "The integration key of a service that takes the Events API v2."},
		{path: "alerts[].pagerduty.routingKeyFile", kind: kindString,
			help: "A file that holds the integration key."},
		{path: "alerts[].pagerduty.severity", kind: kindChoice, def: "error", enum: []string{"critical", "error", "warning", "info"},
			help: "How bad a missed deadline is, or a message that was not completed in time. A deadline that is near is a warning at most."},
		{path: "alerts[].pagerduty.url", kind: kindURL, def: "https://events.pagerduty.com/v2/enqueue",
			help: "Where events are taken; the service in Europe has another."},
		{path: "alerts[].pagerduty.timeout", kind: kindDuration, def: "5s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
			help: "How long one attempt may take."},

		{path: "alerts[].email.host", kind: kindString,
			help: "The mail server."},
		{path: "alerts[].email.port", kind: kindCount, def: "0", max: math.MaxUint16,
			help: "Its port. 0 = 587, 465 or 25, by email.security."},
		{path: "alerts[].email.security", kind: kindChoice, def: "starttls", enum: []string{"starttls", "tls", "none"},
			help: "How the connection is protected: it has to change to TLS, speaks TLS from the first byte, or not at all."},
		{path: "alerts[].email.username", kind: kindString,
			help: "Who we are to the mail server."},
		{path: "alerts[].email.password", kind: kindString, secret: true,
			help: "The password that goes with it."},
		{path: "alerts[].email.passwordFile", kind: kindString,
			help: "A file that holds the password."},
		{path: "alerts[].email.from", kind: kindString,
			help: "The sender's address."},
		{path: "alerts[].email.to", kind: kindStrings,
			help: "Who gets the mail."},
		{path: "alerts[].email.timeout", kind: kindDuration, def: "10s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
			help: "How long one attempt may take."},

		{path: "alerts[].serviceBus.entity", kind: kindString,
			help: "A queue or topic of the same namespace that gets a CloudEvent for each missed deadline. It is not monitored itself unless it is listed."},

		{path: "alerts[].shoutrrr.url", kind: kindString, secret: true,
			help: "A URL of the library shoutrrr, which knows many services more (`smtp`, `generic` and `logger` are left out), such as `ntfy://ntfy.sh/topic`."},
		{path: "alerts[].shoutrrr.urlFile", kind: kindString,
			help: "A file that holds the URL."},
	}), "webhook", "alertmanager", "slack", "teams", "pagerduty", "email", "serviceBus", "shoutrrr")

// watchSettings is how Overdue watches itself.
var watchSettings = []*setting{
	{path: "canary.queue", kind: kindString,
		help: "A queue for nothing but canaries: messages whose deadlines are missed on purpose, to see whether that is noticed. It has to dead-letter on expiry; the embedded broker makes it. Empty = no canary. Sinks are not told of canaries."},
	{path: "canary.interval", kind: kindDuration, def: "1m", min: int64(10 * time.Second), max: day,
		help: "How often one is sent. Each costs about ten broker operations."},
	{path: "heartbeat.url", kind: kindURL, secret: true,
		help: "Asked for (GET) every heartbeat.interval as long as this process is ready and its canary comes back: a dead man's switch behind it, such as healthchecks.io, notices when that ends."},
	{path: "heartbeat.urlFile", kind: kindString,
		help: "A file that holds the URL."},
	{path: "heartbeat.interval", kind: kindDuration, def: "1m", min: int64(time.Second), max: day,
		help: "How often."},
}

// sections marks the settings of those that an element may do without: their defaults hold where they are given.
func sections(path string, all []*setting, names ...string) []*setting {
	for _, s := range all {
		name, _, nested := strings.Cut(strings.TrimPrefix(s.path, path), ".")
		s.optional = nested && slices.Contains(names, name)
	}
	return all
}

// requests is what sinks have in common that take them over HTTP.
func requests(kind, what string) []*setting {
	return []*setting{
		{path: "alerts[]." + kind + ".urlFile", kind: kindString,
			help: "A file that holds the URL, such as a mounted secret."},
		{path: "alerts[]." + kind + ".timeout", kind: kindDuration, def: "5s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
			help: "How long one attempt to reach " + what + " may take."},
	}
}
