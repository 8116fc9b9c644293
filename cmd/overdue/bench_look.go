// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/lag"
)

// benchLookPlan is what `overdue bench look` is asked to measure.
type benchLookPlan struct {
	live    []int
	overdue int
	notice  time.Duration // between the last send and the deadlines
	quiet   time.Duration // after all is done, for what comes twice
}

// benchLookResult is what --json prints of it.
type benchLookResult struct {
	benchHead
	Cases []*benchLookCase `json:"cases"`
}

// benchLookCase is a queue of one length. From before the deadlines until all were told of, and no companion is left.
type benchLookCase struct {
	Live          int              `json:"live"`
	Overdue       int              `json:"overdue"`
	DeadLettered  int              `json:"deadLettered"`
	Told          int              `json:"told"`
	Early         int              `json:"early"`
	Twice         int              `json:"twice"`
	Disturbed     int              `json:"disturbed"` // live messages that are gone
	LagMs         lag.Milliseconds `json:"lagMs"`
	Operations    map[string]int   `json:"operations"` // of the monitor, by kind
	Total         int              `json:"total"`      // of these
	MonitorCPUMs  float64          `json:"monitorCPUMs"`
	BrokerCPUMs   float64          `json:"brokerCPUMs"`
	PassMs        float64          `json:"passMs"`        // from the deadline until all of it was done, to benchPoll
	FilledInMs    float64          `json:"filledInMs"`    // what it took to send them
	BrokerMiB     float64          `json:"brokerMiB"`     // resident
	FilledAgainst int              `json:"filledAgainst"` // how often the queue was filled anew because that took longer than the deadlines were away
}

func (p *program) benchLookCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "look",
		Short: "Measure what it costs to expire a few messages in a long queue",
		Long: "Fills a queue with live messages that nobody receives, and a few among them, evenly spread, whose\n" +
			"deadlines come at one moment; and counts what the monitor asks of the broker to have these few\n" +
			"dead-lettered and told of. That should not depend on how long the queue is.\n" +
			"A million live messages take the broker about 700 MiB.",
	}
	plan := &benchLookPlan{quiet: benchQuiet}
	live := cmd.Flags().String("live", "1000,1000000", "live messages, one number for each case")
	cmd.Flags().IntVar(&plan.overdue, "overdue", 10, "messages whose deadlines are missed, 1 to 1000")
	cmd.Flags().DurationVar(&plan.notice, "notice", 2*time.Second, "how long after the last send the deadlines come, at least")
	return p.measuring(cmd, func() (_ *benchPart, err error) {
		if plan.live, err = parseBenchNumbers("live", *live, 10, 10_000_000, benchMaxCases, "1000,1000000"); err != nil {
			return nil, err
		}
		if err := within("overdue", plan.overdue, 1, 1000); err != nil {
			return nil, err
		}
		if most := slices.Min(plan.live); plan.overdue > most {
			return nil, fmt.Errorf("--overdue: %d are more than the %d live messages that they are to lie among", plan.overdue, most)
		}
		return plan.part(), within("notice", plan.notice, 200*time.Millisecond, time.Minute)
	})
}

func (plan *benchLookPlan) part() *benchPart {
	return &benchPart{"look", func(ctx context.Context, say func(string)) (benchResult, error) {
		r := &benchLookResult{benchHead: newBenchHead()}
		for _, live := range plan.live {
			say(fmt.Sprintf("%d overdue among %d", plan.overdue, live))
			c, err := plan.measure(ctx, live)
			if err != nil {
				return nil, fmt.Errorf("%d overdue among %d: %w", plan.overdue, live, err)
			}
			r.Cases = append(r.Cases, c)
		}
		return r, nil
	}}
}

// figures: the cost in the longest queue against that in the shortest. A seek takes a few peeks more in a long one, hence no
// more than twice as many operations.
func (r *benchLookResult) figures() (all []benchFigure) {
	for _, c := range r.Cases {
		all = append(all, benchFigure{
			Name: fmt.Sprintf("look.%d.operations", c.Live), Value: float64(c.Total), Unit: "operations",
			What: fmt.Sprintf("a pass over %d live messages, %d overdue", c.Live, c.Overdue),
		}, benchFigure{
			Name: fmt.Sprintf("look.%d.lag", c.Live), Value: c.LagMs.Max, Unit: "ms", What: "… dead-lettered late by, at most",
		})
	}
	if n := len(r.Cases); n > 1 && r.Cases[0].Total > 0 {
		first, last := r.Cases[0], r.Cases[n-1]
		all = append(all, benchFigure{
			Name: "look.ratio", Value: rounded(float64(last.Total) / float64(first.Total)),
			What: fmt.Sprintf("operations over %d ÷ over %d", last.Live, first.Live),
		}.atMost(2))
	}
	return all
}

func (r *benchLookResult) writeTable(w io.Writer) error {
	rows := [][]string{{"live", "overdue", "dead-lettered", "told", "early", "twice", "disturbed", "lag max ms", "operations", "monitor ms", "broker ms", "broker MiB"}}
	notes := ""
	for _, c := range r.Cases {
		row := make([]string, 0, len(rows[0]))
		for _, v := range []any{c.Live, c.Overdue, c.DeadLettered, c.Told, c.Early, c.Twice, c.Disturbed, c.LagMs.Max, c.Total, c.MonitorCPUMs, c.BrokerCPUMs, c.BrokerMiB} {
			row = append(row, fmt.Sprint(v))
		}
		rows = append(rows, row)
		notes += fmt.Sprintf("%d live: %s\n", c.Live, listOperations(c.Operations))
	}
	return writeResult(w, fmt.Sprintf("%s\n\n%s%s\n%s", r.where(), tableOf(rows), notes, tableOfFigures(r.figures())))
}

func (r *benchLookResult) verdict() error {
	var errs []error
	for _, c := range r.Cases {
		for _, broken := range []struct {
			n    int
			what string
		}{
			{c.Overdue - c.DeadLettered, "were not dead-lettered"}, {c.DeadLettered - c.Told, "were dead-lettered and not told of"},
			{c.Early, "were dead-lettered before their deadline"}, {c.Twice, "were dead-lettered or told twice"}, {c.Disturbed, "live ones are gone"},
		} {
			if broken.n > 0 {
				errs = append(errs, fmt.Errorf("of %d messages among %d %d %s", c.Overdue, c.Live, broken.n, broken.what))
			}
		}
	}
	return errors.Join(errs...)
}

// tally says what became of the messages, of which each had its deadline at that time.
func (c *benchLookCase) tally(due map[string]time.Duration, told map[string]int, letters []benchLetter, left int) {
	dead := map[string]int{}
	var lags []time.Duration
	for _, l := range letters {
		if dead[l.MessageID]++; dead[l.MessageID] == 1 {
			lags = append(lags, l.DeadLetteredTime.Sub(l.EnqueuedTime.Add(due[l.MessageID])))
		}
	}
	for id := range due {
		if dead[id] > 0 {
			c.DeadLettered++
		}
		if told[id] > 0 {
			c.Told++
		}
		if dead[id] > 1 || told[id] > 1 {
			c.Twice++
		}
	}
	c.Disturbed = max(0, c.Live-left)
	c.Early = lag.Early(lags)
	c.LagMs = lag.Of(lags)
}
