// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"overdue/internal/pace"

	"github.com/cenkalti/backoff/v5"
)

const (
	// maxAttempts bounds the attempts that a line makes at once.
	maxAttempts = 64
	// longestWait is how long an event may have to wait in line, and how long it is tried again after
	// a failure: it keeps its companion in hand. What would take longer is put off, by longestPutOff
	// at most where the sink does not state when.
	longestWait, longestPutOff = 5 * time.Second, 15 * time.Minute
)

// A job is one event for one sink.
type job struct {
	send func() error
	// end is called once, with the last error of send, with a *putOff, or with nil.
	end func(error)

	until time.Time // when no further attempt begins; zero: none was made
}

// putOff is the error of a job that has to wait for so long that it must not wait in memory.
type putOff struct {
	wait  time.Duration // 0: its line has stopped
	cause error         // why the sink takes nothing now; nil: it is only slow
}

func (e *putOff) Error() string {
	switch {
	case e.cause != nil:
		return e.cause.Error()
	case e.wait == 0:
		return "the monitor stops or has new sinks: the event is sent later"
	}
	return fmt.Sprintf("the sink is too slow: the event would wait longer than %v, so it is sent later", longestWait)
}

// failed reports whether the sink failed, so that the job counts as an attempt.
func (e *putOff) failed() bool { return e.cause != nil && !pace.IsRetryAfter(e.cause) }

// A line has jobs wait for their turn: no goroutine waits with them. After an attempt that fails,
// the whole line pauses, see package pace, and the job goes to its end.
type line struct {
	limit int // of attempts at once

	mu       sync.Mutex
	waiting  []*job
	attempts int // under way
	pace     pace.Pace
	stopped  bool

	measuring bool      // measure is going to run: jobs wait
	ended     int       // attempts since it last ran
	room      int       // for jobs that wait; 0: not measured, any number may
	booked    time.Time // until when those that were put off fill the line
}

// put adds a job. It does not block.
func (l *line) put(j *job) {
	l.mu.Lock()
	l.waiting = append(l.waiting, j)
	l.mu.Unlock()
	l.proceed()
}

// stop puts off all that waits, and all that comes. What is being sent has no further attempt.
func (l *line) stop() {
	l.mu.Lock()
	l.stopped = true
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
			j.end(off)
		default:
			go l.attempt(j)
		}
	}
}

// next takes out the first job, for an attempt, or the last one with the reason why it must not
// wait. It returns nil if all jobs may wait.
func (l *line) next() (j *job, off *putOff) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.waiting) - 1
	pause, cause := l.pace.Remaining()
	switch {
	case last < 0:
		return nil, nil
	case l.stopped:
		off = &putOff{}
	case pause > longestWait:
		off = &putOff{pause, cause}
	case pause == 0 && l.attempts < l.limit:
		l.pace.Try()
		l.attempts++
		j, l.waiting[0] = l.waiting[0], nil
		l.waiting = l.waiting[1:]
		return j, nil
	case l.room > 0 && last >= l.room:
		off = &putOff{wait: l.bookLocked()}
	default:
		if !l.measuring {
			l.measuring, l.ended = true, 0
			time.AfterFunc(longestWait, l.measure)
		}
		return nil, nil
	}
	j, l.waiting[last] = l.waiting[last], nil
	l.waiting = l.waiting[:last]
	return j, off
}

// bookLocked returns for how long a job is put off: until the line can take it after those that
// were put off before, or from the beginning if that is too long: the sink may get faster.
func (l *line) bookLocked() time.Duration {
	l.booked = l.booked.Add(longestWait / time.Duration(l.room))
	wait := time.Until(l.booked)
	if wait < longestWait/2 || wait >= longestPutOff { // while the line still has jobs
		wait = longestWait / 2
		l.booked = time.Now().Add(wait)
	}
	return wait
}

// measure makes room for as many jobs as the line has taken in longestWait. It runs again while
// jobs wait. Those whose attempts have not ended count as well: at a slow sink, there may be no
// others.
func (l *line) measure() {
	l.mu.Lock()
	pause, _ := l.pace.Remaining()
	switch {
	case len(l.waiting) == 0:
		l.room = 0
	case pause == 0: // a pause says nothing of how fast the sink is
		l.room = l.ended + l.attempts
	}
	l.measuring = false
	l.mu.Unlock()
	l.proceed()
}

// attempt makes one attempt for j, which then ends, or goes to the end of the line.
func (l *line) attempt(j *job) {
	began := time.Now()
	if j.until.IsZero() {
		j.until = began.Add(longestWait)
	}
	err := j.send()
	l.mu.Lock()
	l.attempts--
	l.ended++
	l.pace.Note(began, err)
	pause, _ := l.pace.Remaining()
	isFinal := err == nil || l.stopped || errors.As(err, new(*backoff.PermanentError))
	again := !isFinal && time.Now().Add(pause).Before(j.until)
	if again {
		l.waiting = append(l.waiting, j)
	}
	l.mu.Unlock()
	l.proceed()
	if pause > 0 {
		time.AfterFunc(pause, l.proceed)
	}
	if pace.IsRetryAfter(err) {
		err = &putOff{pause, err}
	}
	if !again {
		j.end(err)
	}
}
