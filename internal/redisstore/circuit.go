// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrDown says that Redis was not asked, because it has failed lately.
var ErrDown = errors.New("redis has failed lately and is left alone for a while")

// restTime is the pause between two trials of a use that has failed.
const restTime = 2 * time.Second

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
	trial  []question
	down   atomic.Bool // only the trial asks, and only its answer ends that
	outage outage
}

// An outage of a use begins with a failure. It is over when nothing has failed for presentAge, three
// reports long: a Redis that is slow answers now and then.
type outage struct {
	mu     sync.Mutex
	failed time.Time // the last time; zero = there is no outage
}

// note takes an answer, and reports whether an outage begins or ends with it.
func (o *outage) note(err error) (news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch was := o.failed; {
	case err != nil:
		o.failed = time.Now()
		return was.IsZero()
	case !was.IsZero() && time.Since(was) >= presentAge:
		o.failed = time.Time{}
		return true
	}
	return false
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
	news := false
	if err != nil {
		c.down.Store(true)
		if news = c.outage.note(err); news {
			time.AfterFunc(restTime, c.try)
		}
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

// try asks whether Redis is back, again and again until the outage is over.
func (c *circuit) try() {
	var err error
	for _, ask := range c.trial {
		if err = c.ask(context.Background(), ask); err != nil {
			break
		}
	}
	if c.s.closed.Load() {
		return
	}
	c.down.Store(err != nil)
	isOver := c.outage.note(err)
	if !isOver {
		time.AfterFunc(restTime, c.try)
	}
	c.s.asked(c.use, err, isOver)
}
