// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// After each failure the rest is twice as long; one asks then whether Redis is back, and who gives
// up has not asked.
func TestACircuitRestsLongerAndAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &circuit{s: &Store{}, use: "test"}
		broken := errors.New("broken")
		ask := func(ctx context.Context, answer error) error {
			return c.do(ctx, time.Second, func(context.Context) error { return answer })
		}
		if err := ask(t.Context(), broken); !errors.Is(err, broken) || c.well() {
			t.Fatalf("the first failure = %v, well = %v", err, c.well())
		}
		for rest := restMin; rest <= 2*restMost; rest *= 2 {
			time.Sleep(min(rest, restMost) - 1)
			if err := ask(t.Context(), nil); !errors.Is(err, ErrDown) {
				t.Errorf("asked before %v were over: %v, want ErrDown", rest, err)
			}
			time.Sleep(time.Nanosecond)
			stopped, stop := context.WithCancel(t.Context())
			stop()
			if err := ask(stopped, stopped.Err()); !errors.Is(err, context.Canceled) {
				t.Errorf("asked by one who gives up: %v, want that", err)
			}
			err := c.do(t.Context(), time.Second, func(ctx context.Context) error {
				if err := ask(ctx, nil); !errors.Is(err, ErrDown) {
					t.Errorf("asked while another asks whether Redis is back: %v, want ErrDown", err)
				}
				return broken
			})
			if !errors.Is(err, broken) {
				t.Errorf("asked after %v: %v, want the failure", rest, err)
			}
		}
		time.Sleep(restMost)
		if err := ask(t.Context(), redis.Nil); err != nil || !c.well() {
			t.Errorf("an answer of nothing = %v, well = %v, want that Redis is well", err, c.well())
		}
		if err := ask(t.Context(), nil); err != nil {
			t.Errorf("asked at once: %v, want nil", err)
		}
	})
}

// The timeout belongs to the command, not to the caller's context.
func TestAnAnswerThatDoesNotComeIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &circuit{s: &Store{}, use: "test"}
		began := time.Now()
		err := c.do(t.Context(), time.Second, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, context.DeadlineExceeded) || c.well() || time.Since(began) != time.Second {
			t.Errorf("no answer = %v after %v, well = %v, want a failure after 1s", err, time.Since(began), c.well())
		}
	})
}
