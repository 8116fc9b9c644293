// SPDX-License-Identifier: Apache-2.0

// Package pace keeps a sink that fails from being hammered.
package pace

import (
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The pauses of a sink that fails: the first, and the longest. They double from one to the other.
const (
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
)

// maxAsking is how long a sink that takes nothing can ask for pauses until that is a failure.
const maxAsking = 10 * time.Minute

// A Pace says when the next attempt may be made. After a failure nobody sends for a while, or for
// as long as the sink asks. Then one attempt shows whether it is back. Its owner guards it.
type Pace struct {
	cause    error     // of the latest failure; nil: the sink works
	until    time.Time // nobody sends before
	since    time.Time // what began earlier says nothing new about the sink
	trial    time.Time // when the attempt after a pause began; zero: none is under way
	failures int       // one after the other
}

// Remaining returns how long nobody may send, at least, and why: the error of the latest failure.
func (p *Pace) Remaining() (time.Duration, error) {
	switch {
	case p.cause == nil:
		return 0, nil
	case !p.trial.IsZero(): // however long it takes
		return firstPause, p.cause
	}
	return max(time.Until(p.until), 0), p.cause
}

// Try is Remaining for a caller that sends if nothing remains, and then calls Note. After a pause
// one caller may send, and the others wait for its result.
func (p *Pace) Try() (time.Duration, error) {
	if wait, cause := p.Remaining(); wait > 0 {
		return wait, cause
	}
	if p.cause != nil {
		p.since = time.Now()
		p.trial = p.since
	}
	return 0, nil
}

// Note records the result of an attempt.
func (p *Pace) Note(began time.Time, err error) {
	now, late := time.Now(), began.Before(p.since)
	if !began.Before(p.trial) {
		p.trial = time.Time{}
	}
	stated := (*backoff.RetryAfterError)(nil)
	switch {
	case errors.As(err, &stated):
		p.cause, p.since, p.until = err, now, now.Add(max(stated.Duration, p.until.Sub(now)))
	case err == nil && late && IsRetryAfter(p.cause):
		// The sink took this and then asked for a pause.
	case err == nil:
		*p = Pace{}
	case late:
		// Under way when another attempt failed: the same failure.
	default:
		p.cause, p.since, p.until = err, now, now.Add(p.pause())
		p.failures++
	}
}

func (p *Pace) pause() time.Duration { return min(firstPause<<min(p.failures, 10), maxPause) }

// IsRetryAfter reports whether err says when the sink wants the next attempt. That is no failure.
func IsRetryAfter(err error) bool {
	stated := (*backoff.RetryAfterError)(nil)
	return errors.As(err, &stated)
}

// HasFailed reports whether a sink has failed that last answered err, and that has taken nothing
// since then. One that asks for a pause has not, for some minutes.
func HasFailed(err error, since time.Time) bool {
	return err != nil && (!IsRetryAfter(err) || time.Since(since) >= maxAsking)
}

// MaxAttempts bounds how often an event, or a digest of events, is sent again after a failure. With
// Delay that takes about a day.
const MaxAttempts = 300

// Delay returns the delay after n attempts that failed.
func Delay(n int) time.Duration {
	if n == 0 {
		return 0
	}
	return min(time.Second<<min(n-1, 9), 5*time.Minute)
}
