// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/app"
	"overdue/internal/config"
)

// configCommand looks at a configuration without running anything.
func (p *program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, show the settings in force, or print an example",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.configCheckCommand(), p.configPrintCommand(), p.configExampleCommand(), p.configSchemaCommand())
	return cmd
}

func everything(string) bool { return true }

func (p *program) configCheckCommand() *cobra.Command {
	var as string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check file, environment and flags: exit code 0, or 2 and every mistake with its line",
		Long: "Reads what a start would read, including files with secrets, and checks all that can be checked\n" +
			"without the network, for every command that the configuration could serve: run, proxy and monitor with\n" +
			"a namespace, run and broker without. `overdue doctor` checks the rest against the namespace.",
		Example: "  overdue config check --config overdue.yaml\n" +
			"  overdue config check --config overdue.yaml --role proxy",
	}
	load := p.configFlags(cmd, everything)
	cmd.Flags().StringVar(&as, "role", "", "check for this command alone: run, proxy, monitor or broker")
	completes(cmd, "role", "run", "proxy", "monitor", "broker")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		at := slices.IndexFunc(config.Roles, func(r config.Role) bool { return r.Name == as })
		if at < 0 && cmd.Flags().Changed("role") {
			return &config.Error{Err: fmt.Errorf("--role is %q; it must be one of run, proxy, monitor, broker", config.Clip(as))}
		}
		c, err := load()
		if err != nil {
			return err
		}
		roles := c.Roles()
		if at >= 0 {
			roles = config.Roles[at : at+1]
		}
		if err := checkRoles(c, roles); err != nil {
			return &config.Error{Err: err}
		}
		_, err = fmt.Fprintf(p.stdout, "The configuration is valid for %s. Sources: %s.\n", commands(roles), c.Sources())
		return err
	}
	return cmd
}

// checkRoles checks a configuration for each of the roles. A mistake that concerns only some of them names those.
func checkRoles(c *config.Config, roles []config.Role) error {
	var mistakes []string // each once, in the order of being found
	of := map[string][]config.Role{}
	for _, r := range roles {
		err := errors.Join(c.CheckRole(r), app.Check(c, r))
		if err == nil {
			continue
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if of[line] == nil {
				mistakes = append(mistakes, line)
			}
			of[line] = append(of[line], r)
		}
	}
	var errs []error
	for _, m := range mistakes {
		if concerned := of[m]; len(concerned) < len(roles) {
			m += fmt.Sprintf(" (this concerns %s)", commands(concerned))
		}
		errs = append(errs, errors.New(m))
	}
	return errors.Join(errs...)
}

// commands names the commands of roles: `overdue run`, `overdue proxy` and `overdue monitor`.
func commands(roles []config.Role) string {
	var b strings.Builder
	for i, r := range roles {
		switch {
		case i == 0:
		case i == len(roles)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "`overdue %s`", r.Name)
	}
	return b.String()
}
