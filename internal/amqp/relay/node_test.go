// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
)

// atNode is a peer with both links to the relay's own $cbs.
func atNode(t *testing.T) *peer {
	t.Helper()
	s := setup(t, func(c *Config) { c.Tokens = ownKey() })
	p := s.peer()
	p.attachSender("requests", 0, "$cbs")
	p.write(0, &amqp.Attach{
		Name: "replies", Handle: 1, Role: amqp.RoleReceiver, Source: &amqp.Source{Address: "$cbs", HasAddress: true},
		Target: &amqp.Target{Address: "cbs-reply", HasAddress: true},
	}, nil)
	p.expect("attach")
	return p
}

// ask puts a token, sent settled or not.
func (p *peer) ask(id uint32, settled bool) {
	p.s.Helper()
	p.write(0, &amqp.Transfer{
		HasDeliveryID: true, DeliveryID: id, DeliveryTag: []byte{byte(id)}, Settled: settled, HasSettled: true,
	}, request(p.s.T, "id", "cbs-reply", putProperties("sb://overdue.test/orders"), "token"))
}

// grant gives credit for replies, of which the client has had some.
func (p *peer) grant(had, credit uint32) {
	p.s.Helper()
	p.write(0, &amqp.Flow{
		HasNextIncomingID: true, IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: 1,
		HasDeliveryCount: true, DeliveryCount: had, HasLinkCredit: true, LinkCredit: credit,
	}, nil)
}

func TestARequestIsSettledThoughTheOneBeforeCameSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := atNode(t)
		p.ask(0, true)
		p.ask(1, false)
		if got := p.came("disposition"); len(got) != 1 {
			t.Errorf("got %q, want one disposition, of the second request", got)
		}
	})
}

func TestAClientGrantsCreditForRepliesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := atNode(t)
		var had, id uint32
		for i, c := range []struct{ credit, asks, want uint32 }{{1, 1, 1}, {2, 3, 2}, {1, 1, 1}} {
			p.grant(had, c.credit)
			for range c.asks {
				p.ask(id, true)
				id++
			}
			if got := p.came("transfer"); uint32(len(got)) != c.want {
				t.Fatalf("grant %d: got %q, want %d replies to %d requests", i, got, c.want, c.asks)
			}
			had += c.want
		}
	})
}
