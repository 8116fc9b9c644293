// SPDX-License-Identifier: Apache-2.0

package atom_test

import (
	"fmt"
	"strings"
	"testing"

	"overdue/internal/servicebus/atom"
)

// entry is a body whose description has these elements.
func entry(elements string) string {
	return `<?xml version="1.0" encoding="utf-8"?><entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription>` +
		elements + `</QueueDescription></content></entry>`
}

func TestWhereADescriptionForwardsToHasOneReading(t *testing.T) {
	for body, want := range map[string]string{
		entry(""): "",
		entry("<LockDuration>PT1M</LockDuration><ForwardTo>b</ForwardTo>"):                                "ForwardTo b",
		entry("<ForwardTo> sb://h/team/b </ForwardTo>"):                                                   "ForwardTo team/b",
		entry("<ForwardTo>b</ForwardTo><ForwardDeadLetteredMessagesTo>c</ForwardDeadLetteredMessagesTo>"): "ForwardTo b, ForwardDeadLetteredMessagesTo c",
		entry("<ForwardTo/>"):                         "",
		entry(`<ForwardTo i:nil="true"/>`):            "",
		entry("<ForwardTo>&#x62;</ForwardTo>"):        "ForwardTo b",
		entry("<ForwardTo><![CDATA[b]]></ForwardTo>"): "ForwardTo b",
		entry("<!-- c --><ForwardTo>b</ForwardTo>"):   "ForwardTo b",

		entry("<ForwardTo>a<x>y</x>b</ForwardTo>"):                     "!",
		entry("<ForwardTo><x>b</x></ForwardTo>"):                       "!",
		entry("<ForwardTo>a<!-- c -->b</ForwardTo>"):                   "!",
		entry("<ForwardTo>a<?c?>b</ForwardTo>"):                        "!",
		entry("<ForwardTo>b</ForwardTo><ForwardTo>c</ForwardTo>"):      "ForwardTo b, ForwardTo c",
		entry("<ForwardTo>b</ForwardTo><forwardto>c</forwardto>"):      "!",
		entry("<forwardTo>c</forwardTo>"):                              "!",
		entry("<LockDuration><ForwardTo>c</ForwardTo></LockDuration>"): "!",
		entry("text<ForwardTo>c</ForwardTo>"):                          "!",
		entry("<ForwardTo>a/../b</ForwardTo>"):                         "!",
		entry("<ForwardTo>a%2Fb</ForwardTo>"):                          "!",
		entry("<ForwardTo>&b;</ForwardTo>"):                            "!",
		entry("</QueueDescription><QueueDescription>"):                 "!",
		"<!DOCTYPE entry>" + entry(""):                                 "!",
		entry("") + entry(""):                                          "!",
		"<entry/>":                                                     "!",
		"<entry><content/><content><Q/></content></entry>":             "!",
		"<feed/>": "!",
		"":        "!",
		"hello":   "!",
		entry(strings.Repeat("<x>", 100) + strings.Repeat("</x>", 100)): "!",
		entry(strings.Repeat("<x/>", 20_000)):                           "!",
	} {
		var said []string
		forwards, err := atom.Forwards(strings.NewReader(body))
		for _, f := range forwards {
			said = append(said, fmt.Sprint(f.Element, " ", f.To))
		}
		got := strings.Join(said, ", ")
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("Forwards(%.300s) = %q, %v; want %q", body, got, err, want)
		}
	}
}
