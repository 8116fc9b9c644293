// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/demo"
)

// demoCommand prints the result on stdout, as a table or as JSON, and fails when the
// watched half did not do its job.
func (p *program) demoCommand() *cobra.Command {
	var asJSON bool
	var n int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show lazy and eager expiry side by side, on an embedded broker",
		Long: "Starts an embedded broker and Overdue in this process, on free ports of loopback, sends the\n" +
			"same messages to a watched and an unwatched queue that nobody receives from, and shows\n" +
			"when they reach the dead-letter queue. Takes about ten seconds and leaves nothing behind.",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print nothing but the result, as JSON")
	cmd.Flags().IntVar(&n, "messages", 300, "messages per queue, 1 to 5000")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if n < 1 || n > 5000 {
			return &config.Error{Err: fmt.Errorf("--messages is %d; it must be between 1 and 5000", n)}
		}
		screen := demo.NewScreen(p.stdout, p.getenv)
		if asJSON {
			screen = demo.NoScreen{}
		}
		result, err := demo.Run(cmd.Context(), n, screen, p.stderr)
		if err != nil {
			return err
		}
		if asJSON {
			err = result.WriteJSON(p.stdout)
		} else {
			err = result.WriteTable(p.stdout)
		}
		return errors.Join(err, result.Verdict())
	}
	return cmd
}
