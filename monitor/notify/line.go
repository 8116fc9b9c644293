// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"overdue/internal/pace"
	"overdue/monitor/intake"

	"github.com/cenkalti/backoff/v5"
)

// maxAttempts bounds the attempts that a line makes at once.
const maxAttempts = 64

const (
	// longestWait is how long an event waits in line, and is tried again after a failure: it keeps its
	// companion in hand.
	longestWait = intake.CrowdedWait
	// longestPutOff is how long what waited in vain is put off at most: the sink may get faster. After
	// a failure, its pause or what it asks for counts instead.
	longestPutOff = maxAttempts * longestWait
)

// errSlow is the error of an event that was put off though its sink has not failed.
var errSlow = fmt.Errorf("the sink is too slow: the event has waited for %v, so it is sent later", longestWait)

// A job is one event for one sink.
type job struct {
	send func() error
	end  func(Result) // called once

	until time.Time // when no further attempt begins
}

// A line has jobs wait for their turn: no goroutine waits with them. After an attempt that fails,
// the whole line pauses, see package pace, and the job goes to its end. A job that waits for too
// long is put off, so that a sink that is slow or down does not fill the memory.
type line struct {
	limit int // of attempts at once

	mu       sync.Mutex
	waiting  []*job
	attempts int // under way
	pace     pace.Pace
	took     time.Duration // the last attempt that has ended; 0: none has
	booked   time.Time     // until when those that were put off will fill the line
	timer    *time.Timer   // proceeds; nil: nothing has waited yet
}

// put adds a job. It does not block.
func (l *line) put(j *job) {
	j.until = time.Now().Add(longestWait)
	l.mu.Lock()
	l.waiting = append(l.waiting, j)
	l.mu.Unlock()
	l.proceed()
}

// proceed attempts the jobs whose turn it is, and puts off those that must not wait.
func (l *line) proceed() {
	for {
		j, off := l.next()
		switch {
		case j == nil:
			return
		case off != nil:
			j.end(*off)
		default:
			go l.attempt(j)
		}
	}
}

// next takes out the first job, for an attempt, or with the reason why it must not wait. It returns
// nil if that may wait.
func (l *line) next() (j *job, off *Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil, nil
	}
	j = l.waiting[0]
	left := time.Until(j.until)
	pause, cause := l.pace.Remaining()
	switch {
	case pause > max(left, 0):
		off = resultOf(cause, pause)
	case pause == 0 && l.attempts < l.limit:
		l.pace.Try()
		l.attempts++
	case left <= 0:
		off = &Result{Err: errSlow, Wait: l.bookLocked()}
	default:
		l.wakeLocked(left, pause)
		return nil, nil
	}
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	return j, off
}

// wakeLocked has the line proceed when the first job has waited long enough, or after the pause.
func (l *line) wakeLocked(left, pause time.Duration) {
	if pause > 0 {
		left = min(left, pause)
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(left, l.proceed)
		return
	}
	l.timer.Reset(left)
}

// bookLocked returns for how long a job is put off, which is until the line can take it after those
// that were put off before. If that is too long, it counts from the beginning.
func (l *line) bookLocked() time.Duration {
	now := time.Now()
	if wait := l.booked.Sub(now); wait < 0 || wait >= longestPutOff {
		l.booked = now
	}
	l.booked = l.booked.Add(cmp.Or(l.took, longestWait) / time.Duration(l.limit))
	return l.booked.Sub(now)
}

// attempt makes one attempt for j, which then ends, or goes to the end of the line.
func (l *line) attempt(j *job) {
	began := time.Now()
	err := j.send()
	l.mu.Lock()
	l.attempts--
	l.took = time.Since(began)
	l.pace.Note(began, err)
	pause, _ := l.pace.Remaining()
	isFinal := err == nil || errors.As(err, new(*backoff.PermanentError))
	again := !isFinal && time.Now().Add(pause).Before(j.until)
	if again {
		l.waiting = append(l.waiting, j)
	}
	l.mu.Unlock()
	l.proceed()
	switch {
	case again:
	case pace.IsRetryAfter(err):
		j.end(*resultOf(err, pause))
	default:
		j.end(*resultOf(err, 0))
	}
}

// resultOf returns the result of a job with the last error of its sink, which takes nothing for a
// while. A sink that says when it takes the next event has not failed.
func resultOf(err error, wait time.Duration) *Result {
	return &Result{
		Err:    err,
		Failed: err != nil && !pace.IsRetryAfter(err),
		Wait:   wait,
	}
}
