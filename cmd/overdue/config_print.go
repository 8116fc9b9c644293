// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
)

func (p *program) configPrintCommand() *cobra.Command {
	var asJSON, given bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Show every setting in force and where it came from, without secrets",
		Long: "Prints what file, environment and flags come to, as a configuration file with the origin of each value behind\n" +
			"it. Secrets are left out, except for their hosts, so you can attach the result to a report. It can be loaded again\n" +
			"only after they have been put back. GET /configz on the admin port shows the same of a running process.",
	}
	load := p.configFlags(cmd, everything)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: settings and origin, as /configz does")
	cmd.Flags().BoolVar(&given, "given", false, "leave out what nobody has set")
	cmd.RunE = func(*cobra.Command, []string) error {
		if asJSON && given {
			return &config.Error{Err: errors.New("--given is for the YAML form; the JSON form names the origin of what was set")}
		}
		c, err := load()
		if err != nil {
			return err
		}
		if asJSON {
			return escape.WriteJSON(p.stdout, c.Redacted())
		}
		text, err := c.YAML(given)
		if err != nil {
			return err
		}
		_, err = p.stdout.Write(text)
		return err
	}
	return cmd
}
