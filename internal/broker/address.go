// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"

	grammar "overdue/internal/servicebus/address"
)

// subscriptionSegment stands between a topic and a subscription, in lower case.
const subscriptionSegment = "/subscriptions/"

// Suffixes of the paths of nodes, as path writes them.
const (
	managementSuffix = "/$management"
	deadLetterSuffix = "/$deadletterqueue"
	transferSuffix   = "/$transfer"
)

// An address says what a link is attached to.
type address struct {
	name       string // of the entity, as the client spells it; empty for $cbs
	deadLetter bool   // its dead-letter queue
	transfer   bool   // with deadLetter: its transfer dead-letter queue
	management bool   // its $management node
	cbs        bool   // the namespace's $cbs node
}

// parseAddress reads the address of a source or a target, see package address. One
// that is not plain gives an address whose name nothing has.
func parseAddress(s string) address {
	a, err := grammar.Parse(s)
	if err != nil {
		return address{name: s}
	}
	return addressOf(a)
}

func addressOf(a grammar.Address) address {
	return address{
		name: a.Entity(), deadLetter: a.SubQueue != grammar.Main, transfer: a.SubQueue == grammar.TransferDeadLetter,
		management: a.Node == grammar.Management, cbs: a.Node == grammar.CBS,
	}
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
	a, err := grammar.Name(name)
	return err == nil && a.Subscription == "" && len(name) <= maxNameLength
}
