// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Expire measures the lag of missed deadlines, and its cost.
type Expire struct {
	Outstanding       []int         // deadlines of each case
	Mixed             bool          // each case once more with consumers
	Drained           bool          // each case once more while somebody empties the dead-letter queue
	Queues            int           // that the messages are spread over; nobody receives from several
	Load              int           // processes that each keep a processor busy meanwhile
	Shortest, Longest time.Duration // deadlines are spread evenly between these after each send
	FromFirstSend     bool          // after the first send, not after each
	Payload           int           // bytes
	Companions        string        // as the setting
	Quiet             time.Duration // wait at the end for doubles; 0: a second
}

// An expireVariant says which receivers run during a case.
type expireVariant string

const (
	unreceived expireVariant = "nobody receives"
	drained    expireVariant = "the dead-letter queue is drained"
	mixed      expireVariant = "with consumers"
)

// Measure measures one case after the other. It returns no result if no case was measured.
func (plan *Expire) Measure(ctx context.Context, p *Program, progress func(string)) (_ Result, err error) {
	stop, err := startSpinners(p, plan.Load)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	variants := []expireVariant{unreceived}
	if plan.Drained && plan.Queues <= 1 {
		variants = append(variants, drained)
	}
	if plan.Mixed && plan.Queues <= 1 {
		variants = append(variants, mixed)
	}
	r := newExpireResult(p, plan)
	for _, v := range variants {
		for _, n := range plan.Outstanding {
			progress(fmt.Sprintf("%d deadlines, the last in %v, %s", n, plan.Longest, v))
			c, err := measureExpiry(ctx, p, plan, n, v)
			if err != nil && len(r.Cases) == 0 {
				return nil, fmt.Errorf("%d outstanding deadlines: %w", n, err)
			}
			if err != nil {
				return r, fmt.Errorf("%d outstanding deadlines: %w", n, err)
			}
			r.Cases = append(r.Cases, c)
		}
	}
	return r, nil
}
