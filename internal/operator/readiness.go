// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"overdue/internal/httpclient"
	"overdue/internal/lifecycle"
)

// States that [Await] waits for.
const (
	Ready   = "ready"   // it takes sends: /readyz says so
	Serving = "serving" // it listens, whether the namespace answers or not
	Drained = "drained" // its components are stopped, or it has ended
)

// AwaitedStates are all of them.
var AwaitedStates = []string{Ready, Serving, Drained}

const (
	readinessTimeout = 3 * time.Second        // of one request
	outboundTimeout  = 5 * time.Second        // likewise, for an answer that waits for a slow sink
	maxChecks        = 16 << 10               // bytes of an answer
	awaitInterval    = 100 * time.Millisecond // between two requests to a process on this machine
)

// A Readiness is the answer of /readyz.
type Readiness struct {
	Ready  bool
	Status string // of HTTP
	Checks string // a line for each check
}

// AskReadiness asks the process with the admin port addr, host:port, whether it is ready.
func AskReadiness(ctx context.Context, addr string) (r Readiness, err error) {
	return askChecks(ctx, addr, "/readyz", readinessTimeout)
}

// askChecks asks the process for the checks at a path.
func askChecks(ctx context.Context, addr, path string, timeout time.Duration) (r Readiness, err error) {
	resp, err := httpclient.GetAdmin(ctx, addr, path+"?verbose", timeout)
	if err != nil {
		return r, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxChecks))
	if err != nil {
		return r, fmt.Errorf("read the answer of %s: %w", addr, err)
	}
	isAnswer := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusServiceUnavailable
	if !isAnswer || !bytes.HasPrefix(body, []byte("[+] ")) && !bytes.HasPrefix(body, []byte("[-] ")) {
		return r, fmt.Errorf("%s answers %s, which is not Overdue's %s", addr, resp.Status, path)
	}
	return Readiness{
		Ready:  resp.StatusCode == http.StatusOK,
		Status: resp.Status,
		Checks: string(body),
	}, nil
}

// CheckState asks the process with the admin port addr once. It returns its checks, or an error when
// the process is not in that state, one of [AwaitedStates].
func CheckState(ctx context.Context, addr, state string) (checks string, err error) {
	r, err := AskReadiness(ctx, addr)
	switch {
	case r.is(state, err):
		return r.Checks, nil
	case err != nil:
		return "", err
	}
	return "", fmt.Errorf("not %s (%s)\n%s", state, r.Status, strings.TrimSpace(r.Checks))
}

// Await returns when the process with the admin port addr is in one of [AwaitedStates], or with an
// error when ctx ends.
func Await(ctx context.Context, addr, state string) error {
	return await(ctx, state, addr, func(ctx context.Context) (Readiness, error) { return AskReadiness(ctx, addr) })
}

func await(ctx context.Context, state, addr string, ask func(context.Context) (Readiness, error)) error {
	tick := time.NewTicker(awaitInterval)
	defer tick.Stop()
	last := "nothing was heard on listen.admin, " + addr
	for {
		r, err := ask(ctx)
		if r.is(state, err) {
			return nil
		}
		switch {
		case ctx.Err() != nil: // the answer before is the last one
		case err != nil:
			last = err.Error()
		default:
			last = addr + " says " + strings.TrimSpace(r.Checks)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return context.Cause(ctx)
			}
			return fmt.Errorf("not %s in time; %s", state, last)
		}
	}
}

// is reports whether the process is in that state. err is that of the request.
func (r Readiness) is(state string, err error) bool {
	switch {
	case err != nil:
		// Only a refused connection says that nobody listens. A process that is slow to answer lives.
		return state == Drained && errors.Is(err, syscall.ECONNREFUSED)
	case state == Drained:
		return strings.HasPrefix(r.Checks, "[-] state: "+string(lifecycle.StateStopped))
	case state == Serving:
		return r.Ready || strings.HasPrefix(r.Checks, "[+] state")
	}
	return r.Ready
}
