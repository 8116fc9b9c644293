// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"strings"

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
	load := p.configFlags(cmd, isAdminAddress)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := load()
		if err != nil {
			return err
		}
		addr, err := adminAddress(c, "healthcheck")
		if err != nil {
			return err
		}
		r, err := operator.AskReadiness(cmd.Context(), addr)
		if err != nil {
			return fmt.Errorf("nothing answers on listen.admin, %s: %w", addr, err)
		}
		if !r.Ready {
			return fmt.Errorf("not ready (503 Service Unavailable)\n%s", strings.TrimSpace(r.Checks))
		}
		_, err = io.WriteString(p.stdout, r.Checks)
		return err
	}
	return cmd
}

func isAdminAddress(path string) bool { return path == "listen.admin" }

// adminAddress is where a process with this configuration is asked, by a command.
func adminAddress(c *config.Config, command string) (string, error) {
	if _, port, err := net.SplitHostPort(c.Listen.Admin); err != nil || port == "0" {
		return "", &config.Error{Err: fmt.Errorf("%s is %s; %s needs to know the port", c.At("listen.admin"), c.Listen.Admin, command)}
	}
	return c.Listen.Admin, nil
}
