// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator/deadlines"
	"overdue/internal/terminal"
)

const maxDeadlinesLimit = 100_000

func (p *program) deadlinesCommand() *cobra.Command {
	var through string
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "deadlines [queue or topic]",
		Short: "Show outstanding deadlines, the next ones first",
		Long: "Reads the companions on the monitor queue, or in Redis if it keeps them, and shows for each queue and\n" +
			"topic how many deadlines are outstanding and when the next one is due. With a queue or topic it lists\n" +
			"the next deadlines there. The companion of a slot names no messages, so slots are counted instead. With\n" +
			"a Redis it also shows what all monitors together have in progress and saw missed.\n\n" +
			"The command only peeks: it takes no locks and disturbs no consumer.",
		Example: "  overdue deadlines\n  overdue deadlines orders --limit 20",
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" || isMonitorQueueSetting(path) })
	endpointFlag(cmd, &through)
	cmd.Flags().IntVar(&limit, "limit", 50, "with a queue or topic: how many of the next deadlines to list, 1 to 100000")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := deadlines.ListOptions{Limit: limit}
		if len(args) > 0 {
			o.Entity = args[0]
			if err := config.CheckEntity(o.Entity); err != nil {
				return &config.Error{Err: err}
			}
		}
		if limit < 1 || limit > maxDeadlinesLimit {
			return &config.Error{Err: fmt.Errorf("--limit is %d; it must be between 1 and %d", limit, maxDeadlinesLimit)}
		}
		c, err := load()
		if err != nil {
			return err
		}
		return p.withSource(cmd.Context(), c, through, func(ctx context.Context, source *deadlines.Source) error {
			listing, err := deadlines.List(ctx, source, o)
			switch {
			case err != nil:
				return err
			case asJSON:
				return escape.WriteJSON(p.stdout, listing)
			}
			return listing.WriteText(p.stdout, time.Now(), terminal.Width(p.stdout))
		})
	}
	cmd.AddCommand(p.missedCommand(), p.slackCommand(), p.minutesCommand())
	return cmd
}

// withSource connects to the namespace of the configuration, or through an endpoint, for f.
func (p *program) withSource(ctx context.Context, c *config.Config, through string, f func(context.Context, *deadlines.Source) error) error {
	conn, err := p.connect(ctx, c, through, false)
	if err != nil {
		return err
	}
	defer conn.Close()
	source := &deadlines.Source{Links: conn.Links, MonitorQueue: c.MonitorQueue, MonitorQueues: int(c.MonitorQueues), CompanionsInRedis: c.CompanionsInRedis(), Describe: conn.Read, Names: conn.Names}
	if c.Redis != "" {
		if source.Redis, err = conn.OpenRedis(); err != nil {
			return err
		}
		defer func() { _ = source.Redis.Close() }() // it was only read
	}
	return f(ctx, source)
}

// isMonitorQueueSetting reports whether the setting says where the companions are.
func isMonitorQueueSetting(path string) bool {
	return path == "monitorQueue" || path == "monitorQueues"
}
