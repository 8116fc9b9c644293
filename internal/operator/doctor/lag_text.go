// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io"
	"strings"
	"time"

	"overdue/internal/escape"
	"overdue/internal/lag"
)

// A LagResult is the outcome of [MeasureLag]. Its JSON form is the output of `overdue doctor lag
// --json`. Fields are added, never renamed.
type LagResult struct {
	Namespace    string   `json:"namespace"`
	Messages     int      `json:"messages"`     // per queue
	WaitedMs     int64    `json:"waitedMs"`     // from the first send to the last peek
	ResolutionMs int64    `json:"resolutionMs"` // between two peeks
	Native       QueueLag `json:"native"`
	Eager        QueueLag `json:"eager"`

	native, eager []time.Duration
	wait          time.Duration
}

// A QueueLag says what became of the messages of one queue.
type QueueLag struct {
	DeadLettered int              `json:"deadLettered"`
	Waiting      int              `json:"waiting"` // in the queue at the end
	LagMs        lag.Milliseconds `json:"lagMs"`   // of those that were dead-lettered
}

// Err returns an error unless all messages of the monitored queue were dead-lettered.
func (r *LagResult) Err() error {
	if r.Eager.DeadLettered != r.Messages {
		return fmt.Errorf("only %d of %d monitored messages were dead-lettered; run `overdue doctor` to find out why", r.Eager.DeadLettered, r.Messages)
	}
	return nil
}

// lagSteps are the rows of the graph.
var lagSteps = []time.Duration{
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
}

const (
	lagLabel = 24 // columns before the bars
	lagBar   = 24 // columns of a full bar

	nativeTitle = "native expiry"
	eagerTitle  = "with Overdue"
)

// WriteText draws the distribution of the lags of both queues, in less than 100 columns.
func (r *LagResult) WriteText(w io.Writer, color bool) error {
	var b strings.Builder
	bar := func(n int, code string) string {
		full := (n*lagBar + r.Messages - 1) / r.Messages
		text := strings.Repeat("█", full)
		if color && full > 0 {
			text = "\x1b[" + code + "m" + text + "\x1b[0m"
		}
		number := "    "
		if n > 0 {
			number = fmt.Sprintf("%3d ", n)
		}
		return number + text + strings.Repeat(" ", lagBar-full)
	}
	row := func(label string, native, eager int) {
		line := fmt.Sprintf("  %-*s %s %s", lagLabel, label, bar(native, "33"), bar(eager, "32"))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	fmt.Fprintf(&b, "\n  %-*s %-*s %s\n", lagLabel, "lag after the deadline", lagBar+4, nativeTitle, eagerTitle)
	first, last := lagRows(r.native, r.eager)
	for i := first; i <= last; i++ {
		label := "more"
		if i < len(lagSteps) {
			label = "up to " + span(lagSteps[i])
		}
		row(label, countStep(r.native, i), countStep(r.eager, i))
	}
	if r.Native.Waiting+r.Eager.Waiting > 0 {
		row(fmt.Sprintf("still there after %s", span(r.wait)), r.Native.Waiting, r.Eager.Waiting)
	}
	b.WriteByte('\n')
	for _, q := range []struct {
		title string
		*QueueLag
	}{{nativeTitle, &r.Native}, {eagerTitle, &r.Eager}} {
		fmt.Fprintf(&b, "  %-*s %d of %d dead-lettered", lagLabel, q.title, q.DeadLettered, r.Messages)
		if q.DeadLettered > 0 {
			fmt.Fprintf(&b, "; lag p50 %.0f ms, p99 %.0f ms, max %.0f ms", q.LagMs.P50, q.LagMs.P99, q.LagMs.Max)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "  %-*s %d ms plus a round trip to %s\n", lagLabel, "resolution", r.ResolutionMs, escape.Text(r.Namespace))
	_, err := io.WriteString(w, b.String())
	return err
}

// countStep counts the lags that belong to a row.
func countStep(lags []time.Duration, step int) (n int) {
	for _, lag := range lags {
		if stepOf(lag) == step {
			n++
		}
	}
	return n
}

// stepOf returns the row of a lag.
func stepOf(lag time.Duration) int {
	for i, step := range lagSteps {
		if lag <= step {
			return i
		}
	}
	return len(lagSteps)
}

// lagRows returns the first and the last row with a lag. Without lags the last comes before the
// first.
func lagRows(sets ...[]time.Duration) (first, last int) {
	first, last = len(lagSteps), -1
	for _, lags := range sets {
		for _, lag := range lags {
			first, last = min(first, stepOf(lag)), max(last, stepOf(lag))
		}
	}
	return first, last
}
