// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrDown says that Redis was not asked, because it has failed lately.
var ErrDown = errors.New("redis has failed lately and is left alone for a while")

const (
	// restTime is for how long a use that failed leaves Redis alone before its trial. It bounds how
	// often a use that fails although its trial does not is logged.
	restTime = 2 * time.Second
)

// A question is one round trip.
type question func(context.Context) error

// A circuit keeps one use of Redis from asking where no answer is to be had. It comes back by
// itself: a use may have nothing to ask for days, and overdue_redis_up would be 0 all the time.
type circuit struct {
	s     *Store
	use   string
	bound time.Duration // of each question
	// trial asks what the use asks, of keys that live for seconds: Redis may permit one use and refuse
	// another, or let read and not write.
	trial []question
	down  atomic.Bool // only the trial asks, and only its answer ends that
}

// do asks Redis. The error is ErrDown when it was not asked.
func (c *circuit) do(ctx context.Context, ask question) error {
	if c.down.Load() {
		return ErrDown
	}
	err := c.ask(ctx, ask)
	if err != nil && over(ctx) {
		// It was the caller who gave up, which says nothing.
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err == nil && c.down.Load() {
		return nil // it was on its way when another failed
	}
	news := err != nil && c.down.CompareAndSwap(false, true)
	if news {
		time.AfterFunc(restTime, c.try)
	}
	c.s.asked(c.use, err, news)
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
	switch {
	case c.s.closed.Load():
		return
	case err != nil:
		time.AfterFunc(restTime, c.try)
	default:
		c.down.Store(false)
	}
	c.s.asked(c.use, err, err == nil)
}
