// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"overdue/internal/testing/redistest"
)

func testCircuit(trial ...question) *circuit {
	return &circuit{s: &Store{}, use: "test", bound: time.Second, trial: trial}
}

// After each failure the circuit rests, and then asks by itself whether Redis is back.
func TestACircuitRestsAndComesBackByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var back atomic.Bool
		var tried atomic.Int64
		c := testCircuit(func(context.Context) error { return redis.Nil }, func(context.Context) error {
			tried.Add(1)
			if back.Load() {
				return nil
			}
			return broken
		})
		ask := func(answer error) error { return c.do(t.Context(), func(context.Context) error { return answer }) }
		if err := ask(broken); !errors.Is(err, broken) {
			t.Fatalf("the first failure = %v, want it", err)
		}
		for want := int64(1); want <= 3; want++ {
			time.Sleep(restTime - 1)
			synctest.Wait()
			if err := ask(nil); !errors.Is(err, ErrDown) || tried.Load() != want-1 {
				t.Errorf("before the rest was over: %v after %d trials, want ErrDown after %d", err, tried.Load(), want-1)
			}
			back.Store(want == 3)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if tried.Load() != want {
				t.Errorf("after the rest: %d trials, want %d", tried.Load(), want)
			}
		}
		if err := ask(redis.Nil); err != nil {
			t.Errorf("an answer of nothing when Redis is back = %v, want none", err)
		}
		if err := ask(broken); !errors.Is(err, broken) {
			t.Errorf("asked when all was well: %v, want the failure", err)
		}
		if err := ask(nil); !errors.Is(err, ErrDown) {
			t.Errorf("asked after the next failure: %v, want ErrDown", err)
		}
		time.Sleep(restTime) // the last trial is none of the next test
		synctest.Wait()
	})
}

// A caller that gives up has not asked, and an answer after the failure of another changes nothing.
func TestOnlyTheTrialEndsARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCircuit()
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if err := c.do(stopped, func(ctx context.Context) error { return ctx.Err() }); !errors.Is(err, context.Canceled) || c.down.Load() {
			t.Errorf("asked by a caller that gives up: %v, down = %v, want that error and no rest", err, c.down.Load())
		}
		broken := errors.New("broken")
		err := c.do(t.Context(), func(context.Context) error {
			if err := c.do(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
				t.Errorf("asked meanwhile: %v, want the failure", err)
			}
			return nil
		})
		if err != nil || !c.down.Load() {
			t.Errorf("an answer after another's failure = %v, down = %v, want the answer and a rest", err, c.down.Load())
		}
		time.Sleep(restTime)
		synctest.Wait()
		if c.down.Load() {
			t.Error("the rest does not end")
		}
	})
}

// Each use comes back without anything to ask, and only when Redis does again all that it asks.
func TestEachUseComesBackByItself(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	rule := aclRule(t)
	r.Must(rule...)
	a, err := ParseAddress("redis://overdue:secret@" + r.Addr)
	must(t, err)
	type outcome struct {
		use string
		err error
	}
	outcomes := make(chan outcome, 10_000)
	s, err := Open(Config{Address: a, Fleet: []string{"f"}, Slack: slack, Asked: func(use string, err error, _ bool) {
		outcomes <- outcome{use, err}
	}})
	must(t, err)
	defer func() { _ = s.Close() }()
	ctx := t.Context()
	groups, history, notified, view := s.Groups(), s.History(), s.Notified(), s.View()
	uses := map[string]func() error{
		"groups":   func() error { return groups.Add(ctx, "group", "part", nil) },
		"history":  func() error { return history.Add(ctx, MissedRecord, []string{"x"}, time.Minute) },
		"notified": func() error { _, _, err := notified.Begin(ctx, "event"); return err },
		"view":     func() error { return view.Report(ctx, Process{}, missedOf("orders", 1)) },
	}
	denied := regexp.MustCompile("NOPERM|can't run this command") // as a command, and in a script
	latest := map[string]error{}
	// outage returns when Redis is back for all uses but those that are refused.
	outage := func(refused []string, begin, end func()) {
		t.Helper()
		begin()
		for len(outcomes) > 0 { // of the last outage
			<-outcomes
		}
		for use, ask := range uses {
			latest[use] = ask()
		}
		end()
		for slices.ContainsFunc(slices.Collect(maps.Keys(uses)), func(use string) bool {
			if slices.Contains(refused, use) {
				return latest[use] == nil || !denied.MatchString(latest[use].Error())
			}
			return latest[use] != nil
		}) {
			o := <-outcomes
			latest[o.use] = o.err
		}
	}
	outage(nil, r.Kill, func() { r.Restart(); r.Must(rule...) })
	for command, refused := range map[string][]string{
		"rpush": {"history"}, "hincrby": {"view"}, "get": {"groups", "notified"},
	} {
		for use, ask := range uses { // which ends the memory of the last outage
			if err := ask(); err != nil {
				t.Errorf("%s when Redis is back: %v", use, err)
			}
		}
		outage(refused, func() { r.Must("ACL", "SETUSER", "overdue", "-@all") }, func() {
			r.Must(rule...)
			r.Must("ACL", "SETUSER", "overdue", "-"+command)
		})
		outage(nil, func() {}, func() { r.Must(rule...) })
	}
}

// A Redis that is slow fails some questions and answers others, and each trial. That is one outage.
func TestARedisThatIsSlowHasOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all []bool
		news := func() []bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		s := &Store{cfg: Config{Asked: func(_ string, err error, isNews bool) {
			mu.Lock()
			defer mu.Unlock()
			if isNews {
				all = append(all, err == nil)
			}
		}}}
		circuit := &circuit{s: s, use: "test", bound: time.Second, trial: []question{func(context.Context) error { return nil }}}
		for name, ask := range map[string]func(context.Context, question) error{
			"a use with a circuit": circuit.do, "companions": (&Companions{s: s}).do,
		} {
			before := len(news())
			for i := range 60 {
				slow := i%3 == 0 || i%4 == 0
				// It counts as news, or not, however it ends.
				_ = ask(t.Context(), func(context.Context) error {
					if slow {
						return errors.New("i/o timeout")
					}
					return nil
				})
				time.Sleep(ReportEvery / 2)
				synctest.Wait()
			}
			if !slices.Equal(news()[before:], []bool{false}) {
				t.Errorf("%s: news %v while Redis is slow, want that it is unavailable", name, news()[before:])
			}
			for range 8 {
				if err := ask(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Errorf("%s: a question when Redis is quick = %v, want an answer", name, err)
				}
				time.Sleep(ReportEvery / 2)
				synctest.Wait()
			}
			if !slices.Equal(news()[before:], []bool{false, true}) {
				t.Errorf("%s: news %v when Redis is quick again, want that it is available again", name, news()[before:])
			}
		}
	})
}

// The timeout belongs to the command, not to the caller's context.
func TestAnAnswerThatDoesNotComeIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCircuit()
		began := time.Now()
		err := c.do(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, context.DeadlineExceeded) || !c.down.Load() || time.Since(began) != time.Second {
			t.Errorf("no answer = %v after %v, down = %v, want a failure after 1s", err, time.Since(began), c.down.Load())
		}
	})
}
