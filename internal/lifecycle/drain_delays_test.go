// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"overdue/internal/testing/apptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// drained starts a drain of a lifecycle with these delays, and sends how long it took until its
// component was stopped.
func drained(f Delays) (*Lifecycle, <-chan time.Duration) {
	l := New(zap.NewNop(), time.Minute)
	l.Delays = f
	began, took := time.Now(), make(chan time.Duration, 1)
	l.Started("component", func(context.Context) error {
		took <- time.Since(began)
		return nil
	})
	l.Serving()
	go func() { _ = l.Drain() }() // its component does not fail
	synctest.Wait()
	return l, took
}

func TestTheEndpointsStayOpenForTheMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		apps := apptest.Connected(0)
		close(apps.Gone)
		l, took := drained(Delays{Min: 5 * time.Second, Max: 20 * time.Second, Apps: apps})
		if apps.Closed.Load() || l.State() != StateDraining {
			t.Errorf("at once: endpoints closed %v, state %s; want them open while it drains", apps.Closed.Load(), l.State())
		}
		if got := <-took; got != 5*time.Second {
			t.Errorf("the components were stopped after %v, want 5s: nobody was connected then", got)
		}
	})
}

func TestAStopWaitsForTheLastConnectionAndNotLonger(t *testing.T) {
	for name, tt := range map[string]struct {
		leaves, want time.Duration
	}{
		"apps that leave":   {7 * time.Second, 7 * time.Second},
		"apps that stay":    {time.Hour, 20 * time.Second},
		"apps that are few": {0, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				apps := apptest.Connected(2)
				leave := time.AfterFunc(tt.leaves, func() { close(apps.Gone) })
				defer leave.Stop()
				_, took := drained(Delays{Min: 5 * time.Second, Max: 20 * time.Second, Apps: apps})
				if got := <-took; got != tt.want {
					t.Errorf("the components were stopped after %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestWithoutDelaysOrEndpointsNobodyIsWaitedFor(t *testing.T) {
	for name, f := range map[string]Delays{
		"no delays":    {Apps: apptest.Connected(1)},
		"no endpoints": {Min: time.Minute, Max: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, took := drained(f)
			if got := <-took; got != 0 {
				t.Errorf("%s: the components were stopped after %v, want at once", name, got)
			}
		})
	}
}

// In either of the two delays, and before them.
func TestADelayCanBeCutShort(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := New(zap.NewNop(), time.Minute)
			l.Delays = Delays{Min: 5 * time.Second, Max: 20 * time.Second, Apps: apptest.Connected(1)}
			began := time.Now()
			if after == 0 {
				l.Hurry()
			} else {
				time.AfterFunc(after, l.Hurry)
			}
			if err := l.Drain(); err != nil || time.Since(began) != after {
				t.Errorf("hurried after %v: drain = %v after %v", after, err, time.Since(began))
			}
		})
	}
}
