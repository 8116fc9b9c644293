// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"overdue/internal/servicebus/link"
	"overdue/monitor/search"
)

// Whoever takes dead letters away at once would have taken the one that lies there still: what
// disappears was received.
func TestADeadLetterThatLiesThereSpeaksForConsumers(t *testing.T) {
	withQueue(t, 1, func(t *testing.T, e *entity, r *link.Receiver, _ func(string) float64) {
		m, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.DeadLetter(t.Context(), m, "reason", ""); err != nil {
			t.Fatal(err)
		}
		e.log = zap.NewNop()
		e.dead = search.View{Links: e.work.Links, Path: "orders/$DeadLetterQueue", Operations: e.w.metrics.operations, Seen: &e.seen}
		t.Cleanup(func() { e.dead.Close(t.Context()) })
		vanishes := func(want int) {
			t.Helper()
			wt := &watch{expiredByNudge: message(nil), companion: &companion{w: e.w, until: time.Now().Add(maxHold)}}
			if err := e.decideDisappeared(t.Context(), []*watch{wt}); err != nil {
				t.Fatal(err)
			}
			if got := e.w.states.get(e.key).disappeared; got != want {
				t.Errorf("%d passes count in which messages vanished, want %d", got, want)
			}
		}
		vanishes(1)
		time.Sleep(disappearedRetry - time.Second)
		vanishes(2)
		time.Sleep(time.Second)
		vanishes(0)
	})
}
