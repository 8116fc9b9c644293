// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/lag"
)

func TestACheckCountsWhatBecameOfEachMessage(t *testing.T) {
	enqueued := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	due := map[string]time.Duration{}
	var letters []deadLetter
	for i := range 5 {
		due[messageID(i)] = time.Duration(i+1) * time.Second
		lag := []time.Duration{5, 20, -1, 7, 9}[i] * time.Millisecond
		letters = append(letters, deadLetter{MessageID: messageID(i), EnqueuedTime: enqueued,
			DeadLetteredTime: enqueued.Add(due[messageID(i)] + lag)})
	}
	notices := map[string]notice{messageID(0): {count: 1}, messageID(1): {count: 2}, messageID(2): {count: 1}}
	c := checkCase{Live: 100, Overdue: 5}
	c.tally(due, outcomesOf(nil, notices, letters[:4]), 98)
	want := checkCase{Live: 100, Overdue: 5, DeadLettered: 4, Notified: 3, Early: 1, Twice: 1,
		Disturbed: 2, LagMs: lag.Milliseconds{P50: 5, P99: 20, Max: 20}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("case (-want +got):\n%s", diff)
	}
	all := "of 5 messages among 100 1 were not dead-lettered\nof 5 messages among 100 1 were dead-lettered without a notification\n" +
		"of 5 messages among 100 1 were dead-lettered before their deadline\nof 5 messages among 100 1 were dead-lettered twice or had two notifications\n" +
		"of 5 messages among 100 2 live ones were lost"
	r := &CheckResult{Cases: []*checkCase{{Live: 10, Overdue: 1, DeadLettered: 1, Notified: 1}, &c}}
	if err := r.Verdict(); err == nil || err.Error() != all {
		t.Errorf("verdict = %v, want\n%s", err, all)
	}
}
