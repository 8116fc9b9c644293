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
		Help: "The name of the sink in logs and metrics. A renamed sink gets the events that it has not accepted yet a second time."},
	{Path: "alerts[].entities", Kind: kindStrings, DefaultNote: "all",
		Help: "Patterns of the queues and topics whose events the sink gets, such as `orders*`. A `*` matches anything but a slash."},
	{Path: "alerts[].events", Kind: kindStrings, DefaultNote: "all",
		Help: "Events that the sink gets: any of `missed` (a deadline), `incomplete` (a message that was not completed in time) and `near` (a deadline, see warnBefore)."},
	{Path: "alerts[].title", Kind: kindString, template: true, DefaultNote: "the default wording",
		Help: "A Go template for the first line of a notification, such as `{{.Count}} late on {{.Where}}`."},
	{Path: "alerts[].text", Kind: kindString, template: true, DefaultNote: "the default wording",
		Help: "A Go template for the rest of a notification."},
	{Path: "alerts[].links.dashboard", Kind: kindString,
		Help: "The URL of a dashboard, which notifications link to, such as `https://grafana.example.com/d/overdue?var-entity={entity}`. `{namespace}`, `{entity}`, `{subscription}` and `{type}` (`missed`, `incomplete`, `near`) stand for those of the group."},
	{Path: "alerts[].links.runbook", Kind: kindString,
		Help: "The URL of a runbook, with the same placeholders, such as `https://wiki.example.com/overdue/{entity}`."},
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
	{Path: "alerts[].webhook.grouped", Kind: KindBool, Default: "false",
		Help: "Post notifications of groups instead, in the form that Alertmanager posts to its webhooks (version 4)."},
	{Path: "alerts[].webhook.signingSecret", Kind: kindString, secret: true,
		Help: "The secret that each request is signed with, by Standard Webhooks: `whsec_` and 24 to 64 bytes in base64. Two, separated by a space, during a rotation: each request has a signature for both. docs/reference/webhooks.md shows how to check one."},
	{Path: "alerts[].webhook.signingSecretFile", Kind: kindFile,
		Help: "A file that holds the secret, or the two on a line each. A changed file takes effect at once."},
}, servers("webhook", "the webhook"),
	[]*Setting{{Path: "alerts[].alertmanager.url", Kind: kindURL, secret: true,
		Help: "The base URL of an Alertmanager. It gets alerts over the API v2, repeated every minute until the group is resolved. It groups and waits itself, so group.wait is 0 here unless you set it. Add one sink for each member of a cluster."}},
	servers("alertmanager", "the Alertmanager"),
	[]*Setting{
		{Path: "alerts[].alertmanager.severity", Kind: KindChoice, Default: "critical", Choices: []string{"critical", "error", "warning", "info"},
			Help: "The label `severity` of a missed deadline, or of a message that was not completed in time. A deadline that is near is a warning at most."},
		{Path: "alerts[].alertmanager.labels", Kind: kindTexts,
			Help: "Labels that each alert gets in addition, such as `{team: payments}`. Alertmanager routes by labels."},
		{Path: "alerts[].alertmanager.annotations", Kind: kindTexts,
			Help: "Annotations that each alert gets in addition."},
	},
	[]*Setting{{Path: "alerts[].slack.url", Kind: kindURL, secret: true,
		Help: "An incoming webhook of Slack."}},
	requests("slack", "Slack"),
	[]*Setting{{Path: "alerts[].teams.url", Kind: kindURL, secret: true,
		Help: "A workflow of Teams that starts when a Teams webhook request is received."}},
	requests("teams", "Teams"),
	[]*Setting{
		{Path: "alerts[].pagerduty.routingKey", Kind: kindString, secret: true,
			Help: "The integration key of a service that uses the Events API v2."},
		{Path: "alerts[].pagerduty.routingKeyFile", Kind: kindFile,
			Help: "A file that holds the integration key."},
		{Path: "alerts[].pagerduty.severity", Kind: KindChoice, Default: "error", Choices: []string{"critical", "error", "warning", "info"},
			Help: "The severity of a missed deadline, or of a message that was not completed in time. A deadline that is near is a warning at most."},
		{Path: "alerts[].pagerduty.url", Kind: kindURL, Default: "https://events.pagerduty.com/v2/enqueue",
			Help: "The URL of the Events API v2. The service region Europe has another one."},
		{Path: "alerts[].pagerduty.timeout", Kind: kindDuration, Default: "30s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
			Help: "How long one attempt may take."},

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
		{Path: "alerts[].email.timeout", Kind: kindDuration, Default: "10s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
			Help: "How long one attempt may take."},

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
		{Path: "alerts[]." + kind + ".urlFile", Kind: kindFile,
			Help: "A file that holds the URL, such as a mounted secret."},
		{Path: "alerts[]." + kind + ".timeout", Kind: kindDuration, Default: "30s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
			Help: "How long one attempt to reach " + what + " may take."},
	}
}

// servers is what sinks have in common that are servers of the operator's own.
func servers(kind, what string) []*Setting {
	path := "alerts[]." + kind + "."
	return append(requests(kind, what), []*Setting{
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
	}...)
}
