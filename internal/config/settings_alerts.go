// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"slices"
	"strings"
	"time"
)

// alertSettings is the part of the table about sinks: what all have, then one kind after the other.
var alertSettings = sections("alerts[].", slices.Concat([]*Setting{
	{Path: "alerts", Kind: kindList,
		Help: "Sinks that get the events of missed deadlines and others, in addition to the log. Each element names one kind of sink."},
	{Path: "alerts[].name", Kind: kindString, DefaultNote: "the kind of sink; from the second of a kind on with a number",
		Help: "What the sink is called in logs and metrics. It is part of what is kept of events that it has not taken yet: one that is renamed gets those once more."},
	{Path: "alerts[].entities", Kind: kindStrings, DefaultNote: "all",
		Help: "Patterns of the queues and topics whose events the sink gets, such as `orders*`. A `*` stands for anything but a slash."},
	{Path: "alerts[].events", Kind: kindStrings, DefaultNote: "all",
		Help: "Events that the sink gets: any of `missed` (a deadline), `incomplete` (a message that was not completed in time) and `near` (a deadline, see warnBefore)."},
	{Path: "alerts[].title", Kind: kindString, DefaultNote: "words of its own",
		Help: "A Go template for the first line of a page, such as `{{.Count}} late on {{.Where}}`."},
	{Path: "alerts[].text", Kind: kindString, DefaultNote: "words of its own",
		Help: "A Go template for the rest of a page."},
	{Path: "alerts[].group.by", Kind: kindStrings, Default: "type,entity,subscription",
		Help: "What events have to have in common to share a page: any of `type`, `entity`, `subscription`, `strategy`, `reason`. The type always is."},
	{Path: "alerts[].group.wait", Kind: kindDuration, Default: "10s", max: int64(time.Hour),
		Help: "How long the first event of a group waits for others before the page is sent."},
	{Path: "alerts[].group.interval", Kind: kindDuration, Default: "5m", min: int64(time.Second), max: day,
		Help: "How long after a page the next one of the group may be sent."},
	{Path: "alerts[].group.resolveAfter", Kind: kindDuration, Default: "15m", min: int64(time.Second), max: 7 * day,
		Help: "How long there must be no event before the group counts as over."},

	{Path: "alerts[].webhook.url", Kind: kindURL, secret: true,
		Help: "Where a CloudEvent is posted for each missed deadline."},
	{Path: "alerts[].webhook.grouped", Kind: KindBool, Default: "false",
		Help: "Post pages of groups instead, in the form that Alertmanager posts to its webhooks (version 4)."},
}, requests("webhook", "the webhook"),
	[]*Setting{{Path: "alerts[].alertmanager.url", Kind: kindURL, secret: true,
		Help: "An Alertmanager, which gets alerts over its API v2 and is reminded every minute until the group is over. It does the waiting itself, so group.wait is 0 here unless it is given. Name each of a cluster."}},
	requests("alertmanager", "the Alertmanager"),
	[]*Setting{{Path: "alerts[].slack.url", Kind: kindURL, secret: true,
		Help: "An incoming webhook of Slack."}},
	requests("slack", "Slack"),
	[]*Setting{{Path: "alerts[].teams.url", Kind: kindURL, secret: true,
		Help: "A workflow of Teams that starts when a Teams webhook request is received."}},
	requests("teams", "Teams"),
	[]*Setting{
		{Path: "alerts[].pagerduty.routingKey", Kind: kindString, secret: true,
			Help: "The integration key of a service that takes the Events API v2."},
		{Path: "alerts[].pagerduty.routingKeyFile", Kind: kindString,
			Help: "A file that holds the integration key."},
		{Path: "alerts[].pagerduty.severity", Kind: KindChoice, Default: "error", Choices: []string{"critical", "error", "warning", "info"},
			Help: "How bad a missed deadline is, or a message that was not completed in time. A deadline that is near is a warning at most."},
		{Path: "alerts[].pagerduty.url", Kind: kindURL, Default: "https://events.pagerduty.com/v2/enqueue",
			Help: "Where events are taken; the service in Europe has another."},
		{Path: "alerts[].pagerduty.timeout", Kind: kindDuration, Default: "5s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
			Help: "How long one attempt may take."},

		{Path: "alerts[].email.host", Kind: kindString,
			Help: "The mail server."},
		{Path: "alerts[].email.port", Kind: kindCount, Default: "0", max: math.MaxUint16,
			Help: "Its port. 0 = 587, 465 or 25, by email.security."},
		{Path: "alerts[].email.security", Kind: KindChoice, Default: "starttls", Choices: []string{"starttls", "tls", "none"},
			Help: "How the connection is protected: it has to change to TLS, speaks TLS from the first byte, or not at all."},
		{Path: "alerts[].email.username", Kind: kindString,
			Help: "Who we are to the mail server."},
		{Path: "alerts[].email.password", Kind: kindString, secret: true,
			Help: "The password that goes with it."},
		{Path: "alerts[].email.passwordFile", Kind: kindString,
			Help: "A file that holds the password."},
		{Path: "alerts[].email.from", Kind: kindString,
			Help: "The sender's address."},
		{Path: "alerts[].email.to", Kind: kindStrings,
			Help: "Who gets the mail."},
		{Path: "alerts[].email.timeout", Kind: kindDuration, Default: "10s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
			Help: "How long one attempt may take."},

		{Path: "alerts[].serviceBus.entity", Kind: kindString,
			Help: "A queue or topic of the same namespace that gets a CloudEvent for each missed deadline. It is not monitored itself unless it is listed."},

		{Path: "alerts[].shoutrrr.url", Kind: kindString, secret: true,
			Help: "A URL of the library shoutrrr, which knows many services more (`smtp`, `generic` and `logger` are left out), such as `ntfy://ntfy.sh/topic`."},
		{Path: "alerts[].shoutrrr.urlFile", Kind: kindString,
			Help: "A file that holds the URL."},
	}), "webhook", "alertmanager", "slack", "teams", "pagerduty", "email", "serviceBus", "shoutrrr")

// watchSettings is how Overdue watches itself.
var watchSettings = []*Setting{
	{Path: "canary.queue", Kind: kindString,
		Help: "A queue for nothing but canaries: messages whose deadlines are missed on purpose, to see whether that is noticed. It has to dead-letter on expiry; the embedded broker makes it. Empty = no canary. Sinks get no events of canaries."},
	{Path: "canary.interval", Kind: kindDuration, Default: "1m", min: int64(10 * time.Second), max: day,
		Help: "How often one is sent. Each costs about ten broker operations."},
	{Path: "heartbeat.url", Kind: kindURL, secret: true,
		Help: "Asked for (GET) every heartbeat.interval as long as this process is ready and its canary comes back: a dead man's switch behind it, such as healthchecks.io, notices when that ends."},
	{Path: "heartbeat.urlFile", Kind: kindString,
		Help: "A file that holds the URL."},
	{Path: "heartbeat.interval", Kind: kindDuration, Default: "1m", min: int64(time.Second), max: day,
		Help: "How often."},
}

// sections marks the settings of those that an element may do without: their defaults hold where they are given.
func sections(path string, all []*Setting, names ...string) []*Setting {
	for _, s := range all {
		name, _, nested := strings.Cut(strings.TrimPrefix(s.Path, path), ".")
		s.optional = nested && slices.Contains(names, name)
	}
	return all
}

// requests is what sinks have in common that take them over HTTP.
func requests(kind, what string) []*Setting {
	return []*Setting{
		{Path: "alerts[]." + kind + ".urlFile", Kind: kindString,
			Help: "A file that holds the URL, such as a mounted secret."},
		{Path: "alerts[]." + kind + ".timeout", Kind: kindDuration, Default: "5s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
			Help: "How long one attempt to reach " + what + " may take."},
	}
}
