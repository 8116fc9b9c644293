// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator/deadlines"
	"overdue/internal/operator/dlq"
	"overdue/internal/terminal"
)

func (p *program) explainCommand() *cobra.Command {
	var through string
	var number int64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain queue-or-subscription [message-id]",
		Short: "Show the history of a message: sent, due, dead-lettered, notified",
		Long: "Searches the queue and the dead-letter queue for the message, and for its companions, including those that\n" +
			"failed. It prints what they say in order of time.\n\n" +
			"A completed message leaves no trace in the broker. How late it was and which sinks were notified comes\n" +
			"from the Overdue process at listen.admin: its last 2,000 events, and its history, which survives a restart.\n\n" +
			"The command only peeks: it takes no locks and disturbs no consumer.",
		Example: "  overdue explain orders order-1\n  overdue explain orders --number 4711\n  overdue explain events/Subscriptions/audit order-1 --json",
	}
	load := p.configFlags(cmd, func(path string) bool {
		return path == "namespace" || isMonitorQueueSetting(path) || isAdminAddress(path)
	})
	endpointFlag(cmd, &through)
	cmd.Flags().Int64Var(&number, "number", 0, "sequence number of the message, in place of its message-id")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		place, err := dlq.ParsePlace(args[0])
		if err != nil {
			return &config.Error{Err: err}
		}
		if (number > 0) == (len(args) == 2) {
			return &config.Error{Err: errors.New("name the message by its message-id or by --number")}
		}
		c, err := load()
		if err != nil {
			return err
		}
		o := deadlines.ExplainOptions{Place: place, Number: number}
		if len(args) == 2 {
			o.MessageID = args[1]
		}
		if addr, err := adminAddress(c, "explain"); err == nil {
			o.AdminAddress = addr // otherwise the port is not known, and nobody can be asked
		}
		return p.withSource(cmd.Context(), c, through, func(ctx context.Context, source *deadlines.Source) error {
			explanation, err := deadlines.Explain(ctx, source, o)
			switch {
			case err != nil:
				return err
			case asJSON:
				return escape.WriteJSON(p.stdout, explanation)
			}
			return explanation.WriteText(p.stdout, terminal.Width(p.stdout))
		})
	}
	return cmd
}
