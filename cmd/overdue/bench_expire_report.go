// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"overdue/internal/lag"
)

// benchReport is what --json prints. It is a contract: scripts read it. Fields are added, never renamed.
type benchReport struct {
	benchHead
	DeadlineRangeMs [2]int64     `json:"deadlineRangeMs"`
	PayloadBytes    int          `json:"payloadBytes"`
	Companions      string       `json:"companions"` // as the setting
	Cases           []*benchCase `json:"cases"`
}

// benchCase is one case of `overdue bench expire`. Messages are counted once in each field.
type benchCase struct {
	Outstanding          int     `json:"outstanding"`
	Consumers            int     `json:"consumers"`
	LoadMs               float64 `json:"loadMs"` // from the first send to the last acknowledgement
	SendsPerSecond       float64 `json:"sendsPerSecond"`
	LoadedBeforeFirstDue bool    `json:"loadedBeforeFirstDue"` // all deadlines were outstanding at a time

	Consumed     int              `json:"consumed"`
	DeadLettered int              `json:"deadLettered"`
	Told         int              `json:"told"`
	Early        int              `json:"early"`       // dead-lettered before the deadline
	Twice        int              `json:"twice"`       // dead-lettered, told or completed twice, or dead-lettered and completed
	Lost         int              `json:"lost"`        // neither completed nor dead-lettered
	Untold       int              `json:"untold"`      // dead-lettered, and nobody was told
	FalselyTold  int              `json:"falselyTold"` // told of, though completed in time
	LagMs        lag.Milliseconds `json:"lagMs"`       // from the deadline to the dead letter, by the broker's stamps

	// TimerLateMs is how late plain timers were in the process of the senders meanwhile: what the machine itself is good for.
	TimerLateMs lag.Milliseconds `json:"timerLateMs"`

	Operations           map[string]int `json:"operations"` // overdue_broker_operations_total, by kind
	OperationsPerMessage float64        `json:"operationsPerMessage"`
	CPUMicrosPerMessage  float64        `json:"cpuMicrosPerMessage"` // of proxy, monitor and broker, from the first send to the last event
	MemoryMiB            struct {
		Idle   float64 `json:"idle"`
		Loaded float64 `json:"loaded"` // when the last send was acknowledged
		Peak   float64 `json:"peak"`
	} `json:"memoryMiB"` // resident, of proxy, monitor and broker
}

func newBenchReport(plan *benchPlan) *benchReport {
	return &benchReport{
		benchHead: newBenchHead(), PayloadBytes: plan.payload, Companions: plan.companions,
		DeadlineRangeMs: [2]int64{plan.shortest.Milliseconds(), plan.longest.Milliseconds()},
		Cases:           []*benchCase{},
	}
}

// benchRow is a row of the table: what a message costs and how late it is, in the middle what must be zero.
const benchRow = "%11v %9v %8v %9v %13v %8v %6v %6v %6v %9v %9v %9v %7v %6v %7v\n"

// writeHead writes what stands above the table.
func (r *benchReport) writeHead(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Deadlines spread evenly over %d to %d ms after each send, payloads of %d bytes, companions: %s. Each case has an Overdue of its own, with the embedded broker.\n\n",
		r.DeadlineRangeMs[0], r.DeadlineRangeMs[1], r.PayloadBytes, r.Companions)
	fmt.Fprintf(&b, benchRow, "", "", "sends", "", "", "", "", "", "", "lag ms", "", "", "oper-", "CPU", "memory")
	fmt.Fprintf(&b, benchRow, "outstanding", "consumers", "per s", "consumed", "dead-lettered", "told", "early", "twice", "lost", "p50", "p99", "max", "ations", "µs", "MiB")
	return writeResult(w, b.String())
}

func (r *benchReport) writeTable(w io.Writer) error {
	err := r.writeHead(w)
	for _, c := range r.Cases {
		err = errors.Join(err, c.writeRow(w))
	}
	return err
}

// benchWatched is the number of deadlines that there is a target for.
const benchWatched = 100_000

// figures are how late they were. The target is for cases as large as benchWatched, of which nobody received.
func (r *benchReport) figures() (all []benchFigure) {
	for _, c := range r.Cases {
		f := benchFigure{
			Name: fmt.Sprintf("expire.%d.%d", c.Outstanding, c.Consumers), Value: c.LagMs.P99, Unit: "ms",
			What: fmt.Sprintf("missed deadlines: lag p99, %d outstanding, %d consumers", c.Outstanding, c.Consumers),
		}
		if c.Outstanding >= benchWatched && c.Consumers == 0 {
			f = f.atMost(50)
		}
		all = append(all, f, benchFigure{
			Name: fmt.Sprintf("expire.%d.%d.timer", c.Outstanding, c.Consumers), What: "… and a plain timer on this machine meanwhile", Value: c.TimerLateMs.P99, Unit: "ms",
		})
	}
	return all
}

// writeRow writes a case, as soon as it is measured.
func (c *benchCase) writeRow(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, benchRow, c.Outstanding, c.Consumers, fmt.Sprintf("%.0f", c.SendsPerSecond), c.Consumed, c.DeadLettered, c.Told, c.Early, c.Twice, c.Lost,
		c.LagMs.P50, c.LagMs.P99, c.LagMs.Max, fmt.Sprintf("%.3f", c.OperationsPerMessage), fmt.Sprintf("%.0f", c.CPUMicrosPerMessage), fmt.Sprintf("%.0f", c.MemoryMiB.Peak))
	fmt.Fprintf(&b, "%11s operations on the broker: %s\n", "", listOperations(c.Operations))
	fmt.Fprintf(&b, "%11s a plain timer was late on this machine meanwhile by %v ms in half of the cases, %v ms at p99, %v ms at most\n", "", c.TimerLateMs.P50, c.TimerLateMs.P99, c.TimerLateMs.Max)
	if !c.LoadedBeforeFirstDue {
		fmt.Fprintf(&b, "%11s not all were outstanding at a time: sending them took %.1f s\n", "", c.LoadMs/1000)
	}
	return writeResult(w, b.String())
}

// listOperations lists what was asked of the broker, by name.
func listOperations(byKind map[string]int) string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		list = append(list, fmt.Sprintf("%s %d", kind, byKind[kind]))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// verdict is an error when a promise was broken. How late is not one of them: that depends on the machine.
func (r *benchReport) verdict() error {
	var errs []error
	for _, c := range r.Cases {
		for _, broken := range []struct {
			n    int
			what string
		}{
			{c.Lost, "were lost"}, {c.Early, "were dead-lettered before their deadline"}, {c.Twice, "came or were told twice"},
			{c.Untold, "were dead-lettered and not told of"}, {c.FalselyTold, "were told of though they were received in time"},
		} {
			if broken.n > 0 {
				errs = append(errs, fmt.Errorf("of %d messages with %d consumers %d %s", c.Outstanding, c.Consumers, broken.n, broken.what))
			}
		}
	}
	return errors.Join(errs...)
}
