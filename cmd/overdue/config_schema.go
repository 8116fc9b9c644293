// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
)

func (p *program) configSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the configuration file, for editors",
		Long: "Prints the JSON schema (2020-12) of the configuration file. Editors with a YAML language server take it from\n" +
			"the first line of the file:\n\n" +
			"  # yaml-language-server: $schema=overdue.schema.json",
		Example: "  overdue config schema > overdue.schema.json",
		RunE:    func(*cobra.Command, []string) error { return escape.WriteJSON(p.stdout, config.Schema()) },
	}
}
