// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"overdue/internal/testing/pipenet"
)

// Most deadlines are met. Completing their companions one by one over a slow line would
// take longer than they take to come, and whatever is missed would wait behind them.
func TestMetDeadlinesDoNotHoldUpAMissedOne(t *testing.T) {
	play(t, func(s *scene) {
		s.MeasureClock()
		s.startMonitor()
		const n = 300
		base := time.Now().Add(30 * time.Second)
		at := func(i int) string {
			return fmt.Sprintf("%q", base.Add(time.Duration(i)*20*time.Millisecond).UTC().Format(time.RFC3339Nano))
		}
		for i := range n {
			s.send(workQueue, fmt.Sprint("m-", i), "", "Overdue-Deadline", at(i))
		}
		r, err := s.Client.NewReceiverForQueue(workQueue, nil)
		if err != nil {
			s.Fatal(err)
		}
		for done := 0; done < n; {
			ms, err := r.ReceiveMessages(s.Context(), n-done, nil)
			if err != nil {
				s.Fatal(err)
			}
			for _, m := range ms {
				if err := r.CompleteMessage(s.Context(), m, nil); err != nil {
					s.Fatal(err)
				}
			}
			done += len(ms)
		}
		if err := r.Close(s.Context()); err != nil {
			s.Fatal(err)
		}
		s.send(workQueue, "late", "", "Overdue-Deadline", at(n))
		s.Namespace.Net.Delay(pipenet.Both, 20*time.Millisecond)
		time.Sleep(time.Until(base.Add(20 * time.Second)))

		notified := s.Hook.Events()
		if len(notified) != 1 || notified[0].Subject != "late" {
			s.Fatalf("notified %v, want the one message that nobody received", notified)
		}
		if lag := time.Duration(notified[0].Data.LagMs) * time.Millisecond; lag > 2*time.Second {
			s.Errorf("it was dead-lettered %v after its deadline, want 2s at most", lag)
		}
		s.Settled(5 * time.Second)
	})
}
