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
	// After a failure Redis is left alone for restMin, doubling up to restMost; then one call tries.
	restMin  = 500 * time.Millisecond
	restMost = 10 * time.Second
)

// A circuit keeps one use of Redis from asking where no answer is to be had.
type circuit struct {
	s   *Store
	use string

	mu     sync.Mutex
	rest   time.Duration // 0 = it is well
	until  time.Time     // nobody asks before
	trying bool          // somebody asks whether it is back
}

// do makes f ask Redis within the bound. The error is ErrDown when it was not asked.
func (c *circuit) do(ctx context.Context, bound time.Duration, f func(context.Context) error) error {
	if !c.enter() {
		return ErrDown
	}
	asking, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	err := f(asking)
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	switch {
	case err == nil:
	case over(ctx):
		// It was the caller who gave up, which says nothing.
		c.giveUp()
		<-ctx.Done()
		return context.Cause(ctx)
	default:
		err = fmt.Errorf("redis: %s: %w", c.use, err)
	}
	c.exit(err)
	return err
}

// over reports whether ctx has ended, or does so in a moment: connections go by its deadline and
// may be faster.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// enter reports whether Redis may be asked.
func (c *circuit) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.rest == 0:
		return true
	case c.trying || time.Now().Before(c.until):
		return false
	}
	c.trying = true
	return true
}

func (c *circuit) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trying = false
}

func (c *circuit) exit(err error) {
	c.mu.Lock()
	was := c.rest
	tried := c.trying
	c.trying = false
	switch {
	case err == nil:
		c.rest = 0
	case was == 0 || tried: // and not once more for each that was on its way
		c.rest = min(max(2*was, restMin), restMost)
		c.until = time.Now().Add(c.rest)
	}
	news := (was == 0) != (err == nil)
	c.mu.Unlock()
	c.s.asked(c.use, err, news)
}

// well reports whether the last that asked was answered.
func (c *circuit) well() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rest == 0
}
