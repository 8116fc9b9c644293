// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The attempts of a hundred callers, each of which sends whenever the pace lets it.
func TestASinkThatFailsIsTriedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		attempts := 0
		for began := time.Now(); time.Since(began) < 16*time.Minute; time.Sleep(100 * time.Millisecond) {
			for range 100 {
				if wait, _ := p.Try(); wait > 0 {
					continue
				}
				attempts++
				p.Note(time.Now(), errors.New("refused"))
			}
		}
		if attempts < 30 || attempts > 45 {
			t.Errorf("%d attempts in 16 minutes, want one each 30 s and some at the start", attempts)
		}
		time.Sleep(maxPause)
		if wait, _ := p.Try(); wait > 0 {
			t.Fatalf("after the pause it is %v to the next attempt", wait)
		}
		if wait, cause := p.Try(); wait == 0 || cause == nil {
			t.Error("while one attempt is under way after a pause, a second one may start")
		}
		p.Note(time.Now(), nil)
		if wait, cause := p.Try(); wait != 0 || cause != nil {
			t.Errorf("after a success: %v, %v; want no pause", wait, cause)
		}
	})
}

// A sink that hangs gets one attempt after a pause, and not one for each pause while that hangs.
func TestOneAttemptAtATimeFollowsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		p.Note(time.Now(), errors.New("timeout"))
		time.Sleep(firstPause)
		if wait, _ := p.Try(); wait > 0 {
			t.Fatalf("after the pause it is %v to the next attempt", wait)
		}
		began := time.Now()
		for time.Since(began) < 30*time.Second {
			if wait, _ := p.Try(); wait == 0 {
				t.Fatalf("a second attempt may begin %v after the first", time.Since(began))
			}
			time.Sleep(100 * time.Millisecond)
		}
		p.Note(began.Add(-time.Second), backoff.RetryAfter(1)) // of another attempt, which began before
		p.Note(began, errors.New("timeout"))
		time.Sleep(time.Second)
		if wait, _ := p.Remaining(); wait != 0 {
			t.Errorf("a second after the attempt has ended %v remain, want none", wait)
		}
	})
}

func TestAPaceKeepsTheTimeThatTheSinkStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		began := time.Now()
		time.Sleep(time.Second)
		p.Note(time.Now(), backoff.RetryAfter(30))
		time.Sleep(time.Second)
		p.Note(began, nil)                   // sent before the sink asked for a pause
		p.Note(began, errors.New("timeout")) // likewise
		if wait, cause := p.Remaining(); wait != 29*time.Second || !IsRetryAfter(cause) {
			t.Errorf("a second later %v remain, because of %v; want 29s, as stated", wait, cause)
		}
	})
}

// Attempts under way at once fail together: one failure.
func TestAttemptsAtOnceFailOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		began := time.Now()
		time.Sleep(time.Second)
		for range 64 {
			p.Note(began, errors.New("refused"))
		}
		if wait, _ := p.Remaining(); wait != firstPause {
			t.Errorf("after 64 failures at once the pause is %v, want %v", wait, firstPause)
		}
	})
}
