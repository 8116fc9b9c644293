// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"

	"overdue/internal/amqp"
)

func TestAPeersFlowOpensTheWindow(t *testing.T) {
	flow := func(next, window uint32) *amqp.Flow {
		return &amqp.Flow{NextIncomingID: next, HasNextIncomingID: true, IncomingWindow: window}
	}
	for name, c := range map[string]struct {
		sent, first uint32
		flow        *amqp.Flow
		want        uint32
	}{
		"all has arrived":                            {10, 0, flow(10, 5), 5},
		"some is in flight":                          {10, 0, flow(8, 5), 3},
		"all of the window is in flight":             {10, 0, flow(2, 5), 0},
		"ids wrap":                                   {3, 0, flow(1<<32-2, 9), 4},
		"it has not seen the begin":                  {4, 1, &amqp.Flow{IncomingWindow: 5}, 2},
		"it counts what was never sent":              {10, 0, flow(12, 5), 5},
		"it counts what was never sent, huge window": {10, 0, flow(12, 1<<32-1), 1<<32 - 1},
	} {
		w := Windows{NextOutgoing: c.sent}
		if w.Flow(c.flow, c.first); w.Outgoing != c.want {
			t.Errorf("%s: the peer takes %d, want %d", name, w.Outgoing, c.want)
		}
	}
}

func TestAWindowIsUsedUp(t *testing.T) {
	w := Windows{Incoming: 2}
	w.Begin(&amqp.Begin{NextOutgoingID: 1<<32 - 1, IncomingWindow: 2})
	for i, want := range []bool{true, true, false} {
		if got := w.Receive(); got != want {
			t.Errorf("transfer %d is allowed = %v, want %v", i, got, want)
		}
	}
	w.Send()
	var f amqp.Flow
	w.Fill(&f)
	if f.NextIncomingID != 1 || f.IncomingWindow != 0 || f.NextOutgoingID != 1 || w.Outgoing != 1 {
		t.Errorf("flow %+v, the peer takes %d; want next-incoming-id 1, window 0, next-outgoing-id 1, and 1", f, w.Outgoing)
	}
}
