// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
	"overdue/scheduler/index"
)

// taking is an index that records the settlements reported to it.
type taking struct {
	*index.Memory
	taken []index.Delivered
}

func (x *taking) Take(d index.Delivered) bool {
	x.taken = append(x.taken, d)
	return false
}

// The process that has sent a message may have slots that stand for it: so it has to hear on which
// entity it was settled.
func TestASettlementSaysWhereTheMessageWasReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t)
		known := &taking{Memory: index.NewMemory(0)}
		s, err := scheduler.New(scheduler.Config{Client: ns.Lasting(t), Links: ns.Links(t), MonitorQueue: monitorQueue, Index: known})
		if err != nil {
			t.Fatal(err)
		}
		d := index.Delivered{Key: index.KeyOf("orders", "m", ""), Enqueued: noon.Truncate(time.Millisecond), Deadline: noon.Truncate(time.Millisecond).Add(time.Minute)}
		l := &settleLink{p: &Proxy{cfg: Config{Scheduler: s}}, entity: "orders"}
		l.Settled(noteOf(d))
		if len(known.taken) != 1 {
			t.Fatalf("%d settlements reported, want 1", len(known.taken))
		}
		got := known.taken[0]
		if got.Entity != "orders" || got.Key != d.Key || !got.Enqueued.Equal(d.Enqueued) || !got.Deadline.Equal(d.Deadline) {
			t.Errorf("settlement = %+v, want %+v on orders", got, d)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
