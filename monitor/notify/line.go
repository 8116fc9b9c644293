// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"overdue/internal/pace"

	"github.com/cenkalti/backoff/v5"
)

const (
	// A line sends one job at once, and adds one every growEvery while they take longer than that;
	// up to fewSending also while they take a quarter of it. Goroutines that only need a processor
	// would keep the nudges waiting: Go looks for network input only where a processor has nothing
	// else to run. So a goroutine pauses for turnPause after a turn of jobs that took less. One
	// that is alone has longer turns.
	fewSending, maxSending = 8, 64
	growEvery              = 2 * time.Millisecond
	turn, singleTurn       = 16, 256
	turnPause              = 500 * time.Microsecond
	// measureEvery is how often a line measures how fast it is.
	measureEvery = time.Second
	// longestWait is how long a job may have to wait in line. Those that would wait longer are put
	// off, by longestPutOff at most.
	longestWait, longestPutOff = 30 * time.Second, 15 * time.Minute
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
	// Single has one job sent at once: what waits for no network gets slower with each that
	// competes for the processors.
	Single bool

	mu       sync.Mutex
	jobs     []*Job // those to come begin at first
	first    int
	sending  int
	most     int  // of sending
	ticking  bool // tick is going to run
	finished int  // attempts since the last tick
	stopped  bool
	sinkPace pace.Pace
	waking   bool // wake is going to run

	measured time.Time // when measuring began
	count    int       // attempts since then
	rate     float64   // a second
	booked   time.Time // until when those that were put off fill the line
}

// Put adds a job. It does not block.
func (l *Line) Put(j *Job) {
	l.mu.Lock()
	wait, cause := l.sinkPace.Remaining()
	if l.stopped || wait > l.Budget {
		stopped := l.stopped
		l.mu.Unlock()
		if stopped {
			wait, cause = 0, nil
		}
		j.End(&PutOff{wait, cause})
		return
	}
	l.readyLocked()
	l.jobs = append(l.jobs, j)
	l.startLocked()
	l.mu.Unlock()
}

// readyLocked is called before a job is added. A line is measured only while jobs wait.
func (l *Line) readyLocked() {
	if l.sending == 0 {
		l.most = 1
	}
	if l.waitingLocked() == 0 {
		l.measured, l.count = time.Now(), 0
	}
}

func (l *Line) waitingLocked() int { return len(l.jobs) - l.first }

// startLocked starts a goroutine if there is more to send than there are.
func (l *Line) startLocked() {
	waiting := l.waitingLocked()
	if waiting > 0 && l.sending < l.most && !l.waking {
		l.sending++
		go l.send()
	}
	if waiting > 0 && l.sending > 0 && !l.ticking {
		l.ticking = true
		time.AfterFunc(growEvery, l.tick)
	}
}

// pausedLocked reports whether nobody may send now, and has wake run when somebody may.
func (l *Line) pausedLocked() bool {
	wait, _ := l.sinkPace.Try()
	if wait > 0 && !l.waking {
		l.waking = true
		time.AfterFunc(wait, l.wake)
	}
	return wait > 0
}

// wake ends a pause.
func (l *Line) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waking = false
	l.measured, l.count = time.Now(), 0
	l.startLocked()
}

// tick lets more jobs be sent at once where each takes long, and puts off those that would wait for
// too long.
func (l *Line) tick() {
	l.mu.Lock()
	if l.sending == 0 {
		l.ticking = false
		l.mu.Unlock()
		return
	}
	if !l.Single && !l.waking && (l.finished < l.most && l.most < maxSending || l.finished < 4*l.most && l.most < fewSending) {
		l.most++
		l.startLocked()
	}
	l.finished = 0
	var off []*Job
	var booked []time.Duration
	if took := time.Since(l.measured); took >= measureEvery && l.waitingLocked() > 0 {
		// Those that have not finished yet count as well: in the first second of a slow sink, none
		// has.
		l.rate = float64(l.count+l.sending) / took.Seconds()
		l.measured, l.count = time.Now(), 0
		off, booked = l.putOffLocked()
	}
	next := growEvery
	if l.Single || l.most == maxSending {
		next = measureEvery / 4
	}
	time.AfterFunc(next, l.tick)
	l.mu.Unlock()
	for i, j := range off {
		j.End(&PutOff{For: booked[i]})
	}
}

// putOffLocked takes those jobs out of the line that would wait for too long, and returns for how
// long: each gets the time at which the line can take it.
func (l *Line) putOffLocked() (off []*Job, booked []time.Duration) {
	keep := l.first + int(l.rate*longestWait.Seconds())
	if len(l.jobs) <= keep {
		return nil, nil
	}
	off = append(off, l.jobs[keep:]...)
	clear(l.jobs[keep:])
	l.jobs = l.jobs[:keep]
	now := time.Now()
	if soonest := now.Add(longestWait / 2); l.booked.Before(soonest) {
		l.booked = soonest
	}
	each := time.Duration(float64(time.Second) / l.rate)
	for range off {
		l.booked = l.booked.Add(each)
		wait := l.booked.Sub(now)
		if wait > longestPutOff { // the sink may be faster by then
			wait = longestPutOff/2 + rand.N(longestPutOff/2)
		}
		booked = append(booked, wait)
	}
	if latest := now.Add(longestPutOff); l.booked.After(latest) {
		l.booked = latest
	}
	return off, booked
}

// send sends jobs until none waits.
func (l *Line) send() {
	quick, turn := 0, turn
	if l.Single {
		turn = singleTurn
	}
	for j := l.next(); j != nil; j = l.next() {
		began := time.Now()
		err := j.Send()
		took := time.Since(began)
		l.finish(j, err, began)
		if quick++; took > turnPause {
			quick = 0
		}
		if quick == turn {
			quick = 0
			time.Sleep(turnPause)
		}
	}
}

// next returns the job whose turn it is, nil if there is none.
func (l *Line) next() (j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waitingLocked() == 0 || l.pausedLocked() {
		l.sending--
		return nil
	}
	j, l.jobs[l.first] = l.jobs[l.first], nil
	if l.first++; l.first > 1024 && l.first > len(l.jobs)/2 {
		n := copy(l.jobs, l.jobs[l.first:])
		clear(l.jobs[n:])
		l.jobs, l.first = l.jobs[:n], 0
	}
	l.startLocked()
	return j
}

// finish ends a job, or has it sent again after the pause of the line.
func (l *Line) finish(j *Job, err error, began time.Time) {
	permanent := (*backoff.PermanentError)(nil)
	l.mu.Lock()
	l.finished++
	l.count++
	l.sinkPace.Note(began, err)
	wait, cause := l.sinkPace.Remaining()
	j.spent += time.Since(began) + wait
	again := err != nil && !errors.As(err, &permanent) && j.spent <= l.Budget && !l.stopped
	if again {
		l.jobs = append(l.jobs, j)
	}
	if wait == 0 && l.waking { // another attempt has ended the pause
		l.waking = false
		l.startLocked()
	}
	var off []*Job
	if wait > l.Budget {
		off = l.takeAllLocked()
	}
	l.mu.Unlock()
	for _, o := range off {
		o.End(&PutOff{wait, cause})
	}
	switch {
	case again:
	case pace.IsRetryAfter(err):
		j.End(&PutOff{wait, err})
	case permanent != nil:
		j.End(permanent.Unwrap())
	default:
		j.End(err)
	}
}

// takeAllLocked takes all jobs out of the line.
func (l *Line) takeAllLocked() []*Job {
	all := l.jobs[l.first:]
	l.jobs, l.first = nil, 0
	return all
}

// Stop puts off all that waits, and all that comes. What is being sent has no further attempt.
func (l *Line) Stop() {
	l.mu.Lock()
	l.stopped = true
	left := l.takeAllLocked()
	l.mu.Unlock()
	for _, j := range left {
		j.End(&PutOff{})
	}
}
