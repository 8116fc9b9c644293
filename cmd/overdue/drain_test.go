// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// testApps are connected until gone is closed.
type testApps struct {
	gone   chan struct{}
	n      atomic.Int64
	closed atomic.Bool // no more connections are let in
}

func newTestApps(n int64) *testApps {
	a := &testApps{gone: make(chan struct{})}
	a.n.Store(n)
	return a
}

func (a *testApps) Connections() int { return int(a.n.Load()) }

func (a *testApps) Drain(ctx context.Context) error {
	a.closed.Store(true)
	select {
	case <-a.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drained starts a drain of a lifecycle with these delays, and tells how long it took until its room was stopped.
func drained(f farewell) (*lifecycle, <-chan time.Duration) {
	l := newLifecycle(zap.NewNop(), time.Minute)
	l.farewell = f
	began, took := time.Now(), make(chan time.Duration, 1)
	l.started("room", func(context.Context) error {
		took <- time.Since(began)
		return nil
	})
	l.serving()
	go func() { _ = l.drain() }() // its room does not fail
	synctest.Wait()
	return l, took
}

func TestTheDoorsStayOpenForTheMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		apps := newTestApps(0)
		close(apps.gone)
		l, took := drained(farewell{min: 5 * time.Second, max: 20 * time.Second, apps: apps})
		if apps.closed.Load() || l.current() != stateDraining {
			t.Errorf("at once: doors closed %v, state %s; want them open while it drains", apps.closed.Load(), l.current())
		}
		if got := <-took; got != 5*time.Second {
			t.Errorf("the rooms were stopped after %v, want 5s: nobody was connected then", got)
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
				apps := newTestApps(2)
				leave := time.AfterFunc(tt.leaves, func() { close(apps.gone) })
				defer leave.Stop()
				_, took := drained(farewell{min: 5 * time.Second, max: 20 * time.Second, apps: apps})
				if got := <-took; got != tt.want {
					t.Errorf("the rooms were stopped after %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestWithoutDelaysOrDoorsNobodyIsWaitedFor(t *testing.T) {
	for name, f := range map[string]farewell{
		"no delays": {apps: newTestApps(1)},
		"no doors":  {min: time.Minute, max: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, took := drained(f)
			if got := <-took; got != 0 {
				t.Errorf("%s: the rooms were stopped after %v, want at once", name, got)
			}
		})
	}
}

// In either half of a farewell, and before it.
func TestAFarewellCanBeCutShort(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := newLifecycle(zap.NewNop(), time.Minute)
			l.farewell = farewell{min: 5 * time.Second, max: 20 * time.Second, apps: newTestApps(1)}
			began := time.Now()
			if after == 0 {
				l.hurry()
			} else {
				time.AfterFunc(after, l.hurry)
			}
			if err := l.drain(); err != nil || time.Since(began) != after {
				t.Errorf("hurried after %v: drain = %v after %v", after, err, time.Since(began))
			}
		})
	}
}

func TestReadinessSaysWhatADrainWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		apps := newTestApps(2)
		a := testAdmin(t)
		a.life.farewell = farewell{min: 5 * time.Second, max: 20 * time.Second, apps: apps}
		done := make(chan error)
		go func() { done <- a.life.drain() }()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if code, body := ask(a, http.MethodGet, "/readyz", ""); code != 503 || body != want {
				t.Errorf("GET /readyz = %d %q, want 503 %q", code, body, want)
			}
		}
		time.Sleep(time.Second)
		expect("[-] state: draining; the doors stay open for 4s more\nnot ready\n")
		time.Sleep(5 * time.Second)
		apps.n.Store(1)
		expect("[-] state: draining; waits for the connections of apps (1), for 14s at most\nnot ready\n")
		close(apps.gone)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		expect("[-] state: stopped\nnot ready\n")
	})
}

// A process that ends by SIGTERM gives apps their time; quitquitquit, a room that fails and whatever else
// ends it do not, whichever comes first.
func TestOnlySigtermLeavesTime(t *testing.T) {
	const patient, hasty = time.Minute, time.Duration(0)
	failure := errors.New("monitor: no such queue")
	for name, tt := range map[string]struct {
		end  func(p *process, cancel context.CancelCauseFunc)
		want time.Duration
		err  error
	}{
		"SIGTERM":      {func(_ *process, cancel context.CancelCauseFunc) { cancel(errTerminated) }, patient, nil},
		"SIGINT":       {func(_ *process, cancel context.CancelCauseFunc) { cancel(errors.New("signal: interrupt")) }, hasty, nil},
		"quitquitquit": {func(p *process, _ context.CancelCauseFunc) { p.admin.quit <- struct{}{} }, hasty, nil},
		"a failure":    {func(p *process, _ context.CancelCauseFunc) { p.life.failed <- failure }, hasty, failure},
		"SIGTERM, then quitquitquit": {func(p *process, cancel context.CancelCauseFunc) {
			cancel(errTerminated)
			time.AfterFunc(10*time.Second, func() { p.admin.quit <- struct{}{} })
		}, 10 * time.Second, nil},
		"SIGTERM, then a failure": {func(p *process, cancel context.CancelCauseFunc) {
			cancel(errTerminated)
			time.AfterFunc(10*time.Second, func() { p.life.failed <- failure })
		}, 10 * time.Second, failure},
		"/drain, then SIGTERM": {func(p *process, cancel context.CancelCauseFunc) {
			go func() { _ = p.life.drain() }()
			time.AfterFunc(10*time.Second, func() { cancel(errTerminated) })
		}, patient, nil},
		"/drain, then SIGINT": {func(p *process, cancel context.CancelCauseFunc) {
			go func() { _ = p.life.drain() }()
			time.AfterFunc(10*time.Second, func() { cancel(nil) })
		}, 10 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			// What waits for signals has a goroutine of the runtime, which must not be of the bubble.
			warmSignals()
			synctest.Test(t, func(t *testing.T) {
				p := &process{log: zap.NewNop(), life: newLifecycle(zap.NewNop(), time.Minute)}
				p.admin = &admin{life: p.life, quit: make(chan struct{}, 1)}
				p.life.farewell = farewell{max: patient, apps: newTestApps(1)}
				p.life.serving()
				ctx, cancel := context.WithCancelCause(t.Context())
				began := time.Now()
				go tt.end(p, cancel)
				if err := p.wait(ctx); !errors.Is(err, tt.err) {
					t.Errorf("wait = %v, want %v", err, tt.err)
				}
				if took := time.Since(began); took != tt.want {
					t.Errorf("the end took %v, want %v", took, tt.want)
				}
				if got := p.life.current(); got != stateStopped {
					t.Errorf("state %s, want %s", got, stateStopped)
				}
			})
		})
	}
}

func TestStateIsAMetric(t *testing.T) {
	a := testAdmin(t)
	registry := newRegistry()
	a.metrics = registry
	registerState(registry, a.life)
	apps := newTestApps(3)
	registerConnections(registry, apps)
	expect := func(want ...string) {
		t.Helper()
		_, body := ask(a, "GET", "/metrics", "")
		for _, w := range want {
			if !strings.Contains(body, w+"\n") {
				t.Errorf("GET /metrics lacks %s", w)
			}
		}
	}
	expect(`overdue_state{state="serving"} 1`, `overdue_state{state="stopped"} 0`, "overdue_door_connections 3")
	if err := a.life.drain(); err != nil {
		t.Fatal(err)
	}
	expect(`overdue_state{state="serving"} 0`, `overdue_state{state="stopped"} 1`)
}

// What other machines may ask changes nothing, and does not go out on their behalf.
func TestProbesForOtherMachinesAreNoMoreThanProbes(t *testing.T) {
	p := startTest(t, "listen: {probes: \"127.0.0.1:0\"}\n")
	for target, want := range map[string]int{
		"/livez": 200, "/startupz": 200, "/metrics": 200, "/healthz/outbound": 404, "/configz": 404, "/debug/pprof/cmdline": 404,
	} {
		resp, err := http.Get("http://" + p.probesAddr + target)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s = %d, want %d", target, resp.StatusCode, want)
		}
	}
	for _, target := range []string{"/drain", "/quitquitquit"} {
		resp, err := http.Post("http://"+p.probesAddr+target, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound || p.life.current() != stateServing {
			t.Errorf("POST %s = %d and state %s, want 404 and %s", target, resp.StatusCode, p.life.current(), stateServing)
		}
	}
}

// warmSignals starts the goroutine of os/signal, which lives for ever.
func warmSignals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	signal.Stop(c)
}
