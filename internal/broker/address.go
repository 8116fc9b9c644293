// SPDX-License-Identifier: Apache-2.0

package broker

import "strings"

// Names of the nodes that every namespace or entity has. Compared without case.
const (
	cbsNode             = "$cbs"
	managementSuffix    = "/$management"
	deadLetterSuffix    = "/$deadletterqueue"
	transferSuffix      = "/$transfer"
	subscriptionSegment = "/subscriptions/"
)

// An address says what a link is attached to.
type address struct {
	name       string // of the entity, as the client spells it; empty for $cbs
	deadLetter bool   // its dead-letter queue
	transfer   bool   // with deadLetter: its transfer dead-letter queue
	management bool   // its $management node
	cbs        bool   // the namespace's $cbs node
}

// parseAddress reads the address of a source or a target. Clients write the
// entity path, with a slash in front (.NET) or behind a whole URI (Python). An
// address without a meaning gives one whose name is not valid.
func parseAddress(s string) address {
	if _, rest, isURI := strings.Cut(s, "://"); isURI {
		_, s, _ = strings.Cut(rest, "/")
	}
	s = strings.Trim(s, "/")
	if strings.EqualFold(s, cbsNode) {
		return address{cbs: true}
	}
	a := address{name: s}
	a.name, a.management = cutSuffixFold(a.name, managementSuffix)
	a.name, a.deadLetter = cutSuffixFold(a.name, deadLetterSuffix)
	if a.deadLetter {
		a.name, a.transfer = cutSuffixFold(a.name, transferSuffix)
	}
	return a
}

func cutSuffixFold(s, suffix string) (string, bool) {
	head := len(s) - len(suffix)
	if head < 0 || !strings.EqualFold(s[head:], suffix) {
		return s, false
	}
	return s[:head], true
}

// path is a as it is written, without slashes around it.
func (a address) path() string {
	p := a.name
	if a.transfer {
		p += transferSuffix
	}
	if a.deadLetter {
		p += deadLetterSuffix
	}
	if a.management {
		p += managementSuffix
	}
	return p
}

// folded returns a so that == compares without case.
func (a address) folded() address {
	a.name = key(a.name)
	return a
}

// key is what names are looked up by.
func key(name string) string { return strings.ToLower(name) }

// subscriptionPath is the path of a subscription, as the service spells it.
func subscriptionPath(topic, name string) string { return topic + "/Subscriptions/" + name }

// validShortName reports whether a subscription may be called so.
func validShortName(name string) bool {
	return len(name) <= maxShortName && validName(name) && !strings.Contains(name, "/")
}

// validName reports whether a queue or topic may be called so. The path of a
// subscription is none: it would shadow the real one.
func validName(name string) bool {
	if name == "" || len(name) > maxNameLength || !alphanumeric(name[0]) || !alphanumeric(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case alphanumeric(c), c == '.', c == '-', c == '_':
		case c == '/' && name[i-1] != '/':
		default:
			return false
		}
	}
	return !strings.Contains(key(name), subscriptionSegment)
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
