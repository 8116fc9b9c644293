// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"testing"

	wire "overdue/internal/amqp"
)

func TestADeliveryThatOvertakesAnAnswerIsStillReceived(t *testing.T) {
	c := &txnClient{scene: &scene{T: t, ctx: t.Context()}, in: make(chan frame, 2)}
	c.in <- frame{&wire.Transfer{DeliveryID: 7, HasDeliveryID: true}, []byte("again")}
	c.in <- frame{&wire.Disposition{Role: wire.RoleReceiver}, nil}
	close(c.in)
	await(c, func(*wire.Disposition) bool { return true })
	transfer, payload := await(c, func(*wire.Transfer) bool { return true })
	if transfer.DeliveryID != 7 || string(payload) != "again" {
		t.Errorf("received delivery %d with %q, want 7 with %q", transfer.DeliveryID, payload, "again")
	}
}
