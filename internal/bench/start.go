// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
)

// Start measures how long a start takes.
type Start struct{ Starts int }

// StartResult is the result of Start.
type StartResult struct {
	Head
	// of each start, from the start of the process until GET /readyz answers 200
	ReadyMs []float64 `json:"readyMs"`
}

// Measure starts overdue run again and again.
func (plan *Start) Measure(ctx context.Context, p *Program, progress func(string)) (Result, error) {
	r := &StartResult{Head: p.head()}
	for i := range plan.Starts {
		progress(fmt.Sprintf("%d of %d", i+1, plan.Starts))
		c, err := startChild(ctx, p, "run", nil)
		if err != nil {
			return nil, err
		}
		r.ReadyMs = append(r.ReadyMs, inMilliseconds(c.ready))
		if err := c.stop(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Figures returns the median.
func (r *StartResult) Figures() []Figure {
	return []Figure{Figure{Name: "start", What: "start to ready, embedded broker included",
		Unit: "ms"}.among(r.ReadyMs).atMost(100)}
}

// WriteTable writes the figures.
func (r *StartResult) WriteTable(w io.Writer) error {
	headline := fmt.Sprintf("%d starts, %s", len(r.ReadyMs), r.where())
	return writeReport(w, headline, nil, "", r.Figures())
}
