// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator"
)

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
	load := p.configFlags(cmd, isAdminAddress)
	state := cmd.Flags().String("for", operator.Ready, "what to wait for: ready, serving or drained")
	var timeout time.Duration
	durationVar(cmd.Flags(), &timeout, "timeout", waitTimeout, "how long to wait; 0 = as long as it takes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(operator.AwaitedStates, *state) {
			return &config.Error{Err: fmt.Errorf("--for: %q is not one of %s", config.Clip(*state), strings.Join(operator.AwaitedStates, ", "))}
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
		return operator.Await(ctx, addr, *state)
	}
	return cmd
}
