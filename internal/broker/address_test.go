// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"testing"
)

func TestAddressesOfEveryClientAreUnderstood(t *testing.T) {
	tests := map[string]address{
		"q":                      {name: "q"},
		"/q":                     {name: "q"},
		"q/":                     {name: "q"},
		"a/b":                    {name: "a/b"},
		"amqps://host:5671/q":    {name: "q"},
		"sb://host/a/b/":         {name: "a/b"},
		"q/$management":          {name: "q", management: true},
		"amqp://h/q/$Management": {name: "q", management: true},
		"q/$DeadLetterQueue":     {name: "q", deadLetter: true},
		"/Q/$deadletterqueue":    {name: "Q", deadLetter: true},
		"q/$DeadLetterQueue/$management": {
			name: "q", deadLetter: true, management: true,
		},
		"t/Subscriptions/s/$Transfer/$DeadLetterQueue": {name: "t/Subscriptions/s", deadLetter: true, transfer: true},
		"q/$transfer":    {name: "q/$transfer"},
		"$cbs":           {cbs: true},
		"/$CBS":          {cbs: true},
		"amqps://h/$cbs": {cbs: true},
		"":               {},
		"amqps://h":      {},
		"/$management":   {name: "/$management"},
		"q/$cbs":         {name: "q/$cbs"},
		"://":            {name: "://"},
		"q/$managementx": {name: "q/$managementx"},
		"amqps://h//q":   {name: "q"},
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
		"../../etc": false, ".q": false, "q-": false, "_q": false,
		"t/Subscriptions/s": false, "a b": false, "ä": false, "q\x00": false, strings.Repeat("x", 261): false,
	} {
		if got := validName(name); got != want {
			t.Errorf("validName(%.40q) = %v, want %v", name, got, want)
		}
	}
}
