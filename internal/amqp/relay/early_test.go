// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/testing/pipenet"
)

// The Python SDK attaches to $cbs behind its begin, without waiting for ours, and
// does not understand an answer that comes before it.
func TestASessionIsBegunBeforeItsLinksAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, func(c *Config) { c.Tokens = SAS("k", "secret") })
		s.ns.Net.Delay(pipenet.Both, time.Second)
		p := s.peer()
		p.write(1, &amqp.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 100}, nil)
		p.write(1, &amqp.Attach{
			Name: "early", Role: amqp.RoleReceiver,
			Source: &amqp.Source{Address: "$cbs", HasAddress: true}, Target: &amqp.Target{Address: "$cbs", HasAddress: true},
		}, nil)
		if got := p.expect("begin", "attach"); got[:5] != "begin" {
			t.Errorf("the first answer is %s, want begin", got)
		}
		p.expect("attach")
	})
}
