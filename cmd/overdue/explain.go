// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator/deadlines"
	"overdue/internal/operator/dlq"
)

func (p *program) explainCommand() *cobra.Command {
	var through string
	var asJSON bool
	var o deadlines.ExplainOptions
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
	endpointFlag(cmd, &through)
	cmd.Flags().Int64Var(&o.Number, "number", 0, "sequence number of the message, in place of its message-id")
	jsonFlag(cmd, &asJSON)
	check := func(args []string) (err error) {
		if o.Place, err = dlq.ParsePlace(args[0]); err != nil {
			return err
		}
		if (o.Number > 0) == (len(args) == 2) {
			return errors.New("name the message by its message-id or by --number")
		}
		o.MessageID = strings.Join(args[1:], "")
		return nil
	}
	return p.configured(cmd, settings("namespace", "monitorQueue", "monitorQueues", "listen.admin"), check, func(ctx context.Context, c *config.Config, _ []string) error {
		if addr, err := adminAddress(c, "explain"); err == nil {
			o.AdminAddress = addr // otherwise the port is not known, and nobody can be asked
		}
		return p.withSource(ctx, c, through, func(source *deadlines.Source) error {
			explanation, err := deadlines.Explain(ctx, source, o)
			if err != nil {
				return err
			}
			return p.print(asJSON, explanation, explanation.WriteText)
		})
	})
}
