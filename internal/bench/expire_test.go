// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/lag"
)

func TestExpireSaysWhatBecameOfEachMessage(t *testing.T) {
	enqueued := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	letter := func(i int, lag time.Duration) deadLetter {
		return deadLetter{SequenceNumber: int64(i), MessageID: messageID(i), EnqueuedTime: enqueued,
			DeadLetteredTime: enqueued.Add(5*time.Second + lag)}
	}
	ttl := make([]time.Duration, 9)
	for i := range ttl {
		ttl[i] = 5 * time.Second
	}
	ids := func(numbers ...int) (all []string) {
		for _, i := range numbers {
			all = append(all, messageID(i))
		}
		return all
	}
	// Notified a millisecond after it was dead-lettered, if it was on time.
	notices := func(numbers ...int) map[string]notice {
		m := map[string]notice{}
		for _, i := range numbers {
			id := messageID(i)
			m[id] = notice{count: m[id].count + 1, at: enqueued.Add(5*time.Second + time.Millisecond),
				evidence: map[bool]string{true: "expired", false: "deadLetter"}[i == 7]}
		}
		return m
	}
	for name, c := range map[string]struct {
		completed []string
		notified  map[string]notice
		letters   []deadLetter
		want      expireCase
	}{
		"all as it should be": {
			completed: ids(0, 1, 2, 3, 4, 5), notified: notices(6, 7, 8),
			letters: []deadLetter{letter(6, 500*time.Microsecond), letter(7, 250*time.Microsecond),
				letter(8, time.Millisecond)},
			want: expireCase{Consumed: 6, DeadLettered: 3, Notified: 3,
				LagMs:         lag.Milliseconds{P50: 0.5, P99: 1, Max: 1},
				NotifiedLagMs: lag.Milliseconds{P50: 1, P99: 1, Max: 1},
				UntilEventMs:  lag.Milliseconds{P50: 0.5, P99: 0.75, Max: 0.75},
				Evidence:      map[string]int{"deadLetter": 2, "expired": 1}},
		},
		"each kind of wrong once": {
			completed: ids(0, 1, 2, 3), notified: notices(0, 5, 6, 6, 7),
			// 0 has a notification though it was received; 1 is a dead letter, too; 4 is nowhere; 5 is one
			// twice. 6 has two notifications, 7 comes early, 8 has none.
			letters: []deadLetter{letter(1, time.Second), letter(5, time.Second),
				letter(5, time.Second), letter(6, time.Second), letter(7, -time.Millisecond),
				letter(8, time.Second)},
			want: expireCase{
				Consumed: 4, DeadLettered: 5, Notified: 4, Early: 1, Twice: 3, Lost: 1,
				Unnotified: 1, FalselyNotified: 1,
				LagMs:         lag.Milliseconds{P50: 1000, P99: 1000, Max: 1000},
				NotifiedLagMs: lag.Milliseconds{P50: 1, P99: 1, Max: 1},
				UntilEventMs:  lag.Milliseconds{P50: -999, P99: 2, Max: 2},
				Evidence:      map[string]int{"deadLetter": 3, "expired": 1},
			},
		},
	} {
		var got expireCase
		got.tally(ttl, outcomesOf(c.completed, c.notified, c.letters))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestExpireFailsWhenAPromiseIsBroken(t *testing.T) {
	plan := &Expire{}
	for want, c := range map[string]expireCase{
		"": {Outstanding: 10, DeadLettered: 10, Notified: 10, LagMs: lag.Milliseconds{P99: 1e6}},
		"10 outstanding, 4 consumers: 1 messages were lost":           {Outstanding: 10, Consumers: 4, Lost: 1},
		"2 messages were dead-lettered before":                        {Early: 2},
		"3 messages came twice or had two":                            {Twice: 3},
		"dead letters drained: 4 messages were dead-lettered without": {Drained: true, Unnotified: 5, Unknown: 1},
		"5 messages had a notification though":                        {FalselyNotified: 5},
	} {
		r := newExpireResult(&Program{}, plan)
		r.Cases = append(r.Cases, &c)
		err := r.Verdict()
		if want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("verdict = %v, want %q in it", err, want)
		}
	}
}

func TestExpireCountsOperationsSinceItsBegin(t *testing.T) {
	c := expireCase{Outstanding: 10}
	c.account(map[string]float64{
		`overdue_broker_operations_total{operation="probe"}`: 3, sampleCPU: 1,
	}, map[string]float64{
		`overdue_broker_operations_total{operation="probe"}`: 3,
		`overdue_broker_operations_total{operation="peek"}`:  20,
		`overdue_broker_operations_total{operation="nudge"}`: 5,
		`overdue_sends_total{entity="x"}`:                    10, sampleCPU: 1.5,
	})
	want := expireCase{Outstanding: 10, Operations: map[string]int{"peek": 20, "nudge": 5},
		OperationsPerMessage: 2.5, CPUMicrosPerMessage: 50_000}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("case (-want +got):\n%s", diff)
	}
}

func TestExpireSpreadsDeadlinesEvenlyOverTheirRange(t *testing.T) {
	plan := &Expire{Shortest: 5 * time.Second, Longest: 15 * time.Second}
	seconds := map[int]int{}
	for _, ttl := range plan.deadlines(100_000) {
		if ttl < plan.Shortest || ttl > plan.Longest || ttl%time.Millisecond != 0 {
			t.Fatalf("a deadline %v after the send, want whole milliseconds between %v and %v", ttl,
				plan.Shortest, plan.Longest)
		}
		seconds[int(ttl/time.Second)]++
	}
	for s := 5; s < 15; s++ {
		if n := seconds[s]; n < 9_500 || n > 10_500 {
			t.Errorf("%d deadlines in second %d, want about 10000", n, s)
		}
	}
	same := &Expire{Shortest: time.Second, Longest: time.Second}
	if got := same.deadlines(3); !cmp.Equal(got,
		[]time.Duration{time.Second, time.Second, time.Second}) {
		t.Errorf("deadlines of a range of one instant = %v, want three times 1s", got)
	}
}
