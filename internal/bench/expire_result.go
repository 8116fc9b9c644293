// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"overdue/internal/lag"
	"overdue/internal/plural"
)

// ExpireResult is the result of Expire.
type ExpireResult struct {
	Head
	DeadlineRangeMs [2]int64      `json:"deadlineRangeMs"`
	PayloadBytes    int           `json:"payloadBytes"`
	Companions      string        `json:"companions"` // as the setting
	Cases           []*expireCase `json:"cases"`
}

// expireCase is the result for one number of outstanding deadlines. Each field counts a message
// once.
type expireCase struct {
	Outstanding    int     `json:"outstanding"`
	Consumers      int     `json:"consumers"`
	Drained        bool    `json:"drained"` // somebody empties the dead-letter queue meanwhile
	Queues         int     `json:"queues"`
	Load           int     `json:"load"`   // processes that each keep a processor busy meanwhile
	LoadMs         float64 `json:"loadMs"` // from the first send to the last acknowledgement
	SendsPerSecond float64 `json:"sendsPerSecond"`
	// all deadlines were outstanding at the same time
	LoadedBeforeFirstDue bool `json:"loadedBeforeFirstDue"`

	Consumed     int `json:"consumed"`
	DeadLettered int `json:"deadLettered"`
	Notified     int `json:"notified"`
	Early        int `json:"early"` // dead-lettered before the deadline
	// dead-lettered, notified or completed twice, or dead-lettered and completed
	Twice      int `json:"twice"`
	Lost       int `json:"lost"`       // neither completed nor dead-lettered
	Unnotified int `json:"unnotified"` // dead-lettered without a notification
	// Unknown is what the monitor counts as such: somebody took the dead letters that it needed.
	Unknown int `json:"unknown"`
	// a notification, though completed in time
	FalselyNotified int `json:"falselyNotified"`
	// from the deadline to the dead letter, by the broker's stamps; where the dead-letter queue is
	// drained, to the delivery of the dead letter
	LagMs lag.Milliseconds `json:"lagMs"`

	// from the deadline until the bench has read the event, of dead letters
	NotifiedLagMs lag.Milliseconds `json:"notifiedLagMs"`
	// of that, from the dead letter on
	UntilEventMs lag.Milliseconds `json:"untilEventMs"`
	// notifications by their evidence, as in data.evidence
	Evidence map[string]int `json:"evidence,omitempty"`

	// TimerLateMs is how late plain timers were meanwhile in the process of the senders: the best that
	// the machine can do.
	TimerLateMs lag.Milliseconds `json:"timerLateMs"`

	// overdue_broker_operations_total, by kind
	Operations           map[string]int `json:"operations"`
	OperationsPerMessage float64        `json:"operationsPerMessage"`
	// of proxy, monitor and broker, from the first send to the last event
	CPUMicrosPerMessage float64 `json:"cpuMicrosPerMessage"`
	MemoryMiB           struct {
		Idle   float64 `json:"idle"`
		Loaded float64 `json:"loaded"` // when the last send was acknowledged
		Peak   float64 `json:"peak"`
	} `json:"memoryMiB"` // resident, of proxy, monitor and broker
}

func newExpireResult(p *Program, plan *Expire) *ExpireResult {
	return &ExpireResult{
		Head: p.head(), PayloadBytes: plan.Payload, Companions: plan.Companions,
		DeadlineRangeMs: [2]int64{plan.Shortest.Milliseconds(), plan.Longest.Milliseconds()},
		Cases:           []*expireCase{},
	}
}

// targetOutstanding is the least number of deadlines with a target.
const targetOutstanding = 100_000

// Figures are the lags. The targets are for cases of targetOutstanding or more without consumers.
func (r *ExpireResult) Figures() (all []Figure) {
	for _, c := range r.Cases {
		name := c.name()
		f := Figure{
			Name: name, Value: c.LagMs.P99, Unit: "ms",
			What: "missed deadlines: lag p99, " + c.String(),
		}
		operations := Figure{
			Name:  name + ".operations",
			What:  "… and operations for a message",
			Value: c.OperationsPerMessage,
		}
		switch {
		case c.Consumers > 0 || c.Load > 0:
		case c.Queues > 1:
			f = f.atMost(30)
		case c.Outstanding >= 10*targetOutstanding:
			f = f.atMost(60)
		case c.Outstanding >= targetOutstanding && c.Drained:
			f = f.atMost(30)
		case c.Outstanding >= targetOutstanding:
			f, operations = f.atMost(10), operations.atMost(0.08)
		}
		all = append(all, f, operations, Figure{
			Name:  name + ".timer",
			What:  "… and a plain timer in the same run",
			Value: c.TimerLateMs.P99, Unit: "ms",
		})
	}
	return all
}

// WriteTable writes a row for each case, and below it its operations by kind.
func (r *ExpireResult) WriteTable(w io.Writer) error {
	rows := [][]string{{
		"outstanding", "consumers", "drained", "sends/s", "consumed", "dead-lettered", "notified", "early",
		"twice", "lost",
		"lag p50 ms", "p99", "max", "operations", "CPU µs", "MiB",
	}}
	var notes strings.Builder
	for _, c := range r.Cases {
		rows = append(rows, c.row())
		fmt.Fprintf(&notes, "%s\n  operations on the broker: %s\n", c, listCounts(c.Operations))
		fmt.Fprintf(&notes, "  notified: %d of %d missed, %d unknown; evidence: %s\n", c.Notified, c.DeadLettered, c.Unknown, listCounts(c.Evidence))
		fmt.Fprintf(&notes, "  from the deadline to the event: %v ms at p50, %v ms at p99, %v ms at most; from the dead letter to the event: %v ms at p99\n",
			c.NotifiedLagMs.P50, c.NotifiedLagMs.P99, c.NotifiedLagMs.Max, c.UntilEventMs.P99)
		fmt.Fprintf(&notes, "  a plain timer in the same run was late by %v ms at p50, %v ms at p99, %v ms at most\n",
			c.TimerLateMs.P50, c.TimerLateMs.P99, c.TimerLateMs.Max)
		if !c.LoadedBeforeFirstDue {
			fmt.Fprintf(&notes, "  the deadlines were not all outstanding at the same time: sending took %.1f s\n",
				c.LoadMs/1000)
		}
	}
	headline := fmt.Sprintf("deadlines %d to %d ms after each send, payloads of %d bytes, companions: %s, %s",
		r.DeadlineRangeMs[0], r.DeadlineRangeMs[1], r.PayloadBytes, r.Companions, r.where())
	return writeReport(w, headline, rows, "\n"+notes.String(), r.Figures())
}

// name returns the case in names of figures.
func (c *expireCase) name() string {
	name := fmt.Sprintf("expire.%d.%d", c.Outstanding, c.Consumers)
	if c.Drained {
		name += ".drained"
	}
	if c.Queues > 1 {
		name += fmt.Sprintf(".queues%d", c.Queues)
	}
	if c.Load > 0 {
		name += fmt.Sprintf(".load%d", c.Load)
	}
	return name
}

// String returns the case in words.
func (c *expireCase) String() string {
	text := fmt.Sprintf("%d outstanding, ", c.Outstanding)
	if c.Drained {
		text += "dead letters drained"
	} else {
		text += plural.Of(c.Consumers, "consumer", "consumers")
	}
	if c.Queues > 1 {
		text += fmt.Sprintf(", %d queues", c.Queues)
	}
	if c.Load > 0 {
		text += ", " + plural.Of(c.Load, "busy process", "busy processes")
	}
	return text
}

func (c *expireCase) row() []string {
	return formatCells(c.Outstanding, c.Consumers, map[bool]string{true: "yes", false: "no"}[c.Drained],
		fmt.Sprintf("%.0f", c.SendsPerSecond), c.Consumed, c.DeadLettered, c.Notified, c.Early, c.Twice, c.Lost,
		c.LagMs.P50, c.LagMs.P99, c.LagMs.Max, fmt.Sprintf("%.3f", c.OperationsPerMessage),
		fmt.Sprintf("%.0f", c.CPUMicrosPerMessage), fmt.Sprintf("%.0f", c.MemoryMiB.Peak))
}

// listCounts lists numbers by name, such as operations on the broker.
func listCounts(byKind map[string]int) string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		list = append(list, fmt.Sprintf("%s %d", kind, byKind[kind]))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// Verdict returns an error if a promise was broken. Lag is no such error: it depends on the
// machine.
func (r *ExpireResult) Verdict() error {
	var errs []error
	for _, c := range r.Cases {
		errs = append(errs, breachesIn(c.String()+":",
			breach{c.Lost, "messages were lost"},
			breach{c.Early, "messages were dead-lettered before their deadline"},
			breach{c.Twice, "messages came twice or had two notifications"},
			breach{max(c.Unnotified-c.Unknown, 0), "messages were dead-lettered without a notification, and not counted as unknown"},
			breach{c.FalselyNotified, "messages had a notification though they were received in time"},
		))
	}
	return errors.Join(errs...)
}
