// SPDX-License-Identifier: Apache-2.0

package address

import (
	"fmt"
	"strconv"
	"strings"
)

// A SubQueue is a part of an entity that messages are received from.
type SubQueue uint8

// The sub-queues.
const (
	Main SubQueue = iota
	DeadLetter
	TransferDeadLetter
)

// A Node is what answers at an address.
type Node uint8

// The nodes.
const (
	Messages   Node = iota // of an entity, or of a sub-queue
	Management             // the $management node of an entity or of a sub-queue
	CBS                    // the namespace's $cbs, which takes tokens
)

// An Address is what an address says. The zero value is the namespace. Names are in the case that
// they were given in: compare Folded addresses, or their Keys.
type Address struct {
	Name         string // of the queue or topic; "" with CBS, and for the namespace
	Subscription string // "" = none
	SubQueue     SubQueue
	Node         Node
}

// Words of paths, as Service Bus spells them.
const (
	subscriptions = "Subscriptions"
	rules         = "Rules"
	management    = "$management"
	deadLetter    = "$DeadLetterQueue"
	transfer      = "$Transfer"
	cbs           = "$cbs"
)

// Parse reads the address of a link, or a name in a configuration. Errors: ErrNotPlain.
func Parse(text string) (Address, error) {
	path, err := Plain(text)
	if err != nil {
		return Address{}, err
	}
	return parse(text, path)
}

// OfPath reads a path that Plain, Audience or URLPath has returned. Errors: ErrNotPlain.
func OfPath(path string) (Address, error) { return parse(path, path) }

func parse(text, path string) (a Address, err error) {
	switch {
	case path == "":
		return a, nil
	case strings.EqualFold(path, cbs):
		return Address{Node: CBS}, nil
	}
	rest := path
	if head, ok := cutLast(rest, management); ok {
		rest, a.Node = head, Management
	}
	if head, ok := cutLast(rest, deadLetter); ok {
		rest, a.SubQueue = head, DeadLetter
		if head, ok = cutLast(rest, transfer); ok {
			rest, a.SubQueue = head, TransferDeadLetter
		}
	}
	if strings.Contains(rest, "$") {
		return Address{}, refuse(text, "has a segment with a dollar sign that is no node of an entity")
	}
	a.Name, a.Subscription = SplitSubscription(rest)
	if why := a.fault(); why != "" {
		return Address{}, refuse(text, why)
	}
	return a, nil
}

// NamespaceName returns the name of the namespace at a host: its first label.
func NamespaceName(host string) string {
	host, _, _ = strings.Cut(host, ".")
	host, _, _ = strings.Cut(host, ":")
	return host
}

// cutLast cuts the last segment off a path of several if it is the word.
func cutLast(path, word string) (head string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 || !strings.EqualFold(path[i+1:], word) {
		return path, false
	}
	return path[:i], true
}

// lastSegment returns where the slash before the last inner segment stands that is the word, -1
// where there is none. The first and the last segment of a path are not inner ones.
func lastSegment(path, word string) int {
	for end := strings.LastIndexByte(path, '/'); end > 0; {
		begin := strings.LastIndexByte(path[:end], '/')
		if begin > 0 && strings.EqualFold(path[begin+1:end], word) {
			return begin
		}
		end = begin
	}
	return -1
}

// fault says why there cannot be what a names, "" where there can.
func (a Address) fault() string {
	switch {
	case len(a.Name) > MaxName:
		return fmt.Sprintf("has a name of more than %d characters", MaxName)
	case len(a.Subscription) > MaxShortName:
		return fmt.Sprintf("has a subscription of more than %d characters", MaxShortName)
	case lastSegment(a.Name+"/x", subscriptions) >= 0:
		return "has a name with the segment Subscriptions in it"
	case a.Subscription == "":
		return ""
	case strings.Contains(a.Subscription, "/"):
		return "has a subscription with a slash in its name"
	}
	return ""
}

// Name reads the name of a queue or topic, or topic/Subscriptions/name, as a configuration states
// it: an address without scheme, slashes around it, sub-queue and node. Errors: ErrNotPlain.
func Name(text string) (Address, error) {
	a, err := Parse(text)
	switch {
	case err != nil:
		return Address{}, err
	case a.Name == "" || a.Entity() != a.String():
		return Address{}, refuse(text, "is not the name of a queue, a topic or a subscription")
	case !strings.EqualFold(text, a.String()):
		return Address{}, refuse(text, "has a scheme or a slash around it, which a name has not")
	}
	return a, nil
}

// IsNamespace reports whether a names the namespace, and nothing in it.
func (a Address) IsNamespace() bool { return a == Address{} }

// TakesMessages reports whether a is that of a queue or topic itself, where messages can be sent.
func (a Address) TakesMessages() bool {
	return a.Name != "" && a.Subscription == "" && a.SubQueue == Main && a.Node == Messages
}

// Entity is the path of the queue, topic or subscription that a belongs to, "" with CBS.
func (a Address) Entity() string {
	if a.Subscription == "" {
		return a.Name
	}
	return SubscriptionPath(a.Name, a.Subscription)
}

// String is the path of a in the form that Service Bus gives it.
func (a Address) String() string {
	if a.Node == CBS {
		return cbs
	}
	path := a.Entity()
	switch a.SubQueue {
	case DeadLetter:
		path += "/" + deadLetter
	case TransferDeadLetter:
		path += "/" + transfer + "/" + deadLetter
	}
	if a.Node == Management {
		path += "/" + management
	}
	return path
}

// Key is the path of a in lower case, equal for equal addresses.
func (a Address) Key() string { return strings.ToLower(a.String()) }

// Folded is a in lower case, so that == compares what is addressed.
func (a Address) Folded() Address {
	a.Name, a.Subscription = strings.ToLower(a.Name), strings.ToLower(a.Subscription)
	return a
}

// MessageName names a message of an entity: by its message-id, or by # and its sequence number if
// it has none.
func MessageName(messageID string, number int64) string {
	if messageID != "" {
		return messageID
	}
	return "#" + strconv.FormatInt(number, 10)
}

// Names reports whether name names a message: it is its message-id, or # and its sequence number.
func Names(name, messageID string, number int64) bool {
	return name == messageID || name == MessageName("", number)
}
