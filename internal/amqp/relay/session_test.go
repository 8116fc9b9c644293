// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"testing"
	"testing/synctest"

	"overdue/internal/amqp"
)

// Handles are as many as Service Bus allows, and one too many ends the session as it does there.
func TestASessionHasTheHandlesOfServiceBus(t *testing.T) {
	for _, tc := range []struct{ asked, want uint32 }{{1 << 31, 255}, {255, 255}, {10, 10}} {
		synctest.Test(t, func(t *testing.T) {
			s := setup(t, nil)
			p := s.peer()
			p.write(1, &amqp.Begin{IncomingWindow: 100, HandleMax: tc.asked}, nil)
			if got := p.expect("begin"); !strings.Contains(got, " handle-max="+amqp.IDText(uint64(tc.want))) {
				t.Errorf("begin = %s, want handle-max %d", got, tc.want)
			}
			attach := func(handle uint32) {
				p.write(1, &amqp.Attach{
					Name: amqp.IDText(uint64(handle)), Handle: handle, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true},
				}, nil)
			}
			attach(tc.want)
			p.expect("attach")
			attach(tc.want + 1)
			if got := p.expect("end"); !strings.Contains(got, "amqp:resource-limit-exceeded") || !strings.Contains(got, "The maximum number of handles allowed is") {
				t.Errorf("got %s, want the error of the service", got)
			}
		})
	}
}
