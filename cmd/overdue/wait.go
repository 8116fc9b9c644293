// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/lifecycle"
)

const (
	waitTimeout  = time.Minute
	waitInterval = 100 * time.Millisecond // between two questions to a process on this machine
)

// What `overdue wait` waits for.
const (
	forReady   = "ready"   // it takes sends: /readyz says so
	forServing = "serving" // it listens, whether the namespace answers or not
	forDrained = "drained" // its rooms are stopped, or it has ended
)

// waitCommand waits for another process, for scripts and for containers that start beside it.
func (p *program) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until a running Overdue on this machine is ready, or drained",
		Long: "Waits for the process that has the same configuration: until it is ready to take sends, until\n" +
			"it serves (it listens, whether the namespace answers or not), or until it is drained, which a\n" +
			"process that has ended or was never started is. Exit code 1 when that takes too long.",
		Example: "  overdue wait && exec my-app           # an app that must not start before its sidecar\n" +
			"  overdue wait --for drained --timeout 60s",
	}
	load := p.configFlags(cmd, isAdminAddress)
	what := cmd.Flags().String("for", forReady, "what to wait for: ready, serving or drained")
	var timeout time.Duration
	durationVar(cmd.Flags(), &timeout, "timeout", waitTimeout, "how long to wait; 0 = as long as it takes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *what != forReady && *what != forServing && *what != forDrained {
			return &config.Error{Err: fmt.Errorf("--for: %q is not one of %s, %s, %s", *what, forReady, forServing, forDrained)}
		}
		if timeout < 0 {
			return &config.Error{Err: fmt.Errorf("--timeout: %s is negative", timeout)}
		}
		c, err := load()
		if err != nil {
			return err
		}
		addr, err := adminAddress(c, "wait")
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return awaitState(ctx, addr, *what)
	}
	return cmd
}

// awaitState asks until a process is as wanted, or ctx ends.
func awaitState(ctx context.Context, addr, want string) error {
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	last := "nothing was heard"
	for {
		done, seen := isAs(ctx, addr, want)
		if done {
			return nil
		}
		if ctx.Err() == nil { // else the end of ctx is what was seen
			last = seen
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return context.Cause(ctx)
			}
			return fmt.Errorf("not %s in time; on listen.admin, %s: %s", want, addr, last)
		}
	}
}

// isAs asks once. last is what was seen, in words.
func isAs(ctx context.Context, addr, want string) (done bool, last string) {
	ready, text, err := askReady(ctx, addr)
	text = strings.TrimSpace(text)
	switch {
	case err != nil:
		// Only a refused connection says that nobody listens; a process that is slow to answer lives.
		return want == forDrained && errors.Is(err, syscall.ECONNREFUSED), err.Error()
	case want == forDrained:
		return strings.HasPrefix(text, "[-] state: "+string(lifecycle.StateStopped)), text
	case want == forServing:
		return ready || strings.HasPrefix(text, "[+] state"), text
	}
	return ready, text
}
