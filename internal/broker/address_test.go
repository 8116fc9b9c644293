// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"testing"

	"overdue/internal/servicebus/address"
)

func TestAddressesOfEveryClientAreUnderstood(t *testing.T) {
	tests := map[string]address.Address{
		"q":                      {Name: "q"},
		"/q":                     {Name: "q"},
		"q/":                     {Name: "q"},
		"a/b":                    {Name: "a/b"},
		"amqps://host:5671/q":    {Name: "q"},
		"sb://host/a/b/":         {Name: "a/b"},
		"q/$management":          {Name: "q", Node: address.Management},
		"amqp://h/q/$Management": {Name: "q", Node: address.Management},
		"q/$DeadLetterQueue":     {Name: "q", SubQueue: address.DeadLetter},
		"/Q/$deadletterqueue":    {Name: "Q", SubQueue: address.DeadLetter},
		"q/$DeadLetterQueue/$management": {
			Name: "q", SubQueue: address.DeadLetter, Node: address.Management,
		},
		"t/Subscriptions/s/$Transfer/$DeadLetterQueue": {Name: "t", Subscription: "s", SubQueue: address.TransferDeadLetter},
		"q/$transfer":    {Name: "q/$transfer"},
		"$cbs":           {Node: address.CBS},
		"/$CBS":          {Node: address.CBS},
		"amqps://h/$cbs": {Node: address.CBS},
		"":               {},
		"amqps://h":      {},
		"/$management":   {Name: "/$management"},
		"q/$cbs":         {Name: "q/$cbs"},
		"://":            {Name: "://"},
		"q/$managementx": {Name: "q/$managementx"},
		"amqps://h//q":   {Name: "q"},
	}
	for in, want := range tests {
		if got := parseAddress(in); got != want {
			t.Errorf("parseAddress(%q) = %+v, want %+v", in, got, want)
		}
	}
}

func TestNamesOfQueues(t *testing.T) {
	for name, want := range map[string]bool{
		"q": true, "a/b": true, "A.b-c_9": true, strings.Repeat("x", 260): true,
		"": false, "/q": false, "q/": false, "a//b": false, "$cbs": false, "q/$management": false,
		"MassTransit/Fault--Shop/Order--": true, ".q": true, "q-": true, "_q": true, "a/-": true,
		"../../etc": false, "..": false, "a/.": false,
		"t/Subscriptions/s": false, "a b": false, "ä": false, "q\x00": false, strings.Repeat("x", 261): false,
	} {
		if got := validName(name); got != want {
			t.Errorf("validName(%.40q) = %v, want %v", name, got, want)
		}
	}
}
