// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"

	"overdue/internal/servicebus/address"
)

// parseAddress reads the address of a source or a target. One that is not plain
// gives an address whose name nothing has.
func parseAddress(s string) address.Address {
	a, err := address.Parse(s)
	if err != nil {
		return address.Address{Name: s}
	}
	return a
}

// isDead reports whether a is that of a dead-letter queue, of either kind.
func isDead(a address.Address) bool { return a.SubQueue != address.Main }

// key is what names are looked up by.
func key(name string) string { return strings.ToLower(name) }

// validShortName reports whether a subscription may be called so.
func validShortName(name string) bool {
	return len(name) <= maxShortName && validName(name) && !strings.Contains(name, "/")
}

// validName reports whether a queue or topic may be called so. The path of a
// subscription is none: it would shadow the real one.
func validName(name string) bool {
	a, err := address.Name(name)
	return err == nil && a.Subscription == "" && len(name) <= maxNameLength
}
