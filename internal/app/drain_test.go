// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"overdue/internal/adminport"
	"overdue/internal/config"
	"overdue/internal/lifecycle"
	"overdue/internal/testing/apptest"
)

func TestReadinessSaysWhatADrainWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		apps := apptest.Connected(2)
		a := startedAdmin(t)
		a.Life.Delays = lifecycle.Delays{Min: 5 * time.Second, Max: 20 * time.Second, Apps: apps}
		done := make(chan error)
		go func() { done <- a.Life.Drain() }()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if code, body := askAdmin(a, http.MethodGet, "/readyz", ""); code != 503 || body != want {
				t.Errorf("GET /readyz = %d %q, want 503 %q", code, body, want)
			}
		}
		time.Sleep(time.Second)
		expect("[-] state: draining; the endpoints stay open for 4s more\nnot ready\n")
		time.Sleep(5 * time.Second)
		apps.N.Store(1)
		expect("[-] state: draining; waits for the connections of apps (1), for 14s at most\nnot ready\n")
		close(apps.Gone)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		expect("[-] state: stopped\nnot ready\n")
	})
}

// A process that ends by SIGTERM gives apps their time; quitquitquit, a component that fails and whatever else
// ends it do not, whichever comes first.
func TestOnlySigtermLeavesTime(t *testing.T) {
	const patient, hasty = time.Minute, time.Duration(0)
	failure := errors.New("monitor: no such queue")
	for name, tt := range map[string]struct {
		end  func(p *Process, cancel context.CancelCauseFunc)
		want time.Duration
		err  error
	}{
		"SIGTERM":      {func(_ *Process, cancel context.CancelCauseFunc) { cancel(lifecycle.ErrTerminated) }, patient, nil},
		"SIGINT":       {func(_ *Process, cancel context.CancelCauseFunc) { cancel(errors.New("signal: interrupt")) }, hasty, nil},
		"quitquitquit": {func(p *Process, _ context.CancelCauseFunc) { p.admin.Quit <- struct{}{} }, hasty, nil},
		"a failure":    {func(p *Process, _ context.CancelCauseFunc) { p.life.Failed <- failure }, hasty, failure},
		"SIGTERM, then quitquitquit": {func(p *Process, cancel context.CancelCauseFunc) {
			cancel(lifecycle.ErrTerminated)
			time.AfterFunc(10*time.Second, func() { p.admin.Quit <- struct{}{} })
		}, 10 * time.Second, nil},
		"SIGTERM, then a failure": {func(p *Process, cancel context.CancelCauseFunc) {
			cancel(lifecycle.ErrTerminated)
			time.AfterFunc(10*time.Second, func() { p.life.Failed <- failure })
		}, 10 * time.Second, failure},
		"/drain, then SIGTERM": {func(p *Process, cancel context.CancelCauseFunc) {
			go func() { _ = p.life.Drain() }()
			time.AfterFunc(10*time.Second, func() { cancel(lifecycle.ErrTerminated) })
		}, patient, nil},
		"/drain, then SIGINT": {func(p *Process, cancel context.CancelCauseFunc) {
			go func() { _ = p.life.Drain() }()
			time.AfterFunc(10*time.Second, func() { cancel(nil) })
		}, 10 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			// The runtime starts a goroutine for signals, which must not be of the bubble.
			warmSignals()
			synctest.Test(t, func(t *testing.T) {
				p := &Process{environment: &environment{log: zap.NewNop(), life: lifecycle.New(zap.NewNop(), time.Minute)}}
				p.admin = &adminport.Port{Life: p.life, Quit: make(chan struct{}, 1)}
				p.life.Delays = lifecycle.Delays{Max: patient, Apps: apptest.Connected(1)}
				p.life.Serving()
				ctx, cancel := context.WithCancelCause(t.Context())
				began := time.Now()
				go tt.end(p, cancel)
				if err := p.wait(ctx); !errors.Is(err, tt.err) {
					t.Errorf("wait = %v, want %v", err, tt.err)
				}
				if took := time.Since(began); took != tt.want {
					t.Errorf("the end took %v, want %v", took, tt.want)
				}
				if got := p.life.State(); got != lifecycle.StateStopped {
					t.Errorf("state %s, want %s", got, lifecycle.StateStopped)
				}
			})
		})
	}
}

func TestStateIsAMetric(t *testing.T) {
	a := startedAdmin(t)
	registry := newRegistry(config.RoleRun, embeddedNamespace)
	a.Metrics = registry
	registerState(registry, a.Life)
	apps := apptest.Connected(3)
	registerConnections(registry, apps)
	expect := func(want ...string) {
		t.Helper()
		_, body := askAdmin(a, "GET", "/metrics", "")
		for _, w := range want {
			if !strings.Contains(body, w+"\n") {
				t.Errorf("GET /metrics lacks %s", w)
			}
		}
	}
	expect(`overdue_state{state="serving"} 1`, `overdue_state{state="stopped"} 0`, "overdue_endpoint_connections 3")
	if err := a.Life.Drain(); err != nil {
		t.Fatal(err)
	}
	expect(`overdue_state{state="serving"} 0`, `overdue_state{state="stopped"} 1`)
}

// Requests that other machines may make change nothing, and cause no requests on their behalf.
func TestProbesForOtherMachinesAreNoMoreThanProbes(t *testing.T) {
	p := startTest(t, "listen: {probes: \"127.0.0.1:0\"}\n")
	for target, want := range map[string]int{
		"/livez": 200, "/startupz": 200, "/metrics": 200, "/healthz/outbound": 404, "/configz": 404, "/debug/pprof/cmdline": 404,
	} {
		resp, err := http.Get("http://" + p.servers.probesAddr + target)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s = %d, want %d", target, resp.StatusCode, want)
		}
	}
	for _, target := range []string{"/drain", "/quitquitquit"} {
		resp, err := http.Post("http://"+p.servers.probesAddr+target, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound || p.life.State() != lifecycle.StateServing {
			t.Errorf("POST %s = %d and state %s, want 404 and %s", target, resp.StatusCode, p.life.State(), lifecycle.StateServing)
		}
	}
}

// warmSignals starts the goroutine of os/signal, which lives for ever.
func warmSignals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	signal.Stop(c)
}
