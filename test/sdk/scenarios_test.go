// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"slices"
	"strings"
)

// entraScenario needs a server that takes tokens of Entra ID: none that has keys of its own.
const entraScenario = "entra"

// The scenarios, and which SDKs have what they need. broker.yaml has a queue or
// a topic of the name of each.
var scenarios = []struct{ name, sdks string }{
	{"send-receive", "js python java"},
	{"property-types", "js python java"},
	{"body-types", "js python java"},
	{"batch", "js python java"},
	{"receive-and-delete", "js python java"},
	{"peek", "js python java"},
	{"large-message", "js python java"},
	{"message-too-large", "js python java"},
	{"send-again", "js python java"},
	{"subscribe", "js python java"},

	{"complete", "js python java"},
	{"abandon", "js python java"},
	{"max-delivery-count", "js python java"},
	{"defer", "js python java"},
	{"dead-letter", "js python java"},
	{"expire", "js python java"},

	{"schedule", "js python java"},
	{"schedule-by-property", "js python java"},
	{"cancel", "js python java"},

	{"renew-lock", "js python java"},
	{"auto-renew", "js python java"},
	{"lock-lost", "js python java"},
	// The Java SDK settles on the link of the delivery or not at all.
	{"settle-over-management", "js python"},
	// The one that does not count its deliveries under a lock.
	{"concurrent-requests", "python"},

	{"session", "js python java"},
	{"session-next", "js python java"},
	{"session-renew", "js python java"},
	{"session-lock-lost", "js python java"},
	{"session-topic", "js python java"},
	// Of these SDKs one lists sessions.
	{"session-list", "python"},

	{"topic", "js python java"},
	{"topic-schedule", "js python java"},
	// The Python SDK changes rules by the administration API only.
	{"rule-manager", "js java"},

	// The JavaScript and Python SDKs have no transactions.
	{"transaction-commit", "java"},
	{"transaction-rollback", "java"},
	{"transaction-across", "java"},

	{"duplicate", "js python java"},
	{"forward", "js python java"},
	{"entity-not-found", "js python java"},
	{"reconnect", "js python java"},

	{"tls", "js python java"},
	{"websocket", "js python java"},
	{"custom-endpoint", "js python java"},
	{entraScenario, "js python java"},
	{"administration", "js python java"},

	// With Qpid JMS, which is no SDK of Azure.
	{"jms-tls", "jms"},
	{"jms-send-receive", "jms"},
	{"jms-browse", "jms"},
	{"jms-selector", "jms"},
	{"jms-temporary", "jms"},
	{"jms-anonymous", "jms"},
	{"jms-rollback", "jms"},
	{"jms-dead-letters", "jms"},
}

// scenariosOf returns the names of what sdk has to run, sorted.
func scenariosOf(sdk string) []string {
	var names []string
	for _, s := range scenarios {
		if slices.Contains(strings.Fields(s.sdks), sdk) {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}
