// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrDown says that Redis was not asked, because it has failed lately.
var ErrDown = errors.New("redis has failed lately and is left alone for a while")

const (
	// After a failure Redis is left alone for restMin, doubling up to restMost; then the circuit asks
	// by itself whether it is back.
	restMin  = 500 * time.Millisecond
	restMost = 10 * time.Second
	// trialLife is how long what a trial writes stays.
	trialLife = 10 * time.Second
)

// A question is one round trip.
type question func(context.Context) error

// A circuit keeps one use of Redis from asking where no answer is to be had. It comes back by
// itself: a use may have nothing to ask for days.
type circuit struct {
	s     *Store
	use   string
	bound time.Duration // of each question
	// trial asks what the use asks, of keys that live for trialLife: Redis may permit one use and
	// refuse another, or let read and not write.
	trial []question

	mu   sync.Mutex
	down bool          // only the trial asks; a timer begins it
	rest time.Duration // the latest; 0 = the use was answered since
}

// do asks Redis. The error is ErrDown when it was not asked.
func (c *circuit) do(ctx context.Context, ask question) error {
	if !c.well() {
		return ErrDown
	}
	err := c.ask(ctx, ask)
	if err != nil && over(ctx) {
		// It was the caller who gave up, which says nothing.
		<-ctx.Done()
		return context.Cause(ctx)
	}
	c.exit(err, false)
	return err
}

// ask asks Redis within the bound.
func (c *circuit) ask(ctx context.Context, ask question) error {
	asking, cancel := context.WithTimeout(ctx, c.bound)
	defer cancel()
	if err := ask(asking); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("redis: %s: %w", c.use, err)
	}
	return nil
}

// over reports whether ctx has ended, or does so in a moment: connections go by its deadline and
// may be faster.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// try asks whether Redis is back.
func (c *circuit) try() {
	var err error
	for _, ask := range c.trial {
		if err = c.ask(context.Background(), ask); err != nil {
			break
		}
	}
	if !c.s.closed.Load() {
		c.exit(err, true)
	}
}

// exit notes how a question ended. A use that fails although its trial does not is asked ever more
// rarely.
func (c *circuit) exit(err error, trial bool) {
	c.mu.Lock()
	was := c.down
	if was && !trial { // it was on its way when another failed, and the trial decides
		c.mu.Unlock()
		return
	}
	c.down = err != nil
	switch {
	case c.down:
		c.rest = min(max(2*c.rest, restMin), restMost)
		time.AfterFunc(c.rest, c.try)
	case !trial:
		c.rest = 0
	}
	c.mu.Unlock()
	c.s.asked(c.use, err, was != (err != nil))
}

// well reports whether Redis may be asked.
func (c *circuit) well() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.down
}
