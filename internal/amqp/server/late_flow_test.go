// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"overdue/internal/amqp"
)

func TestFlowBehindADetachIsNoError(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		p.begin(0)
		p.attach(0, 0, amqp.RoleReceiver, "q")
		p.send(0, &amqp.Detach{Handle: 0, Closed: true}, nil)
		expect[*amqp.Detach](p)
		p.send(0, linkFlow(0, 0, 1), nil) // as go-amqp does when it tops up credit while it closes
		if a := p.attach(0, 1, amqp.RoleReceiver, "q"); a.Source == nil {
			t.Error("the session does not go on: a new link was refused")
		}
	})
}
