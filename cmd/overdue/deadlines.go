// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/deadlines"
	"overdue/internal/operator/dlq"
)

func (p *program) deadlinesCommand() *cobra.Command {
	var through string
	var asJSON bool
	var o deadlines.ListOptions
	cmd := &cobra.Command{
		Use:   "deadlines [queue or topic]",
		Short: "Show pending deadlines, the next ones first",
		Long: "Reads the companions on the monitor queue, or in Redis if it keeps them, and shows for each queue and\n" +
			"topic how many deadlines are pending and when the next one is due. With a queue or topic it lists\n" +
			"the next deadlines there. The companion of a slot names no messages, so slots are counted instead. With\n" +
			"a Redis it also shows what all monitors together have in progress and saw missed.\n\n" +
			"The command only peeks: it takes no locks and disturbs no consumer.",
		Example: "  overdue deadlines\n  overdue deadlines orders --limit 20",
	}
	endpointFlag(cmd, &through)
	numberVar(cmd.Flags(), &o.Limit, "limit", 50, 1, 100_000, "with a queue or topic: how many of the next deadlines to list")
	jsonFlag(cmd, &asJSON)
	for _, view := range formerViews {
		addHidden(cmd, p.historyCommand(view))
	}
	check := func(args []string) error {
		if len(args) == 0 {
			return nil
		}
		o.Entity = args[0]
		return config.CheckEntity(o.Entity)
	}
	return p.configured(cmd, settings("namespace", "monitorQueue", "monitorQueues"), check, func(ctx context.Context, c *config.Config, _ []string) error {
		return withSource(ctx, c, through, func(source *deadlines.Source) error {
			listing, err := deadlines.List(ctx, source, o)
			if err != nil {
				return err
			}
			return p.print(asJSON, listing, func(w io.Writer, width int) error { return listing.WriteText(w, time.Now(), width) })
		})
	})
}

// withSource connects to the namespace of the configuration, or through an endpoint, for f.
func withSource(ctx context.Context, c *config.Config, through string, f func(*deadlines.Source) error) error {
	conn, err := operator.Connect(ctx, c, through)
	if err != nil {
		return err
	}
	defer conn.Close()
	return useSource(conn.Client, c, f)
}

// useSource calls f with what a client reads.
func useSource(client *operator.Client, c *config.Config, f func(*deadlines.Source) error) (err error) {
	source := &deadlines.Source{
		Links:             client.Links,
		MonitorQueue:      c.MonitorQueue,
		MonitorQueues:     int(c.MonitorQueues),
		CompanionsInRedis: c.CompanionsInRedis(),
		Describe:          client.Read,
		Names:             client.Names,
	}
	if c.Redis != "" {
		if source.Redis, err = client.OpenRedis(); err != nil {
			return err
		}
		defer func() { _ = source.Redis.Close() }() // what was written is acknowledged
	}
	return f(source)
}

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
		if (o.Number != 0) == (len(args) == 2) || o.Number < 0 {
			return errors.New("name the message by its message-id or by --number, which is above 0")
		}
		o.MessageID = strings.Join(args[1:], "")
		return nil
	}
	return p.configured(cmd, settings("namespace", "monitorQueue", "monitorQueues", "listen.admin"), check, func(ctx context.Context, c *config.Config, _ []string) error {
		if addr, err := adminAddress(c, cmd); err == nil {
			o.AdminAddress = addr // otherwise the port is not known, and nobody can be asked
		}
		return withSource(ctx, c, through, func(source *deadlines.Source) error {
			explanation, err := deadlines.Explain(ctx, source, o)
			if err != nil {
				return err
			}
			return p.print(asJSON, explanation, explanation.WriteText)
		})
	})
}
