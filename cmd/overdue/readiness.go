// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/dlq"
)

// adminAddress is where a process with this configuration is asked, by a command.
func adminAddress(c *config.Config, cmd *cobra.Command) (string, error) {
	if _, port, err := net.SplitHostPort(c.Listen.Admin); err != nil || port == "0" {
		command := strings.TrimPrefix(cmd.CommandPath(), "overdue ")
		return "", &config.Error{Err: fmt.Errorf("%s is %s; %s needs to know the port", c.At("listen.admin"), c.Listen.Admin, command)}
	}
	return c.Listen.Admin, nil
}

const waitTimeout = time.Minute

// waitCommand waits for another process, for scripts and for containers that start beside it. With
// --once it only asks, as the health check of an image does. It finds the port because it was
// started with the same settings.
func (p *program) waitCommand(name string, onceByDefault bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: "Wait until a running Overdue on this machine is ready, or drained",
		Long: "Waits for the process that has the same configuration until it is ready to take sends, until it\n" +
			"serves (it listens, whether the namespace answers or not), or until it is drained. A process that\n" +
			"has ended or was never started counts as drained. Exit code 1 when that takes too long.\n\n" +
			"With --once it asks a single time and prints the checks of /readyz: the health check for images\n" +
			"without a shell.",
		Example: "  overdue wait && exec my-app   # an app that needs its sidecar to start\n" +
			"  overdue wait --for drained --timeout 60s\n" +
			"  overdue wait --once           # exit code 0 or 1",
	}
	var state string
	choiceVar(cmd, &state, "for", operator.Ready, operator.AwaitedStates, "what to wait for")
	once := cmd.Flags().Bool("once", onceByDefault, "ask once, and do not wait")
	var timeout time.Duration
	durationVar(cmd.Flags(), &timeout, "timeout", waitTimeout, 0, dlq.Longest, "how long to wait; 0 = as long as it takes")
	check := func([]string) error {
		if *once && cmd.Flags().Changed("timeout") {
			return errors.New("--once does not wait, so --timeout has no meaning; keep one of them")
		}
		return nil
	}
	return p.configured(cmd, settings("listen.admin"), check, func(ctx context.Context, c *config.Config, _ []string) error {
		addr, err := adminAddress(c, cmd)
		if err != nil {
			return err
		}
		if *once {
			checks, err := operator.CheckState(ctx, addr, state)
			if err != nil {
				return err
			}
			_, err = io.WriteString(p.stdout, checks)
			return err
		}
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return operator.Await(ctx, addr, state)
	})
}
