// SPDX-License-Identifier: Apache-2.0

package atom_test

import (
	"strings"
	"testing"

	"overdue/internal/servicebus/atom"
)

func TestElementsArePutInOrder(t *testing.T) {
	for body, want := range map[string]string{
		entry(`<EnableExpress>true</EnableExpress> <x:ForwardTo xmlns:x="u">b<!-- c --></x:ForwardTo><LockDuration/>`): entry(
			`<LockDuration/><x:ForwardTo xmlns:x="u">b<!-- c --></x:ForwardTo><EnableExpress>true</EnableExpress>`),
		entry(`<AuthorizationRules><a><b/></a></AuthorizationRules><MaxDeliveryCount>1</MaxDeliveryCount>`): entry(
			`<MaxDeliveryCount>1</MaxDeliveryCount><AuthorizationRules><a><b/></a></AuthorizationRules>`),
		entry(""):                             entry(""),
		"<entry><Rule><b/><a/></Rule>":        "<entry><Rule><b/><a/></Rule>",
		"<QueueDescription/>":                 "<QueueDescription/>",
		"<QueueDescription><b/><LockDuration": "<QueueDescription><b/><LockDuration",
		"":                                    "",
	} {
		if got := string(atom.InOrder([]byte(body))); got != want {
			t.Errorf("InOrder(%s) =\n%s\nwant\n%s", body, got, want)
		}
	}
}

func TestWhatDoesNotHoldIsTakenOutOfAnAnswer(t *testing.T) {
	const holds = `<LockDuration>PT1M</LockDuration><Status>Active</Status><EnableExpress>true</EnableExpress>`
	with := entry(strings.Replace(holds, "</Status>", `</Status><LockDuration>PT2M</LockDuration><Unheard/>`, 1) + `<ForwardTo>b</ForwardTo>`)
	if got := string(atom.Holding([]byte("<feed>" + with + with + "</feed>"))); got != "<feed>"+entry(holds)+entry(holds)+"</feed>" {
		t.Errorf("Holding(%s) =\n%s", with, got)
	}
}
