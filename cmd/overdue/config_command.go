// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"overdue/internal/app"
	"overdue/internal/config"
)

// configCommand looks at a configuration without running anything.
func (p *program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, show what is in force, or describe it to an editor",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.configCheckCommand(), p.configPrintCommand(), p.configSchemaCommand())
	return cmd
}

func everything(string) bool { return true }

func (p *program) configCheckCommand() *cobra.Command {
	var as string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check file, environment and flags: exit code 0, or 2 and every mistake with its line",
		Long: "Reads what `overdue run` would read, files with secrets among it, and checks all that can be checked\n" +
			"without the network. `overdue doctor` checks the rest against the namespace.",
		Example: "  overdue config check --config overdue.yaml\n" +
			"  overdue config check --config overdue.yaml --role proxy",
	}
	load := p.configFlags(cmd, everything)
	cmd.Flags().StringVar(&as, "role", "run", "which command it is for: run, proxy, monitor or broker")
	completes(cmd, "role", "run", "proxy", "monitor", "broker")
	cmd.RunE = func(*cobra.Command, []string) error {
		at := slices.IndexFunc(config.Roles, func(r config.Role) bool { return r.Name == as })
		if at < 0 {
			return &config.Error{Err: fmt.Errorf("--role is %q; it must be one of run, proxy, monitor, broker", config.Clip(as))}
		}
		c, err := load()
		if err != nil {
			return err
		}
		if err := errors.Join(c.CheckRole(config.Roles[at]), app.Check(c, config.Roles[at])); err != nil {
			return &config.Error{Err: err}
		}
		for _, name := range config.MisspeltVariables(os.Environ()) {
			fmt.Fprintf(p.stderr, "overdue: %s\n", name) // a message that cannot be printed is no mistake of the configuration
		}
		_, err = fmt.Fprintf(p.stdout, "The configuration is right for `overdue %s`; %s.\n", as, c.Sources())
		return err
	}
	return cmd
}
