// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const (
	starting = "[-] state: starting\n[-] upstream\nnot ready\n"
	serving  = "[+] state\n[-] upstream\nnot ready\n"
	ready    = "[+] state\n[+] upstream\nready\n"
	draining = "[-] state: draining\n[+] upstream\nnot ready\n"
	stopped  = "[-] state: stopped\n[+] upstream\nnot ready\n"
)

func TestAwaitReturnsInTheStateThatIsAwaited(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	life := []struct {
		checks string
		err    error
	}{{"", refused}, {starting, nil}, {serving, nil}, {ready, nil}, {draining, nil}, {"", io.ErrUnexpectedEOF}, {stopped, nil}}
	for state, want := range map[string][]int{Serving: {2, 3}, Ready: {3}, Drained: {0, 6}} {
		for i, now := range life {
			got := Readiness{Ready: now.checks == ready, Checks: now.checks}.is(state, now.err)
			expected := false
			for _, n := range want {
				expected = expected || n == i
			}
			if got != expected {
				t.Errorf("%q, %v: %s is %v, want %v", now.checks, now.err, state, got, expected)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		err := await(t.Context(), Ready, "host:1", func(context.Context) (Readiness, error) {
			asked++
			return Readiness{Ready: asked == 4, Checks: ready}, nil
		})
		if took := time.Since(began); err != nil || asked != 4 || took != 3*awaitInterval {
			t.Errorf("await = %v after %d requests in %v, want 4 in %v", err, asked, took, 3*awaitInterval)
		}
	})
}

func TestAwaitSaysWhatItSawLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := func(ctx context.Context) (Readiness, error) {
			if ctx.Err() != nil {
				return Readiness{}, ctx.Err()
			}
			return Readiness{Checks: serving}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := await(ctx, Ready, "host:1", answers)
		if want := "not ready in time; host:1 says " + strings.TrimSpace(serving); err == nil || err.Error() != want {
			t.Errorf("await = %v, want %q", err, want)
		}
		err = await(ctx, Drained, "host:1", func(context.Context) (Readiness, error) { return Readiness{}, errors.New("timeout") })
		if want := "not drained in time; nothing was heard on listen.admin, host:1"; err == nil || err.Error() != want {
			t.Errorf("await at the end of its context = %v, want %q", err, want)
		}
		interrupted, interrupt := context.WithCancelCause(t.Context())
		interrupt(errors.New("interrupted"))
		if err := await(interrupted, Ready, "host:1", answers); err == nil || err.Error() != "interrupted" {
			t.Errorf("await that is interrupted = %v, want the cause", err)
		}
	})
}

func TestReadinessIsThatOfTheAdminPort(t *testing.T) {
	status, body := http.StatusOK, ready
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || r.URL.RawQuery != "verbose" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the client sees what is missing
	}))
	addr := strings.TrimPrefix(server.URL, "http://")
	if err := Await(t.Context(), addr, Ready); err != nil {
		t.Errorf("Await = %v", err)
	}
	status, body = http.StatusServiceUnavailable, draining
	if r, err := AskReadiness(t.Context(), addr); err != nil || r.Ready || r.Checks != draining {
		t.Errorf("AskReadiness of a process that drains = %+v, %v", r, err)
	}
	status = http.StatusNotFound
	if _, err := AskReadiness(t.Context(), addr); err == nil || !strings.HasSuffix(err.Error(), "answers 404 Not Found, which is not Overdue's /readyz") {
		t.Errorf("AskReadiness of another server = %v", err)
	}
	status, body = http.StatusOK, "<feed/>"
	if _, err := AskReadiness(t.Context(), addr); err == nil || !strings.HasSuffix(err.Error(), "answers 200 OK, which is not Overdue's /readyz") {
		t.Errorf("AskReadiness of a server that says something else = %v", err)
	}
	server.Close()
	if err := Await(t.Context(), addr, Drained); err != nil {
		t.Errorf("Await of a process that has ended = %v", err)
	}
	if _, err := AskReadiness(t.Context(), "no host:1"); err == nil {
		t.Error("AskReadiness of no address = nil, want an error")
	}
}
