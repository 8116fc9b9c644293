// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSettleCountsFalseNotificationsApartFromThoseOfMissedMessages(t *testing.T) {
	notices := map[string]notice{
		messageID(0): {count: 1, at: time.Now(), evidence: "expired"}, // completed
		messageID(2): {count: 1, at: time.Now(), evidence: "deadLetter"},
		messageID(3): {count: 1, at: time.Now(), evidence: "deadLetter"},
	}
	c := settleCase{Missed: 2}
	c.tally(3, outcomesOf([]string{messageID(0), messageID(1)}, notices, nil))
	want := settleCase{Completed: 2, Expired: 1, FalselyNotified: 1, Missed: 2, MissedNotified: 1,
		Evidence: map[string]int{"expired": 1}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("case (-want +got):\n%s", diff)
	}
}

func TestSettleFailsOnFalseNotificationsOfWhatPassedTheEndpoint(t *testing.T) {
	for want, c := range map[string]settleCase{
		"": {Way: wayBroker, Completed: 10, FalselyNotified: 3},
		"3 messages had a notification though they were completed": {Way: wayEndpoint, Completed: 10, FalselyNotified: 3},
		"over the broker: 1 missed messages":                       {Way: wayBroker, Missed: 5, MissedNotified: 3, Unknown: 1},
	} {
		err := (&SettleResult{Cases: []*settleCase{&c}}).Verdict()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("verdict = %v, want %q in it", err, want)
		}
	}
}

func TestSpinEndsWithItsInput(t *testing.T) {
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Spin(r) }()
	select {
	case err := <-ended:
		t.Fatalf("it ended before its input did: %v", err)
	default:
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
