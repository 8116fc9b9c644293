// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"time"
)

// Expire measures how late missed deadlines are honoured, and what that costs.
type Expire struct {
	Outstanding       []int         // deadlines of each case
	Mixed             bool          // each case once more with consumers
	Shortest, Longest time.Duration // deadlines are spread evenly between these after each send
	Payload           int           // bytes
	Companions        string        // as the setting
	Quiet             time.Duration // wait at the end for what comes twice; 0: a second
}

// Name is that of the command.
func (*Expire) Name() string { return "expire" }

// Measure measures one case after the other.
func (plan *Expire) Measure(ctx context.Context, p *Program,
	progress func(string)) (Result, error) {
	r := newExpireResult(p, plan)
	with := []bool{false}
	if plan.Mixed {
		with = append(with, true)
	}
	for _, mixed := range with {
		for _, n := range plan.Outstanding {
			progress(fmt.Sprintf("%d deadlines, the last in %v, with consumers: %t", n,
				plan.Longest, mixed))
			c, err := measureExpiry(ctx, p, plan, n, mixed)
			if err != nil {
				err = fmt.Errorf("%d outstanding deadlines: %w", n, err)
				if len(r.Cases) == 0 {
					return nil, err
				}
				return r, err
			}
			r.Cases = append(r.Cases, c)
		}
	}
	return r, nil
}
