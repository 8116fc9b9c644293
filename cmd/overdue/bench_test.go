// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/lag"
)

func TestBenchSaysWhatBecameOfEachMessage(t *testing.T) {
	enqueued := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	letter := func(i int, lag time.Duration) benchLetter {
		return benchLetter{SequenceNumber: int64(i), MessageID: benchID(i), EnqueuedTime: enqueued, DeadLetteredTime: enqueued.Add(5*time.Second + lag)}
	}
	ttl := make([]time.Duration, 9)
	for i := range ttl {
		ttl[i] = 5 * time.Second
	}
	once := func(numbers ...int) map[string]int {
		m := map[string]int{}
		for _, i := range numbers {
			m[benchID(i)]++
		}
		return m
	}
	for name, c := range map[string]struct {
		completed, told map[string]int
		letters         []benchLetter
		want            benchCase
	}{
		"all as it should be": {
			completed: once(0, 1, 2, 3, 4, 5), told: once(6, 7, 8),
			letters: []benchLetter{letter(6, time.Millisecond), letter(7, 2*time.Millisecond), letter(8, 30*time.Millisecond)},
			want:    benchCase{Consumed: 6, DeadLettered: 3, Told: 3, LagMs: lag.Milliseconds{P50: 2, P99: 30, Max: 30}},
		},
		"each kind of wrong once": {
			completed: once(0, 1, 2, 3), told: once(0, 5, 6, 6, 7),
			// 0 is told of though it was received, 1 is a dead letter, too, 4 is nowhere, 5 is one twice, 6 is told
			// of twice, 7 comes early, nobody is told of 8.
			letters: []benchLetter{letter(1, time.Second), letter(5, time.Second), letter(5, time.Second), letter(6, time.Second), letter(7, -time.Millisecond), letter(8, time.Second)},
			want: benchCase{
				Consumed: 4, DeadLettered: 5, Told: 4, Early: 1, Twice: 3, Lost: 1, Untold: 1, FalselyTold: 1,
				LagMs: lag.Milliseconds{P50: 1000, P99: 1000, Max: 1000},
			},
		},
	} {
		var got benchCase
		got.tally(ttl, c.completed, c.told, c.letters)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestBenchFailsWhenAPromiseIsBroken(t *testing.T) {
	plan := &benchPlan{}
	for want, c := range map[string]benchCase{
		"": {Outstanding: 10, DeadLettered: 10, Told: 10, LagMs: lag.Milliseconds{P99: 1e6}},
		"10 messages with 4 consumers 1 were lost": {Outstanding: 10, Consumers: 4, Lost: 1},
		"2 were dead-lettered before":              {Early: 2},
		"3 came or were told twice":                {Twice: 3},
		"4 were dead-lettered and not":             {Untold: 4},
		"5 were told of though":                    {FalselyTold: 5},
	} {
		r := newBenchReport(plan)
		r.Cases = append(r.Cases, &c)
		err := r.verdict()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("verdict = %v, want %q in it", err, want)
		}
	}
}

func TestBenchCountsOperationsSinceItsBegin(t *testing.T) {
	c := benchCase{Outstanding: 10}
	c.account(map[string]float64{
		`overdue_broker_operations_total{operation="probe"}`: 3, sampleCPU: 1,
	}, map[string]float64{
		`overdue_broker_operations_total{operation="probe"}`: 3, `overdue_broker_operations_total{operation="peek"}`: 20,
		`overdue_broker_operations_total{operation="nudge"}`: 5, `overdue_sends_total{entity="x"}`: 10, sampleCPU: 1.5,
	})
	want := benchCase{Outstanding: 10, Operations: map[string]int{"peek": 20, "nudge": 5}, OperationsPerMessage: 2.5, CPUMicrosPerMessage: 50_000}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("case (-want +got):\n%s", diff)
	}
}

func TestBenchSpreadsDeadlinesEvenlyOverTheirRange(t *testing.T) {
	plan := &benchPlan{shortest: 5 * time.Second, longest: 15 * time.Second}
	seconds := map[int]int{}
	for _, ttl := range plan.deadlines(100_000) {
		if ttl < plan.shortest || ttl > plan.longest || ttl%time.Millisecond != 0 {
			t.Fatalf("a deadline %v after the send, want whole milliseconds between %v and %v", ttl, plan.shortest, plan.longest)
		}
		seconds[int(ttl/time.Second)]++
	}
	for s := 5; s < 15; s++ {
		if n := seconds[s]; n < 9_500 || n > 10_500 {
			t.Errorf("%d deadlines in second %d, want about 10000", n, s)
		}
	}
	same := &benchPlan{shortest: time.Second, longest: time.Second}
	if got := same.deadlines(3); !cmp.Equal(got, []time.Duration{time.Second, time.Second, time.Second}) {
		t.Errorf("deadlines of a range of one instant = %v, want three times 1s", got)
	}
}

// cancelsAt ends a context when a text has been written.
type cancelsAt struct {
	written bytes.Buffer
	text    string
	cancel  func()
}

func (w *cancelsAt) Write(p []byte) (int, error) {
	n, err := w.written.Write(p)
	if strings.Contains(w.written.String(), w.text) {
		w.cancel()
	}
	return n, err
}

func TestBenchEndsWhenItIsInterruptedAndKeepsWhatItHasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &cancelsAt{text: "operations on the broker", cancel: cancel}
	var complaints bytes.Buffer
	began := time.Now()
	err := run(ctx, []string{"bench", "expire", "--outstanding", "1,2", "--deadline-range", "300ms-300ms"}, func(string) string { return "" }, out, &complaints)
	if code := exitCode(err, &complaints); code != exitFailure || complaints.String() != "overdue: interrupted before the end\n" {
		t.Errorf("an interrupted bench exits with %d and %q, want 1 and that it was interrupted", code, complaints.String())
	}
	if got := strings.Count(out.written.String(), "operations on the broker"); got != 1 {
		t.Errorf("%d cases in the table, want the one that was done:\n%s", got, out.written.String())
	}
	if took := time.Since(began); took > scriptPatience {
		t.Errorf("it took %v to end, want it at once", took)
	}
}
