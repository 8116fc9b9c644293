// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// results counts how jobs end.
type results struct {
	mu     sync.Mutex
	sent   int
	failed int
	off    []time.Duration
	all    sync.WaitGroup
}

// length returns how many jobs wait.
func (l *line) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

func (r *results) job(send func() error) *job {
	r.all.Add(1)
	return &job{send: send, end: func(got Result) {
		defer r.all.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case got.Err == nil:
			r.sent++
		case got.Wait > 0:
			r.off = append(r.off, got.Wait)
		default:
			r.failed++
		}
	}}
}

func TestToWaitInLineCostsNoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{limit: maxAttempts}
		r := &results{}
		const n = 300 // at 128 a second, and every tenth is sent twice
		for i := range n {
			failed := i%10 > 0
			l.put(r.job(func() error {
				time.Sleep(500 * time.Millisecond)
				if !failed {
					failed = true
					return errors.New("not yet")
				}
				return nil
			}))
		}
		r.all.Wait()
		if r.sent != n {
			t.Errorf("%d sent, %d failed, %d put off; want all %d sent", r.sent, r.failed, len(r.off), n)
		}
	})
}

func TestAnAttemptIsRepeatedForAFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{limit: maxAttempts}
		r := &results{}
		attempts, refused := 0, 0
		began := time.Now()
		l.put(r.job(func() error { attempts++; return errors.New("down") }))
		l.put(r.job(func() error { refused++; return backoff.Permanent(errors.New("never")) }))
		r.all.Wait()
		if took := time.Since(began); r.failed != 2 || attempts < 3 || took > longestWait || refused != 1 {
			t.Errorf("%d failed after %d attempts in %v, and %d; want both after several in %v, and one", r.failed, attempts, took, refused, longestWait)
		}
	})
}

// An event that would wait for more than a few seconds must not wait in memory. The times at which
// it comes back are as far apart as the sink is slow.
func TestWhatASlowSinkCannotTakeSoonIsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{limit: maxAttempts}
		r := &results{}
		const n = 5000
		sending, most := 0, 0
		var mu sync.Mutex
		for range n {
			l.put(r.job(func() error {
				mu.Lock()
				sending++
				most = max(most, sending)
				mu.Unlock()
				time.Sleep(2 * time.Second)
				mu.Lock()
				sending--
				mu.Unlock()
				return nil
			}))
		}
		began := time.Now()
		time.Sleep(longestWait)
		synctest.Wait()
		if kept := l.length(); kept > n/20 {
			t.Errorf("%d of %d wait in line after %v", kept, n, longestWait)
		}
		l.put(r.job(func() error { return nil }))
		if kept := l.length(); kept > n/20 {
			t.Errorf("%d of %d wait in line, with one that came later", kept, n)
		}
		r.all.Wait()
		if took := time.Since(began); took > 4*longestWait || r.sent < maxAttempts || r.sent+len(r.off) != n+1 || most != maxAttempts {
			t.Errorf("%d sent, %d at once, %d failed, %d put off within %v", r.sent, most, r.failed, len(r.off), took)
		}
		last := time.Duration(0)
		for _, wait := range r.off {
			last = max(last, wait)
		}
		if want := time.Duration(len(r.off)) * 2 * time.Second / maxAttempts; last < want/4 || last > 2*want {
			t.Errorf("the last of %d comes back after %v, want about %v", len(r.off), last, want)
		}
	})
}

// A job that is put off again and again, since a sink takes next to nothing, comes back within
// minutes. Such jobs do not come back all at once.
func TestWhatIsPutOffComesBackWithinMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{limit: maxAttempts}
		r := &results{}
		const n = 100_000
		for range n {
			l.put(r.job(func() error { time.Sleep(time.Minute); return nil }))
		}
		r.all.Wait()
		perMinute := map[time.Duration]int{}
		for _, wait := range r.off {
			perMinute[wait/time.Minute]++
		}
		for minute, got := range perMinute {
			if minute > longestPutOff/time.Minute || got > n/4 {
				t.Errorf("%d of %d come back in minute %d, want them apart and within %v", got, n, minute, longestPutOff)
			}
		}
	})
}

// However long each takes, and also where some fail. The first attempts are in order.
func TestASingleLineSendsOneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{limit: 1}
		r := &results{}
		var mu sync.Mutex
		next := 0
		for i := range 200 {
			first, failed := true, i%100 > 0
			l.put(r.job(func() error {
				if !mu.TryLock() {
					t.Error("two are sent at once")
				}
				if first && i != next {
					t.Errorf("%d is sent before %d", i, next)
				}
				if first {
					first, next = false, i+1
				}
				time.Sleep(10 * time.Millisecond)
				mu.Unlock()
				if !failed {
					failed = true
					return errors.New("not yet")
				}
				return nil
			}))
		}
		r.all.Wait()
		if r.sent != 200 {
			t.Errorf("%d sent, %d failed, %d put off; want 200", r.sent, r.failed, len(r.off))
		}
	})
}

// A sink that fails gets little more than one attempt for each pause, however many events there
// are. Events that wait are put off with the reason, which counts as a failed attempt.
func TestASinkThatFailsIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{limit: maxAttempts}
		down := errors.New("503")
		var mu sync.Mutex
		attempts := 0
		isOver := false
		var putOff []Result
		var put func()
		put = func() { // each comes back when its companion is due again
			l.put(&job{send: func() error { mu.Lock(); defer mu.Unlock(); attempts++; return down }, end: func(r Result) {
				mu.Lock()
				defer mu.Unlock()
				if isOver {
					return
				}
				if r.Wait > 0 {
					putOff = append(putOff, r)
				}
				time.AfterFunc(max(r.Wait, time.Second), put)
			}})
		}
		for range 1000 {
			put()
		}
		time.Sleep(16 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		isOver = true
		if attempts > maxAttempts+50 {
			t.Errorf("%d attempts in 16 minutes, want about two a minute after those that began together", attempts)
		}
		if len(putOff) == 0 || !errors.Is(putOff[0].Err, down) || !putOff[0].Failed {
			t.Errorf("%d put off, the first with %+v; want the error of the sink, and a failed attempt", len(putOff), putOff[:1])
		}
	})
}

func TestRetryAfterPutsOffTheWholeLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{limit: 1}
		r := &results{}
		attempts := 0
		job := func() *job { return r.job(func() error { attempts++; return backoff.RetryAfter(30) }) }
		for range 100 {
			l.put(job())
		}
		time.Sleep(15 * time.Second)
		l.put(job())
		r.all.Wait()
		if attempts != 1 || len(r.off) != 101 || r.failed != 0 || r.off[0] != 30*time.Second || r.off[100] != 15*time.Second {
			t.Errorf("%d attempts, %d failed, put off for %v; want one attempt, and all put off until 30 s after it", attempts, r.failed, r.off)
		}
		if resultOf(backoff.RetryAfter(30), 0).Failed {
			t.Error("Retry-After counts as a failure")
		}
	})
}
