// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator"
)

// healthcheckCommand asks the process that was started with the same settings, which is how it
// finds the port. Faults go to stderr, check by check.
func (p *program) healthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running Overdue on this machine whether it is ready: exit code 0 or 1",
		Long:  "Asks /readyz of the process that has the same configuration. For images without a shell.",
	}
	return p.configured(cmd, settings("listen.admin"), nothingToCheck, func(ctx context.Context, c *config.Config, _ []string) error {
		addr, err := adminAddress(c, "healthcheck")
		if err != nil {
			return err
		}
		r, err := operator.AskReadiness(ctx, addr)
		if err != nil {
			return fmt.Errorf("nothing answers on listen.admin, %s: %w", addr, err)
		}
		if !r.Ready {
			return fmt.Errorf("not ready (503 Service Unavailable)\n%s", strings.TrimSpace(r.Checks))
		}
		_, err = io.WriteString(p.stdout, r.Checks)
		return err
	})
}

// adminAddress is where a process with this configuration is asked, by a command.
func adminAddress(c *config.Config, command string) (string, error) {
	if _, port, err := net.SplitHostPort(c.Listen.Admin); err != nil || port == "0" {
		return "", &config.Error{Err: fmt.Errorf("%s is %s; %s needs to know the port", c.At("listen.admin"), c.Listen.Admin, command)}
	}
	return c.Listen.Admin, nil
}

const waitTimeout = time.Minute

// waitCommand waits for another process, for scripts and for containers that start beside it.
func (p *program) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until a running Overdue on this machine is ready, or drained",
		Long: "Waits for the process that has the same configuration until it is ready to take sends, until it\n" +
			"serves (it listens, whether the namespace answers or not), or until it is drained. A process that\n" +
			"has ended or was never started counts as drained. Exit code 1 when that takes too long.",
		Example: "  overdue wait && exec my-app           # an app that must not start before its sidecar\n" +
			"  overdue wait --for drained --timeout 60s",
	}
	state := cmd.Flags().String("for", operator.Ready, "what to wait for: ready, serving or drained")
	var timeout time.Duration
	durationVar(cmd.Flags(), &timeout, "timeout", waitTimeout, "how long to wait; 0 = as long as it takes")
	check := func([]string) error {
		switch {
		case !slices.Contains(operator.AwaitedStates, *state):
			return fmt.Errorf("--for: %q is not one of %s", config.Clip(*state), strings.Join(operator.AwaitedStates, ", "))
		case timeout < 0:
			return fmt.Errorf("--timeout: %s is negative", timeout)
		}
		return nil
	}
	return p.configured(cmd, settings("listen.admin"), check, func(ctx context.Context, c *config.Config, _ []string) error {
		addr, err := adminAddress(c, "wait")
		if err != nil {
			return err
		}
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return operator.Await(ctx, addr, *state)
	})
}
