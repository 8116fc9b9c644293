// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// exampleHead begins the example.
const exampleHead = `# Every key of the configuration, with its default or an example. A key without a value is not set.
# Keep what you need; what you leave out has its default. Check the result: overdue config check
`

// An exampleElement is an element of a list in the example.
type exampleElement struct {
	keys   []string          // the keys and sections that it shows; none = all
	values map[string]string // values other than defaults, as YAML, by key
}

// exampleElements are the elements of each list in the example. Together they show every key.
var exampleElements = map[string][]exampleElement{
	"listen.keys":                   {{values: map[string]string{"name": "shop", "key": "at-least-12-characters", "send": "true", "listen": "true", "entity": "orders"}}},
	"broker.keys":                   {{values: map[string]string{"name": "shop", "key": "at-least-12-characters", "send": "true", "listen": "true"}}},
	"broker.queues":                 {{values: map[string]string{"name": "orders", "deadLetteringOnMessageExpiration": "true"}}},
	"broker.topics":                 {{values: map[string]string{"name": "events"}}},
	"broker.topics[].subscriptions": {{values: map[string]string{"name": "audit", "deadLetteringOnMessageExpiration": "true"}}},
	"broker.topics[].subscriptions[].rules": {
		{keys: []string{"name", "sql", "action"}, values: map[string]string{"name": "urgent", "sql": "priority > 5", "action": "SET urgent = true"}},
		{keys: []string{"name", "correlation"}, values: map[string]string{"name": "europe", "correlation.properties": "{region: eu}"}},
	},
	"monitor.entities": {
		{keys: []string{"queue", "deadline", "completeWithin", "warnBefore", "adopt", "adoptEvery", "expire", "stampTTL", "defaultMessageTimeToLive",
			"requiresSession", "deadLetteringOnMessageExpiration", "forwardMissedTo", "reportToSender", "labels"},
			values: map[string]string{"queue": "orders", "deadline": "30s", "completeWithin": "2m", "warnBefore": "[5s, 10s]", "labels": "{team: payments, severity: critical}"}},
		{keys: []string{"topic", "deadline", "subscriptions"}, values: map[string]string{"topic": "events", "deadline": "1m"}},
	},
	"monitor.entities[].subscriptions": {{values: map[string]string{"name": "audit"}}},
	"alerts": {
		{keys: []string{"name", "entities", "labels", "events", "title", "text", "links", "group", "webhook"}, values: map[string]string{
			"name": "on-call", "entities": "[orders]", "labels": "[team=payments]", "events": "[missed, incomplete, near]", "title": `"{{.Count}} late on {{.Where}}"`,
			"links.dashboard": "https://grafana.example.com/d/overdue?var-entity={entity}", "links.runbook": "https://wiki.example.com/overdue/{entity}",
			"webhook.url": "https://example.com/hook", "webhook.grouped": "true", "webhook.headers": "{X-Scope-OrgID: payments}"}},
		{keys: []string{"alertmanager"}, values: map[string]string{"alertmanager.url": "http://127.0.0.1:9093",
			"alertmanager.labels": "{team: payments}", "alertmanager.annotations": "{tier: gold}"}},
		{keys: []string{"slack"}, values: map[string]string{"slack.url": "https://hooks.slack.com/services/your/own/webhook"}},
		{keys: []string{"teams"}, values: map[string]string{"teams.url": "https://example.com/workflow"}},
		{keys: []string{"pagerduty"}, values: map[string]string{"pagerduty.routingKey": "your-integration-key"}},
		{keys: []string{"email"}, values: map[string]string{"email.host": "mail.example.com", "email.from": "overdue@example.com", "email.to": "[ops@example.com]"}},
		{keys: []string{"serviceBus"}, values: map[string]string{"serviceBus.entity": "missed-deadlines"}},
		{keys: []string{"shoutrrr"}, values: map[string]string{"shoutrrr.url": "ntfy://ntfy.sh/your-topic"}},
	},
}

// Example is a configuration file with every key of the table. It describes each where it comes first.
func Example() string {
	e := example{described: map[string]bool{}}
	e.b.WriteString(exampleHead)
	e.section("", "", exampleElement{}, 0)
	return e.b.String()
}

type example struct {
	b         strings.Builder
	described map[string]bool
	dash      bool // the next key begins an element
}

// section writes the keys below path. within is the part of path that belongs to the element, "" at its top; both are
// empty or end in a dot.
func (e *example) section(path, within string, element exampleElement, indent int) {
	for _, key := range children(path) {
		if within == "" && len(element.keys) > 0 && !slices.Contains(element.keys, key) {
			continue
		}
		s := byPath[path+key]
		if s == nil {
			e.key(nil, key, "", indent)
			e.section(path+key+".", within+key+".", element, indent+2)
			continue
		}
		if s.Kind != kindList {
			value := s.Default
			if v, ok := element.values[within+key]; ok {
				value = v
			}
			e.key(s, key, value, indent)
			continue
		}
		e.key(s, key, "", indent)
		for _, el := range exampleElements[s.Path] {
			e.dash = true
			e.section(s.Path+"[].", "", el, indent+4)
		}
	}
}

// key writes one key. At the top it has an empty line before it.
func (e *example) key(s *Setting, key, value string, indent int) {
	margin := strings.Repeat(" ", indent)
	first := margin
	if e.dash {
		first = margin[2:] + "- "
		e.dash = false
	}
	if indent == 0 {
		e.b.WriteByte('\n')
	}
	if s != nil && !e.described[s.Path] {
		e.described[s.Path] = true
		comment := strings.TrimSuffix(first, "- ")
		width := 0
		for word := range strings.FieldsSeq(s.described()) {
			n := utf8.RuneCountInString(word) + 1
			if width == 0 || width+n > exampleWidth {
				if width > 0 {
					e.b.WriteByte('\n')
				}
				e.b.WriteString(comment + "#")
				width = len(comment) + 1
			}
			e.b.WriteString(" " + word)
			width += n
		}
		e.b.WriteByte('\n')
	}
	e.b.WriteString(first + key + ":")
	if value != "" {
		fmt.Fprintf(&e.b, " %s", value)
	}
	e.b.WriteByte('\n')
}

// exampleWidth is how many columns the comments of the example have at most.
const exampleWidth = 100
