// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"testing"

	"overdue/internal/amqp"
)

// sunk is a connection that takes what is written.
type sunk struct{ net.Conn }

func (sunk) Write(p []byte) (int, error) { return len(p), nil }

// Who waits for credit to be on the wire hears of that of the own link, and of nothing else.
func TestAReceiverLearnsWhenCreditIsWritten(t *testing.T) {
	c := newBareConn(sunk{})
	granted := c.grants.expect("ours")
	write := func(what string, channel uint16, want bool, performatives ...amqp.Performative) {
		t.Helper()
		b := append([]byte(nil), amqp.ProtoAMQP[:]...)
		for _, p := range performatives {
			b = amqp.AppendFrame(b, channel, p, nil)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		select {
		case <-granted:
			if !want {
				t.Errorf("%s: notified of credit", what)
			}
		default:
			if want {
				t.Errorf("%s: not notified of credit", what)
			}
		}
	}
	flow := func(handle, credit uint32) *amqp.Flow {
		return &amqp.Flow{HasHandle: true, Handle: handle, HasLinkCredit: true, LinkCredit: credit}
	}
	write("credit before the attach", 1, false, flow(3, 1))
	write("another link is attached", 1, false, &amqp.Attach{Name: "other", Handle: 2, Role: amqp.RoleReceiver, Source: &amqp.Source{}}, flow(2, 1))
	write("attached", 1, false, &amqp.Attach{Name: "ours", Handle: 3, Role: amqp.RoleReceiver, Source: &amqp.Source{}})
	write("a drain", 1, false, flow(3, 0))
	write("credit of the session", 1, false, &amqp.Flow{})
	write("credit of another session's link", 2, false, flow(3, 1))
	write("credit", 1, true, nil, flow(2, 1), flow(3, 1))
	write("detached", 1, false, &amqp.Detach{Handle: 3, Closed: true}, flow(3, 1))
	if len(c.grants.expected) != 0 || len(c.grants.links) != 0 {
		t.Errorf("left behind: %v, %v", c.grants.expected, c.grants.links)
	}
}
