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

// Name is the name of the command.
func (*Expire) Name() string { return "expire" }

// Measure measures one case after the other.
func (plan *Expire) Measure(ctx context.Context, p *Program,
	progress func(string)) (Result, error) {
	stop, err := startSpinners(p, plan.Load)
	if err != nil {
		return nil, err
	}
	r, err := plan.measureAll(ctx, p, progress)
	if err = errors.Join(err, stop()); r == nil {
		return nil, err
	}
	return r, err
}

// measureAll returns nil if no case was measured.
func (plan *Expire) measureAll(ctx context.Context, p *Program,
	progress func(string)) (*ExpireResult, error) {
	r := newExpireResult(p, plan)
	variants := []expireVariant{unreceived}
	if plan.Drained && plan.Queues <= 1 {
		variants = append(variants, drained)
	}
	if plan.Mixed && plan.Queues <= 1 {
		variants = append(variants, mixed)
	}
	for _, v := range variants {
		for _, n := range plan.Outstanding {
			progress(fmt.Sprintf("%d deadlines, the last in %v, %s", n, plan.Longest, v))
			c, err := measureExpiry(ctx, p, plan, n, v)
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
