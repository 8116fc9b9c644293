// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"strings"

	"overdue/internal/servicebus/address"
)

// kind is what a path leads to.
type kind int

const (
	entity kind = iota // a queue or a topic, which the path does not tell
	subscription
	rule
	namespaceInfo
	queueList
	topicList
	subscriptionList
	ruleList
)

// target is what a request is about. Names are as the client spelt them.
type target struct {
	kind                       kind
	path                       string // as a whole, without slashes at its ends
	entity, subscription, rule string
}

// parseTarget reads the path of a URL as it was sent: clients escape the slashes
// of a name, or do not. Errors: address.ErrNotPlain.
func parseTarget(escaped string) (target, error) {
	path, err := address.URLPath(escaped)
	if err != nil {
		return target{path: escaped}, badRequest("The path %v.", err)
	}
	return targetAt(path), nil
}

func targetAt(path string) target {
	t := target{path: path}
	switch strings.ToLower(path) {
	case "$namespaceinfo":
		t.kind = namespaceInfo
		return t
	case "$resources/queues":
		t.kind = queueList
		return t
	case "$resources/topics":
		t.kind = topicList
		return t
	}
	// Subscriptions and rules have no slashes in their names, topics have. So read
	// from the end: topic / Subscriptions [/ s [/ Rules [/ r]]].
	parts := strings.Split(path, "/")
	for n := 1; n <= 4 && n < len(parts); n++ {
		topic, rest := parts[:len(parts)-n], parts[len(parts)-n:]
		if !strings.EqualFold(rest[0], "subscriptions") || n >= 3 && !strings.EqualFold(rest[2], "rules") {
			continue
		}
		t.kind = [...]kind{1: subscriptionList, 2: subscription, 3: ruleList, 4: rule}[n]
		t.entity = strings.Join(topic, "/")
		if n >= 2 {
			t.subscription = rest[1]
		}
		if n == 4 {
			t.rule = rest[3]
		}
		return t
	}
	t.entity = path
	return t
}

// The paths of entities as clients expect to see them: the JavaScript SDK finds
// the names between `/Subscriptions/` and `/Rules/`, in just this case.

func subscriptionPath(topic, name string) string { return topic + "/Subscriptions/" + name }

func rulePath(topic, subscription, name string) string {
	return subscriptionPath(topic, subscription) + "/Rules/" + name
}
