// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"overdue/internal/lag"
)

// Check measures the cost of expiring a few messages in a long queue.
type Check struct {
	Live    []int         // messages that nobody receives
	Overdue int           // messages among them whose deadlines are missed
	Notice  time.Duration // between the last send and the deadlines, at least
	Quiet   time.Duration // wait at the end for doubles; 0: a second
}

// CheckResult is the result of Check.
type CheckResult struct {
	Head
	Cases []*checkCase `json:"cases"`
}

// checkCase is a queue of one length. It lasts from before the deadlines until every miss has its
// notification and no companion is left.
type checkCase struct {
	Live         int              `json:"live"`
	Overdue      int              `json:"overdue"`
	DeadLettered int              `json:"deadLettered"`
	Notified     int              `json:"notified"`
	Early        int              `json:"early"`
	Twice        int              `json:"twice"`
	Disturbed    int              `json:"disturbed"` // live messages that were lost
	LagMs        lag.Milliseconds `json:"lagMs"`
	Operations   map[string]int   `json:"operations"` // of the monitor, by kind
	Total        int              `json:"total"`      // of these
	MonitorCPUMs float64          `json:"monitorCPUMs"`
	BrokerCPUMs  float64          `json:"brokerCPUMs"`
	// from the deadline until the pass was done, to pollInterval
	PassMs     float64 `json:"passMs"`
	FilledInMs float64 `json:"filledInMs"` // the time to send them
	BrokerMiB  float64 `json:"brokerMiB"`  // resident
	// how often the queue was filled again because the deadlines came too early
	FilledAgainst int `json:"filledAgainst"`
}

// Measure measures one length after the other.
func (plan *Check) Measure(ctx context.Context, p *Program, progress func(string)) (Result, error) {
	r := &CheckResult{Head: p.head()}
	for _, live := range plan.Live {
		progress(fmt.Sprintf("%d overdue among %d", plan.Overdue, live))
		c, err := plan.measure(ctx, p, live)
		if err != nil {
			return nil, fmt.Errorf("%d overdue among %d: %w", plan.Overdue, live, err)
		}
		r.Cases = append(r.Cases, c)
	}
	return r, nil
}

// Figures compare the cost in the longest queue with that in the shortest. A search takes a few
// peeks more in a long one, hence the target of no more than twice as many operations.
func (r *CheckResult) Figures() (all []Figure) {
	for _, c := range r.Cases {
		all = append(all, Figure{
			Name: fmt.Sprintf("check.%d.operations", c.Live), Value: float64(c.Total),
			Unit: "operations",
			What: fmt.Sprintf("a pass over %d live messages, %d overdue", c.Live, c.Overdue),
		}, Figure{
			Name: fmt.Sprintf("check.%d.lag", c.Live), Value: c.LagMs.Max, Unit: "ms",
			What: "… dead-lettered late by, at most",
		})
	}
	if n := len(r.Cases); n > 1 && r.Cases[0].Total > 0 {
		first, last := r.Cases[0], r.Cases[n-1]
		all = append(all, Figure{
			Name: "check.ratio", Value: rounded(float64(last.Total) / float64(first.Total)),
			What: fmt.Sprintf("operations over %d ÷ over %d", last.Live, first.Live),
		}.atMost(2))
	}
	return all
}

// WriteTable writes a row for each case, and below it its operations by kind.
func (r *CheckResult) WriteTable(w io.Writer) error {
	rows := [][]string{{"live", "overdue", "dead-lettered", "notified", "early", "twice",
		"disturbed", "lag max ms", "operations", "monitor ms", "broker ms", "broker MiB"}}
	notes := ""
	for _, c := range r.Cases {
		rows = append(rows, cells(c.Live, c.Overdue, c.DeadLettered, c.Notified, c.Early, c.Twice,
			c.Disturbed, c.LagMs.Max, c.Total, c.MonitorCPUMs, c.BrokerCPUMs, c.BrokerMiB))
		notes += fmt.Sprintf("%d live: %s\n", c.Live, listCounts(c.Operations))
	}
	return (&report{headline: r.where(), rows: rows, notes: notes, figures: r.Figures()}).write(w)
}

// Verdict returns an error if a promise was broken.
func (r *CheckResult) Verdict() error {
	var errs []error
	for _, c := range r.Cases {
		errs = append(errs, breachesIn(fmt.Sprintf("of %d messages among %d", c.Overdue, c.Live),
			breach{c.Overdue - c.DeadLettered, "were not dead-lettered"},
			breach{c.DeadLettered - c.Notified, "were dead-lettered without a notification"},
			breach{c.Early, "were dead-lettered before their deadline"},
			breach{c.Twice, "were dead-lettered twice or had two notifications"},
			breach{c.Disturbed, "live ones were lost"},
		))
	}
	return errors.Join(errs...)
}

// tally counts the outcomes of messages with these times to live.
func (c *checkCase) tally(ttl map[string]time.Duration, outcomes map[string]outcome, left int) {
	var lags []time.Duration
	for id, d := range ttl {
		o := outcomes[id]
		if o.dead > 0 {
			c.DeadLettered++
			lags = append(lags, o.letter.DeadLetteredTime.Sub(o.letter.EnqueuedTime.Add(d)))
		}
		if o.notice.count > 0 {
			c.Notified++
		}
		if o.twice() {
			c.Twice++
		}
	}
	c.Disturbed = max(0, c.Live-left)
	c.Early = lag.Early(lags)
	c.LagMs = lag.Of(lags)
}
