// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/history"
)

func (p *program) missedCommand() *cobra.Command {
	var asJSON bool
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "missed [queue or topic]",
		Short: "List missed deadlines of the last hours, the latest first",
		Long: "Asks the Overdue process at listen.admin for its history, which needs history.directory there. It\n" +
			"lists up to 1,000 missed deadlines. The last few seconds may be missing.",
		Example: "  overdue deadlines missed\n  overdue deadlines missed orders --since 1h --json",
		Args:    cobra.MaximumNArgs(1),
	}
	load := p.configFlags(cmd, isAdminAddress)
	durationVar(cmd.Flags(), &since, "since", 24*time.Hour, "how far back to list deadlines")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if since <= 0 {
			return &config.Error{Err: fmt.Errorf("--since is %s; it must be positive", since)}
		}
		entity := strings.Join(args, "")
		if entity != "" {
			if err := config.CheckEntity(entity); err != nil {
				return &config.Error{Err: err}
			}
		}
		c, err := load()
		if err != nil {
			return err
		}
		addr, err := adminAddress(c, "deadlines missed")
		if err != nil {
			return err
		}
		missed, err := history.Fetch(cmd.Context(), addr, entity, time.Now().Add(-since))
		switch {
		case err != nil:
			return err
		case asJSON:
			return escape.WriteJSON(p.stdout, missed)
		case len(missed) == 0:
			_, err = fmt.Fprintf(p.stdout, "No deadline was missed in the last %s.\n", since)
			return err
		}
		return p.printMissed(missed)
	}
	return cmd
}

func (p *program) printMissed(missed []history.Fetched) error {
	for i := range missed {
		d := &missed[i].Data
		name := d.Entity
		if d.Subscription != "" {
			name += "/" + d.Subscription
		}
		_, err := fmt.Fprintf(p.stdout, "%s  %s  %s  %s late  %s\n", d.Deadline.UTC().Format("2006-01-02 15:04:05.000Z"),
			escape.Text(name), escape.Text(d.MessageID), d.Lag().Round(time.Millisecond), escape.Text(d.DeadLetterReason))
		if err != nil {
			return err
		}
	}
	if len(missed) == history.MaxShown {
		_, err := fmt.Fprintf(p.stdout, "These are the latest %d; there may be more.\n", history.MaxShown)
		return err
	}
	return nil
}
