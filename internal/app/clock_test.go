// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// attachedNow says once that the namespace has been attached.
func attachedNow() <-chan struct{} {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	return c
}

// A measurement that fails because nothing answers yet would have to wait for its turn.
func TestClockIsMeasuredWhenTheNamespaceIsAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		attached := make(chan struct{})
		measured := 0
		done := make(chan error)
		go func() {
			done <- keepClock(ctx, attached, nil, func(context.Context) error { measured++; return nil }, clockInterval, zap.NewNop())
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if measured != 0 {
			t.Errorf("measured %d times without a namespace, want 0", measured)
		}
		for want := 1; want <= 2; want++ { // again after the namespace was gone
			attached <- struct{}{}
			synctest.Wait()
			if measured != want {
				t.Errorf("measured %d times after %d attachments", measured, want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("keepClock = %v, want nil", err)
		}
	})
}

func TestClockIsMeasuredAtOnceAndEveryFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		done := make(chan error)
		go func() {
			done <- keepClock(ctx, attachedNow(), nil, func(context.Context) error {
				at = append(at, time.Since(began))
				return nil
			}, clockInterval, zap.NewNop())
		}()
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("keepClock = %v, want nil", err)
		}
		if len(at) < 11 || len(at) > 14 || at[0] != 0 {
			t.Fatalf("measured at %v, want at once and about every five minutes of an hour", at)
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < 4*time.Minute || gap > 6*time.Minute {
				t.Errorf("measurement %d came %v after the one before, want about five minutes", i, gap)
			}
		}
	})
}

func TestClockIsMeasuredWhenThatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		wanted := make(chan struct{}, 1)
		measured := 0
		done := make(chan error)
		go func() {
			done <- keepClock(ctx, attachedNow(), wanted, func(context.Context) error { measured++; return nil }, clockInterval, zap.NewNop())
		}()
		for want := 2; want <= 11; want++ {
			time.Sleep(20 * time.Second)
			wanted <- struct{}{}
			synctest.Wait()
			if measured != want {
				t.Errorf("measured %d times, want %d: at once, and each time that it was wanted", measured, want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("keepClock = %v, want nil", err)
		}
	})
}

func TestClockThatCannotBeMeasuredWarnsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		ctx, cancel := context.WithCancel(t.Context())
		var failing atomic.Bool
		failing.Store(true)
		var tries atomic.Int32
		done := make(chan error)
		go func() {
			done <- keepClock(ctx, attachedNow(), nil, func(context.Context) error {
				tries.Add(1)
				if failing.Load() {
					return errors.New("not allowed to listen")
				}
				return nil
			}, clockInterval, zap.New(core))
		}()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := tries.Load(); n < 10 || n > 100 {
			t.Errorf("%d tries in two hours, want some with growing waits", n)
		}
		if n := logs.FilterMessage("broker clock not measured").Len(); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
		failing.Store(false)
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if n := logs.FilterMessage("broker clock measured again").Len(); n != 1 {
			t.Errorf("%d words of recovery, want 1", n)
		}
		cancel()
		<-done
	})
}

func TestMeasurementThatHangsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var tries atomic.Int32
		done := make(chan error)
		go func() {
			done <- keepClock(ctx, attachedNow(), nil, func(ctx context.Context) error {
				tries.Add(1)
				<-ctx.Done()
				return ctx.Err()
			}, clockInterval, zap.NewNop())
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := tries.Load(); n < 2 {
			t.Errorf("%d tries in ten minutes, want a hanging one given up", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("keepClock = %v, want nil", err)
		}
	})
}
