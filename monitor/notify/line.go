// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"overdue/internal/pace"

	"github.com/cenkalti/backoff/v5"
)

const (
	// maxAttempts bounds the attempts that a line makes at once.
	maxAttempts = 64
	// tickInterval is the interval at which a line whose jobs wait looks whether a pause is over, and
	// compares what waits with its rate.
	tickInterval = 500 * time.Millisecond
	// longestWait is how long an event may have to wait in line: it keeps its companion in hand.
	// Those that would wait longer are put off, by longestPutOff at most.
	longestWait, longestPutOff = 5 * time.Second, 15 * time.Minute
)

// A Job is one event for one sink.
type Job struct {
	Send func() error
	// End is called once, with the last error of Send, with a *PutOff, or with nil.
	End func(error)

	spent time.Duration // on attempts, and between them
}

// PutOff is the error of a job that has to wait for so long that it must not wait in memory. For is
// 0 if its line has stopped. Cause is why the sink takes nothing now; nil: it is only slow.
type PutOff struct {
	For   time.Duration
	Cause error
}

func (e *PutOff) Error() string {
	switch {
	case e.Cause != nil:
		return e.Cause.Error()
	case e.For == 0:
		return "the monitor stops or has new sinks: the event is sent later"
	}
	return fmt.Sprintf("the sink is too slow: the event would wait longer than %v, so it is sent later", longestWait)
}

// failed reports whether the sink failed, so that the job counts as an attempt.
func (e *PutOff) failed() bool { return e.Cause != nil && !pace.IsRetryAfter(e.Cause) }

// A Line has jobs wait for their turn: no goroutine waits with them. After an attempt that fails,
// the whole line pauses, see package pace. The job goes to the end of the line, until it has spent
// Budget. To wait in line costs nothing of that. If the pause is longer than Budget, all jobs are
// put off.
type Line struct {
	Budget time.Duration
	// Single has one attempt made at once: what waits for no network gets slower with each that
	// competes for the processors.
	Single bool

	mu       sync.Mutex
	waiting  []*Job
	attempts int // under way
	sinkPace pace.Pace
	stopped  bool

	ticking  bool      // tick is going to run: jobs wait
	measured time.Time // since when ended counts
	ended    int       // attempts
	booked   time.Time // until when those that were put off fill the line
}

// Put adds a job. It does not block.
func (l *Line) Put(j *Job) {
	l.mu.Lock()
	pause, cause := l.sinkPace.Remaining()
	if l.stopped {
		pause, cause = 0, nil
	}
	off := l.stopped || pause > l.Budget
	if !off {
		l.waiting = append(l.waiting, j)
		l.startLocked()
	}
	l.mu.Unlock()
	if off {
		j.End(&PutOff{pause, cause})
	}
}

// Len returns how many jobs wait.
func (l *Line) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// startLocked starts attempts for jobs that wait, unless the line pauses.
func (l *Line) startLocked() {
	if len(l.waiting) == 0 {
		return
	}
	if !l.ticking {
		l.ticking = true
		l.measureLocked()
		time.AfterFunc(tickInterval, l.tick)
	}
	if pause, _ := l.sinkPace.Remaining(); pause > 0 {
		l.measureLocked()
		return
	}
	most := maxAttempts
	if l.Single {
		most = 1
	}
	for n := min(most-l.attempts, len(l.waiting)); n > 0; n-- {
		l.attempts++
		go l.send()
	}
}

// measureLocked begins to measure the rate.
func (l *Line) measureLocked() { l.measured, l.ended = time.Now(), 0 }

// tick ends a pause, and puts off the jobs that would wait for too long.
func (l *Line) tick() {
	l.mu.Lock()
	l.startLocked()
	off, until := l.putOffLocked()
	if l.ticking = len(l.waiting) > 0; l.ticking {
		time.AfterFunc(tickInterval, l.tick)
	}
	l.mu.Unlock()
	for i, j := range off {
		j.End(&PutOff{For: until[i]})
	}
}

// putOffLocked takes those jobs out of the line that would wait for too long, and returns for how
// long: each gets a time at which the line can take it.
func (l *Line) putOffLocked() (off []*Job, until []time.Duration) {
	took := time.Since(l.measured)
	// Those that have not ended count as well: in the first second of a slow sink, none has.
	rate := float64(l.ended+l.attempts) / took.Seconds()
	if took > 2*longestWait { // what is older counts less
		l.measured, l.ended = l.measured.Add(took/2), l.ended/2
	}
	keep := int(rate * longestWait.Seconds())
	if took < 2*tickInterval || len(l.waiting) <= keep {
		return nil, nil
	}
	off = slices.Clone(l.waiting[keep:])
	clear(l.waiting[keep:])
	l.waiting = l.waiting[:keep]
	// Those that were put off before fill the line until booked. A sink may get faster, so the times
	// begin again in between.
	now, interval := time.Now(), time.Duration(float64(time.Second)/rate)
	wait := min(max(l.booked.Sub(now), longestWait/2), longestPutOff/2)
	for i := range off {
		until = append(until, wait+time.Duration(i)*interval%(longestPutOff/2))
	}
	l.booked = now.Add(wait + min(time.Duration(len(off))*interval, longestPutOff/2))
	return off, until
}

// send makes attempts until no job waits, or the line pauses.
func (l *Line) send() {
	for j := l.next(); j != nil; j = l.next() {
		began := time.Now()
		l.finish(j, j.Send(), began)
	}
}

// next returns the job whose turn it is, nil if there is none.
func (l *Line) next() (j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mayTry := len(l.waiting) > 0
	if mayTry {
		pause, _ := l.sinkPace.Try()
		mayTry = pause == 0
	}
	if !mayTry {
		l.attempts--
		return nil
	}
	j, l.waiting[0] = l.waiting[0], nil
	l.waiting = l.waiting[1:]
	return j
}

// finish ends a job, or has it sent again after the pause of the line.
func (l *Line) finish(j *Job, err error, began time.Time) {
	permanent := (*backoff.PermanentError)(nil)
	l.mu.Lock()
	l.ended++
	l.sinkPace.Note(began, err)
	pause, cause := l.sinkPace.Remaining()
	j.spent += time.Since(began) + pause
	again := err != nil && !errors.As(err, &permanent) && j.spent <= l.Budget && !l.stopped
	if again {
		l.waiting = append(l.waiting, j)
	}
	var off []*Job
	if pause > l.Budget {
		off, l.waiting = l.waiting, nil
	}
	l.startLocked() // the attempt may have ended a pause
	l.mu.Unlock()
	for _, o := range off {
		o.End(&PutOff{pause, cause})
	}
	switch {
	case again:
	case pace.IsRetryAfter(err):
		j.End(&PutOff{pause, err})
	case permanent != nil:
		j.End(permanent.Unwrap())
	default:
		j.End(err)
	}
}

// Stop puts off all that waits, and all that comes. What is being sent has no further attempt.
func (l *Line) Stop() {
	l.mu.Lock()
	l.stopped = true
	left := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, j := range left {
		j.End(&PutOff{})
	}
}
