// SPDX-License-Identifier: Apache-2.0

package address

import "strings"

// A TargetKind is the kind of what a path of the administration API leads to.
type TargetKind uint8

// The kinds of targets.
const (
	EntityTarget TargetKind = iota // a queue or a topic, which the path does not tell
	SubscriptionTarget
	RuleTarget
	SubscriptionList // of a topic
	RuleList         // of a subscription
	QueueList        // of the namespace
	TopicList        // of the namespace
	NamespaceInfo
	Root // the namespace itself
)

// A Target is what a path of the administration API leads to. Names are in the case that they were
// given in.
type Target struct {
	Kind         TargetKind
	Path         string // as a whole, without slashes at its ends
	Name         string // of the queue or topic; "" where the kind has none
	Subscription string // "" where the kind has none
	Rule         string // "" where the kind has none
}

// TargetAt reads a path of the administration API, as URLPath returns it. It does not check the
// names.
//
// Only names of queues and topics may have slashes, and a name has no segment Subscriptions but its
// first. So the longest end of the path that reads as Subscriptions, a name, Rules, a name is cut
// off.
func TargetAt(path string) Target {
	t := Target{Path: path}
	switch strings.ToLower(path) {
	case "":
		t.Kind = Root
		return t
	case "$namespaceinfo":
		t.Kind = NamespaceInfo
		return t
	case "$resources/queues":
		t.Kind = QueueList
		return t
	case "$resources/topics":
		t.Kind = TopicList
		return t
	}
	segments := strings.Split(path, "/")
	for n := min(4, len(segments)-1); n > 0; n-- {
		name, end := segments[:len(segments)-n], segments[len(segments)-n:]
		if !strings.EqualFold(end[0], subscriptions) || n > 2 && !strings.EqualFold(end[2], rules) {
			continue
		}
		t.Kind = [...]TargetKind{1: SubscriptionList, 2: SubscriptionTarget, 3: RuleList, 4: RuleTarget}[n]
		t.Name = strings.Join(name, "/")
		if n > 1 {
			t.Subscription = end[1]
		}
		if n == 4 {
			t.Rule = end[3]
		}
		return t
	}
	t.Name = path
	return t
}

// Entity returns the path of the queue, topic or subscription that t is or belongs to, "" if there
// is none.
func (t Target) Entity() string {
	return Address{Name: t.Name, Subscription: t.Subscription}.Entity()
}

// SubscriptionPath returns the path of a subscription, as Service Bus spells it. The JavaScript SDK
// looks for this case.
func SubscriptionPath(topic, name string) string { return topic + "/" + subscriptions + "/" + name }

// SplitSubscription is the inverse of SubscriptionPath, in any case. Any other path is returned as
// the name. It checks nothing, see Parse for that.
func SplitSubscription(path string) (name, subscription string) {
	if i := lastSegment(path, subscriptions); i >= 0 {
		return path[:i], path[i+len(subscriptions)+2:]
	}
	return path, ""
}
