// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

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

func (p *program) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a configuration file with every key and its description",
		Long: "Prints a configuration file with every key, its description, and its default or an example. Keep what you\n" +
			"need: a key that you leave out has its default.",
		Example: "  overdue config example > overdue.yaml",
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(p.stdout, config.Example())
			return err
		},
	}
}
