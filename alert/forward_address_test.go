// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Whoever sends a message says where the report goes, in any spelling of an address. One that leads nowhere costs its sender the
// report, and nobody else a try.
func TestReportsGoWhereAnAddressLeads(t *testing.T) {
	for replyTo, want := range map[string]int{
		"replies": 1, "/replies": 1, "sb://overdue.test/replies": 1, "amqps://overdue.test/REPLIES/": 1,
		"//replies": 0, "replies//": 0, "ftp://overdue.test/replies": 0, "a/../replies": 0,
		"$cbs": 0, "replies/$DeadLetterQueue": 0, "replies/$management": 0, "events/Subscriptions/all": 0, "nobody": 0, "/": 0,
		"due": 0, "sb://overdue.test/DUE": 0, // the monitor queue, which would take a report for a companion
	} {
		t.Run(replyTo, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ns := brokertest.New(t, func(c *broker.Config) {
					c.Expiry, c.AutoCreate = queue.Eager, false
					c.Queues = []broker.QueueConfig{{Name: "orders", DeadLetteringOnMessageExpiration: true}, {Name: "replies"}, {Name: "due"}}
				})
				links := link.New(link.Config{Host: "overdue.test", Plain: true, Dial: ns.Dial, Tokens: link.SAS("k", "c2VjcmV0")})
				t.Cleanup(func() { _ = links.Close() })
				f, err := NewForward(ForwardConfig{Client: ns.Lasting(t), Links: links, MonitorQueue: "due", Handling: func(string) Handling { return Handling{Report: true} }})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = f.Close(context.Background()) })
				sender, err := ns.Client(t).NewSender("orders", nil)
				if err != nil {
					t.Fatal(err)
				}
				life := time.Second
				if err := sender.SendMessage(t.Context(), &azservicebus.Message{TimeToLive: &life, ReplyTo: &replyTo}, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				e := someEvent()
				e.ID, e.Data.Entity, e.Data.SequenceNumber = fmt.Sprint("event of ", replyTo), "orders", 1
				if err := f.Alert(t.Context(), e); err != nil {
					t.Errorf("Alert = %v, want no further try", err)
				}
				r, err := ns.Client(t).NewReceiverForQueue("replies", nil)
				if err != nil {
					t.Fatal(err)
				}
				due, err := ns.Client(t).NewReceiverForQueue("due", nil)
				if err != nil {
					t.Fatal(err)
				}
				if ms, err := due.PeekMessages(t.Context(), 10, nil); err != nil || len(ms) != 0 {
					t.Errorf("the monitor queue has %d messages, %v, want none", len(ms), err)
				}
				ms, err := r.PeekMessages(t.Context(), 10, nil)
				if err != nil || len(ms) != want {
					t.Errorf("%d reports, %v, want %d", len(ms), err, want)
				}
			})
		})
	}
}
