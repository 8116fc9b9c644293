// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// The sender of a message names the address of the report, in any spelling. An address that leads
// nowhere costs that sender the report, and costs other senders no attempt.
func TestReportsGoWhereAnAddressLeads(t *testing.T) {
	for replyTo, want := range map[string]int{
		"replies": 1, "/replies": 1, "sb://overdue.test/replies": 1, "amqps://overdue.test/REPLIES/": 1,
		"//replies": 0, "replies//": 0, "a b://overdue.test/replies": 0, "a/../replies": 0,
		"$cbs": 0, "replies/$DeadLetterQueue": 0, "replies/$management": 0, "events/Subscriptions/all": 0, "nobody": 0, "/": 0,
		"due": 0, "sb://overdue.test/DUE": 0, // the monitor queue, which would take a report for a companion
	} {
		t.Run(replyTo, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := deadLettered(t, Handling{Report: true}, &azservicebus.Message{ReplyTo: &replyTo})
				if err != nil {
					t.Errorf("Alert = %v, want no further try", err)
				}
				for name, want := range map[string]int{"replies": want, "due": 0} {
					r, err := client.NewReceiverForQueue(name, nil)
					if err != nil {
						t.Fatal(err)
					}
					if ms, err := r.PeekMessages(t.Context(), 10, nil); err != nil || len(ms) != want {
						t.Errorf("%s has %d messages, %v, want %d", name, len(ms), err, want)
					}
				}
			})
		})
	}
}
