// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

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
	retry *backoff.ExponentialBackOff
}

// PutOff is the error of a job that nothing is wrong with, but that has to wait for so long that it
// must not wait in memory. For is 0 if its line has stopped.
type PutOff struct{ For time.Duration }

func (e *PutOff) Error() string {
	if e.For == 0 {
		return "the monitor stops or has new sinks: the event is sent later"
	}
	return fmt.Sprintf("the sink is too slow: the event would wait longer than %v, so it is sent later", longestWait)
}

// A Line has jobs wait for their turn: no goroutine waits with them. An attempt that fails is
// repeated until the job has spent Budget. To wait in line costs nothing of that.
type Line struct {
	Budget time.Duration
	// Single has one job sent at once: what waits for no network gets slower with each that
	// competes for the processors.
	Single bool

	mu       sync.Mutex
	jobs     []*Job // those to come begin at first
	first    int
	again    []*Job               // whose next attempt is due; before the others
	resting  map[*Job]*time.Timer // between two attempts
	sending  int
	most     int  // of sending
	ticking  bool // tick is going to run
	finished int  // attempts since the last tick
	stopped  bool

	measured time.Time // when measuring began
	count    int       // attempts since then
	rate     float64   // a second
	booked   time.Time // until when those that were put off fill the line
}

// Put adds a job. It does not block.
func (l *Line) Put(j *Job) {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		j.End(&PutOff{})
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

func (l *Line) waitingLocked() int { return len(l.again) + len(l.jobs) - l.first }

// startLocked starts a goroutine if there is more to send than there are.
func (l *Line) startLocked() {
	waiting := l.waitingLocked()
	if waiting > 0 && l.sending < l.most {
		l.sending++
		go l.send()
	}
	if waiting > 0 && !l.ticking {
		l.ticking = true
		time.AfterFunc(growEvery, l.tick)
	}
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
	if !l.Single && (l.finished < l.most && l.most < maxSending || l.finished < 4*l.most && l.most < fewSending) {
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
		l.finish(j, err, took)
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
	switch {
	case len(l.again) > 0:
		j, l.again = l.again[0], l.again[1:]
	case l.first < len(l.jobs):
		j, l.jobs[l.first] = l.jobs[l.first], nil
		if l.first++; l.first > 1024 && l.first > len(l.jobs)/2 {
			n := copy(l.jobs, l.jobs[l.first:])
			clear(l.jobs[n:])
			l.jobs, l.first = l.jobs[:n], 0
		}
	default:
		l.sending--
		return nil
	}
	l.startLocked()
	return j
}

// finish ends a job, or has it sent again later.
func (l *Line) finish(j *Job, err error, took time.Duration) {
	wait, again := j.after(err, took, l.Budget)
	l.mu.Lock()
	l.finished++
	l.count++
	if again = again && !l.stopped; again {
		if l.resting == nil {
			l.resting = map[*Job]*time.Timer{}
		}
		l.resting[j] = time.AfterFunc(wait, func() { l.repeat(j) })
	}
	l.mu.Unlock()
	if again {
		return
	}
	if permanent := (*backoff.PermanentError)(nil); errors.As(err, &permanent) {
		err = permanent.Unwrap()
	}
	j.End(err)
}

// after returns how long a job waits for its next attempt, if there is one.
func (j *Job) after(err error, took, budget time.Duration) (wait time.Duration, again bool) {
	if err == nil {
		return 0, false
	}
	if permanent := (*backoff.PermanentError)(nil); errors.As(err, &permanent) {
		return 0, false
	}
	if j.retry == nil {
		j.retry = backoff.NewExponentialBackOff()
	}
	wait = j.retry.NextBackOff()
	if stated := (*backoff.RetryAfterError)(nil); errors.As(err, &stated) {
		wait = stated.Duration
		j.retry.Reset()
	}
	j.spent += took + wait
	return wait, j.spent <= budget
}

// repeat has j sent again.
func (l *Line) repeat(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.resting[j]; !ok {
		return // stopped
	}
	delete(l.resting, j)
	l.readyLocked()
	l.again = append(l.again, j)
	l.startLocked()
}

// Stop puts off all that waits, and all that comes. What is being sent has no further attempt.
func (l *Line) Stop() {
	l.mu.Lock()
	l.stopped = true
	left := append(l.again, l.jobs[l.first:]...)
	for j, timer := range l.resting {
		timer.Stop()
		left = append(left, j)
	}
	l.jobs, l.first, l.again, l.resting = nil, 0, nil, nil
	l.mu.Unlock()
	for _, j := range left {
		j.End(&PutOff{})
	}
}
