// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
)

func TestComponentsStopInReverseAndErrorsAreJoined(t *testing.T) {
	l := New(zap.NewNop(), time.Minute)
	var order []string
	for _, name := range []string{"broker", "client", "proxy"} {
		l.Started(name, func(context.Context) error {
			order = append(order, name)
			if name == "client" {
				return nil
			}
			return errors.New("did not want to")
		})
	}
	l.Serving()
	err := l.Drain()
	if diff := cmp.Diff([]string{"proxy", "client", "broker"}, order); diff != "" {
		t.Errorf("order of stops (-want +got):\n%s", diff)
	}
	want := "stop proxy: did not want to\nstop broker: did not want to"
	if err == nil || err.Error() != want {
		t.Errorf("drain = %v, want %q", err, want)
	}
	if got := l.State(); got != StateStopped {
		t.Errorf("state %s, want %s", got, StateStopped)
	}
}

// A component that hangs costs its share of the time, not that of those after it.
func TestAComponentThatHangsDoesNotTakeTheOthersTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(zap.NewNop(), 30*time.Second)
		var left time.Duration
		l.Started("first", func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return nil
		})
		l.Started("quick", func(context.Context) error { return nil })
		hang := make(chan struct{})
		l.Run("hangs", func() error { <-hang; return nil }, func(context.Context) error { return nil })
		began := time.Now()
		err := l.Drain()
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("drain took %v, want the hanging component's half of 30s", took)
		}
		if err == nil || !strings.Contains(err.Error(), "stop hangs: not done within 15s") {
			t.Errorf("drain = %v, want an error that names the component", err)
		}
		if left != 15*time.Second {
			t.Errorf("the last component had %v, want all of the 15s that were left", left)
		}
		close(hang)
	})
}

func TestAComponentThatEndsByItselfFailsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(zap.NewNop(), time.Minute)
		l.Background("monitor", func(context.Context) error { return errors.New("no such queue") })
		l.Background("clock", func(ctx context.Context) error { <-ctx.Done(); return nil })
		if err := <-l.Failed; err.Error() != "monitor: no such queue" {
			t.Errorf("failed with %v, want the component and its error", err)
		}
		if err := l.Drain(); err != nil {
			t.Errorf("drain = %v, want nothing that has been reported", err)
		}
		select {
		case err := <-l.Failed:
			t.Errorf("a component that was stopped failed the process: %v", err)
		default:
		}
	})
}

// The process ends for one reason. Other failures meanwhile are reported when their component is
// stopped, each once.
func TestComponentsThatFailTogetherAreReportedOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(zap.NewNop(), time.Minute)
		for _, name := range []string{"monitor", "clock"} {
			l.Background(name, func(context.Context) error { return errors.New("broken") })
		}
		synctest.Wait()
		reported := errors.Join(<-l.Failed, l.Drain()).Error()
		for _, name := range []string{"monitor: broken", "clock: broken"} {
			if strings.Count(reported, name) != 1 {
				t.Errorf("reported %q, want %q once", reported, name)
			}
		}
	})
}

func TestDrainIsOnceHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(zap.NewNop(), time.Minute)
		stops := 0
		l.Started("component", func(context.Context) error {
			stops++
			time.Sleep(time.Second)
			return errors.New("late")
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := l.Drain(); err == nil {
					t.Error("drain = nil, want everybody to get the error")
				}
			})
		}
		wg.Wait()
		if stops != 1 {
			t.Errorf("the component was stopped %d times, want once", stops)
		}
	})
}

func TestLinksThatCannotBeClosedAreNoFailureWithinTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(zap.NewNop(), 10*time.Second)
		l.Links("gone", func(context.Context) error { return errors.New("connection reset by peer") })
		if err := l.Drain(); err != nil {
			t.Errorf("drain = %v, want nil", err)
		}
		l = New(zap.NewNop(), 10*time.Second)
		l.Links("stalled", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		if err := l.Drain(); err == nil || err.Error() != "stop stalled: not done within 10s" {
			t.Errorf("drain = %v, want an error that names what ran out of time", err)
		}
	})
}

// A Close that heeds no context must not hold up the stop.
func TestAStopThatDoesNotReturnIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(zap.NewNop(), 10*time.Second)
		dial := make(chan struct{})
		deaf := func(context.Context) error { <-dial; return nil }
		l.Started("component", deaf)
		l.Connection("connection", deaf)
		began := time.Now()
		err := l.Drain()
		if err == nil || err.Error() != "stop component: not done within 8.9s" {
			t.Errorf("drain = %v, want the component named and the connection not", err)
		}
		if took := time.Since(began); took != 10*time.Second+stopGrace {
			t.Errorf("drain took %v, want 10s and last words", took)
		}
		close(dial)
	})
}

func TestServingDoesNotUndoADrain(t *testing.T) {
	l := New(zap.NewNop(), time.Minute)
	if err := l.Drain(); err != nil {
		t.Fatal(err)
	}
	l.Serving()
	if got := l.State(); got != StateStopped {
		t.Errorf("state %s, want %s", got, StateStopped)
	}
}
