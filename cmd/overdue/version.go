// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"overdue/internal/version"
)

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go release",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(p.stdout, version.Line())
			return err
		},
	}
}
