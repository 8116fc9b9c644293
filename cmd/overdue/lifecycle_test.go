// SPDX-License-Identifier: Apache-2.0

package main

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

func TestRoomsStopInReverseAndErrorsAreJoined(t *testing.T) {
	l := newLifecycle(zap.NewNop(), time.Minute)
	var order []string
	for _, name := range []string{"broker", "client", "proxy"} {
		l.started(name, func(context.Context) error {
			order = append(order, name)
			if name == "client" {
				return nil
			}
			return errors.New("did not want to")
		})
	}
	l.serving()
	err := l.drain()
	if diff := cmp.Diff([]string{"proxy", "client", "broker"}, order); diff != "" {
		t.Errorf("order of stops (-want +got):\n%s", diff)
	}
	want := "stop proxy: did not want to\nstop broker: did not want to"
	if err == nil || err.Error() != want {
		t.Errorf("drain = %v, want %q", err, want)
	}
	if got := l.current(); got != stateStopped {
		t.Errorf("state %s, want %s", got, stateStopped)
	}
}

// A room that hangs costs its share of the time, not that of those after it.
func TestARoomThatHangsDoesNotTakeTheOthersTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLifecycle(zap.NewNop(), 30*time.Second)
		var left time.Duration
		l.started("first", func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return nil
		})
		l.started("quick", func(context.Context) error { return nil })
		hang := make(chan struct{})
		l.room("hangs", func() error { <-hang; return nil }, func(context.Context) error { return nil })
		began := time.Now()
		err := l.drain()
		if took := time.Since(began); took != 15*time.Second {
			t.Errorf("drain took %v, want the hanging room's half of 30s", took)
		}
		if err == nil || !strings.Contains(err.Error(), "stop hangs: not done within 15s") {
			t.Errorf("drain = %v, want an error that names the room", err)
		}
		if left != 15*time.Second {
			t.Errorf("the last room had %v, want all of the 15s that were left", left)
		}
		close(hang)
	})
}

func TestARoomThatEndsByItselfFailsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLifecycle(zap.NewNop(), time.Minute)
		l.background("monitor", func(context.Context) error { return errors.New("no such queue") })
		l.background("clock", func(ctx context.Context) error { <-ctx.Done(); return nil })
		if err := <-l.failed; err.Error() != "monitor: no such queue" {
			t.Errorf("failed with %v, want the room and its error", err)
		}
		if err := l.drain(); err != nil {
			t.Errorf("drain = %v, want nothing that has been told", err)
		}
		select {
		case err := <-l.failed:
			t.Errorf("a room that was stopped failed the process: %v", err)
		default:
		}
	})
}

// The process ends for one reason. What else failed meanwhile is told when it is stopped, each once.
func TestRoomsThatFailTogetherAreToldOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLifecycle(zap.NewNop(), time.Minute)
		for _, name := range []string{"monitor", "clock"} {
			l.background(name, func(context.Context) error { return errors.New("broken") })
		}
		synctest.Wait()
		told := errors.Join(<-l.failed, l.drain()).Error()
		for _, name := range []string{"monitor: broken", "clock: broken"} {
			if strings.Count(told, name) != 1 {
				t.Errorf("told %q, want %q once", told, name)
			}
		}
	})
}

func TestDrainIsOnceHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLifecycle(zap.NewNop(), time.Minute)
		stops := 0
		l.started("room", func(context.Context) error {
			stops++
			time.Sleep(time.Second)
			return errors.New("late")
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := l.drain(); err == nil {
					t.Error("drain = nil, want everybody to get the error")
				}
			})
		}
		wg.Wait()
		if stops != 1 {
			t.Errorf("the room was stopped %d times, want once", stops)
		}
	})
}

func TestLinksThatCannotBeClosedAreNoFailureWithinTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLifecycle(zap.NewNop(), 10*time.Second)
		l.links("gone", func(context.Context) error { return errors.New("connection reset by peer") })
		if err := l.drain(); err != nil {
			t.Errorf("drain = %v, want nil", err)
		}
		l = newLifecycle(zap.NewNop(), 10*time.Second)
		l.links("stalled", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		if err := l.drain(); err == nil || err.Error() != "stop stalled: not done within 10s" {
			t.Errorf("drain = %v, want an error that names what ran out of time", err)
		}
	})
}

// A Close that heeds no context must not hold up the stop.
func TestAStopThatDoesNotReturnIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLifecycle(zap.NewNop(), 10*time.Second)
		dial := make(chan struct{})
		deaf := func(context.Context) error { <-dial; return nil }
		l.started("room", deaf)
		l.connection("connection", deaf)
		began := time.Now()
		err := l.drain()
		if err == nil || err.Error() != "stop room: not done within 8.9s" {
			t.Errorf("drain = %v, want the room named and the connection not", err)
		}
		if took := time.Since(began); took != 10*time.Second+lastWords {
			t.Errorf("drain took %v, want 10s and last words", took)
		}
		close(dial)
	})
}

func TestServingDoesNotUndoADrain(t *testing.T) {
	l := newLifecycle(zap.NewNop(), time.Minute)
	if err := l.drain(); err != nil {
		t.Fatal(err)
	}
	l.serving()
	if got := l.current(); got != stateStopped {
		t.Errorf("state %s, want %s", got, stateStopped)
	}
}
