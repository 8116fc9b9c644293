// SPDX-License-Identifier: Apache-2.0

package brokertest

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/pipenet"
)

// Fake time stands still when the function of a bubble has returned. Bytes that are under way then,
// and a broker that cannot close, would fail the test that left them.
func TestAFaultThatIsLeftSetDoesNotOutliveTheTest(t *testing.T) {
	for name, fault := range map[string]func(*pipenet.Network){
		"none":            func(*pipenet.Network) {},
		"stall":           func(n *pipenet.Network) { n.Stall(pipenet.Both) },
		"delay":           func(n *pipenet.Network) { n.Delay(pipenet.Both, time.Minute) },
		"delay and stall": func(n *pipenet.Network) { n.Delay(pipenet.Both, time.Minute); n.Stall(pipenet.Both) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ns := New(t)
				sender, err := ns.Client(t).NewSender("orders", nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := sender.SendMessage(t.Context(), &azservicebus.Message{}, nil); err != nil {
					t.Fatal(err)
				}
				conn, err := ns.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the broker has accepted it
				fault(ns.Net)
				if name == "stall" {
					return // a write would wait
				}
				if _, err := io.WriteString(conn, "AMQP"); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
