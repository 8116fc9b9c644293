// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"overdue/internal/lag"
)

// lagResult is what `overdue doctor lag --json` prints. Fields are added, never renamed.
type lagResult struct {
	Namespace    string     `json:"namespace"`
	Messages     int        `json:"messages"` // per queue
	WaitedMs     int64      `json:"waitedMs"` // from the first send to the last look
	ResolutionMs int64      `json:"resolutionMs"`
	Native       lagOfQueue `json:"native"`
	Eager        lagOfQueue `json:"eager"`

	native, eager []time.Duration
	wait          time.Duration
}

// lagOfQueue is what became of the messages of one queue. Lags are of those that were dead-lettered.
type lagOfQueue struct {
	DeadLettered int              `json:"deadLettered"`
	Waiting      int              `json:"waiting"` // still on the queue at the end
	LagMs        lag.Milliseconds `json:"lagMs"`
}

// verdict is an error unless every watched message was dead-lettered.
func (r *lagResult) verdict() error {
	if r.Eager.DeadLettered != r.Messages {
		return fmt.Errorf("of %d watched messages %d were dead-lettered; overdue doctor may know why", r.Messages, r.Eager.DeadLettered)
	}
	return nil
}

// lagSteps are the rows of the graph.
var lagSteps = []time.Duration{
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
}

const lagBar = 24

// writeGraph draws how many messages were how late, in both queues.
func (r *lagResult) writeGraph(w io.Writer, colour bool) error {
	var b strings.Builder
	bar := func(n int, code string) string {
		full := (n*lagBar + r.Messages - 1) / r.Messages
		text := strings.Repeat("█", full)
		if colour && full > 0 {
			text = "\x1b[" + code + "m" + text + "\x1b[0m"
		}
		number := "    "
		if n > 0 {
			number = fmt.Sprintf("%3d ", n)
		}
		return number + text + strings.Repeat(" ", lagBar-full)
	}
	row := func(label string, native, eager int) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-20s %s %s", label, bar(native, "33"), bar(eager, "32")), " ") + "\n")
	}
	fmt.Fprintf(&b, "\n  %-20s %-*s %s\n", "after the deadline", lagBar+4, "left to itself", "watched by Overdue")
	first, last := rowsOf(r.native, r.eager)
	within := func(lags []time.Duration, i int) (n int) {
		for _, lag := range lags {
			if stepOf(lag) == i {
				n++
			}
		}
		return n
	}
	for i := first; i <= last; i++ {
		label := "later"
		if i < len(lagSteps) {
			label = "within " + lagSteps[i].String()
		}
		row(label, within(r.native, i), within(r.eager, i))
	}
	if r.Native.Waiting+r.Eager.Waiting > 0 {
		row(fmt.Sprintf("still there, %s on", r.wait), r.Native.Waiting, r.Eager.Waiting)
	}
	b.WriteByte('\n')
	for _, line := range []struct {
		what string
		of   *lagOfQueue
	}{{"left to itself", &r.Native}, {"watched by Overdue", &r.Eager}} {
		if line.of.DeadLettered == 0 {
			fmt.Fprintf(&b, "  %-20s none of %d dead-lettered\n", line.what, r.Messages)
			continue
		}
		fmt.Fprintf(&b, "  %-20s %d of %d dead-lettered; half of those within %.0f ms, 99 of 100 within %.0f ms, the last within %.0f ms\n",
			line.what, line.of.DeadLettered, r.Messages, line.of.LagMs.P50, line.of.LagMs.P99, line.of.LagMs.Max)
	}
	fmt.Fprintf(&b, "  Figures are as sharp as %d ms and a round trip.\n", r.ResolutionMs)
	_, err := io.WriteString(w, b.String())
	return err
}

// stepOf is the row that a lag belongs to.
func stepOf(lag time.Duration) int {
	for i, step := range lagSteps {
		if lag <= step {
			return i
		}
	}
	return len(lagSteps)
}

// rowsOf is the first and the last row that something belongs to; no row where nothing does.
func rowsOf(sets ...[]time.Duration) (first, last int) {
	first, last = len(lagSteps), -1
	for _, lags := range sets {
		for _, lag := range lags {
			first, last = min(first, stepOf(lag)), max(last, stepOf(lag))
		}
	}
	return first, last
}
