// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// connectedApps are connected until gone is closed.
type connectedApps struct {
	gone   chan struct{}
	n      atomic.Int64
	closed atomic.Bool // no more connections are let in
}

func newConnectedApps(n int64) *connectedApps {
	a := &connectedApps{gone: make(chan struct{})}
	a.n.Store(n)
	return a
}

func (a *connectedApps) Connections() int { return int(a.n.Load()) }

func (a *connectedApps) Drain(ctx context.Context) error {
	a.closed.Store(true)
	select {
	case <-a.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

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
		apps := newConnectedApps(0)
		close(apps.gone)
		l, took := drained(Delays{Min: 5 * time.Second, Max: 20 * time.Second, Apps: apps})
		if apps.closed.Load() || l.State() != StateDraining {
			t.Errorf("at once: endpoints closed %v, state %s; want them open while it drains", apps.closed.Load(), l.State())
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
				apps := newConnectedApps(2)
				leave := time.AfterFunc(tt.leaves, func() { close(apps.gone) })
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
		"no delays":    {Apps: newConnectedApps(1)},
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
			l.Delays = Delays{Min: 5 * time.Second, Max: 20 * time.Second, Apps: newConnectedApps(1)}
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
