// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/operator"
	"overdue/internal/operator/deadlines"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/duration"
	"overdue/monitor/mute"
)

func (p *program) muteCommand() *cobra.Command {
	var asJSON, off bool
	var o deadlines.MuteOptions
	cmd := &cobra.Command{
		Use:   "mute [queue-topic-or-subscription]",
		Short: "Keep alerts of a queue from the sinks for a time, or list mutes",
		Long: "While a queue or topic is muted, no sink gets its events. Its messages are still expired at their deadlines,\n" +
			"and the log and the history of the monitors have the events. Every monitor notices a mute, and its end with\n" +
			"--off, within ten seconds. A mute ends by itself. Without an argument the command lists what is muted.\n\n" +
			"A mute is a note on the monitor queue, or in Redis if it keeps the companions. To change one takes the\n" +
			"rights Send and Listen there.",
		Example: "  overdue mute orders --for 2h --reason 'moving the consumers'\n  overdue mute\n  overdue mute orders --off",
	}
	f := cmd.Flags()
	durationVar(f, &o.For, "for", 0, time.Second, mute.MaxFor, "how long from now on, 1s to 30d")
	textVar(f, &o.Reason, "reason", mute.MaxText, "why, for those who read the list or the log")
	textVar(f, &o.By, "as", mute.MaxText, "who mutes it; by default the user of this machine")
	f.BoolVar(&off, "off", false, "end the mute")
	jsonFlag(cmd, &asJSON)
	check := func(args []string) (err error) {
		isList := len(args) == 0
		switch {
		case isList && (off || o.For > 0 || o.By != "" || o.Reason != ""):
			return errors.New("name the queue, topic or subscription")
		case isList:
			return nil
		case off == (o.For > 0):
			return errors.New("say --for how long, or --off")
		}
		if u, err := user.Current(); o.By == "" && err == nil {
			o.By = u.Username
		}
		o.Place, err = dlq.ParsePlace(args[0])
		return err
	}
	return p.configured(cmd, settings("namespace", "monitorQueue", "broker.listen"), check, func(ctx context.Context, c *config.Config, args []string) error {
		client, err := operator.OpenAny(c) // an endpoint takes no messages for the monitor queue
		if err != nil {
			return err
		}
		defer client.Close(ctx)
		return useSource(client, c, func(source *deadlines.Source) error {
			if len(args) == 0 {
				all, err := deadlines.ListMutes(ctx, source)
				if err != nil {
					return err
				}
				return p.print(asJSON, all, func(w io.Writer, width int) error { return all.WriteText(w, time.Now(), width) })
			}
			set, err := deadlines.SetMute(ctx, source, o)
			if err != nil {
				return err
			}
			return p.print(asJSON, set, func(w io.Writer, _ int) error {
				text := fmt.Sprintf("%s is not muted any more.", set.Entity)
				if !off {
					text = fmt.Sprintf("%s is muted until %s, for %s.", set.Entity, set.Until.Format("2006-01-02 15:04:05Z"), duration.Format(o.For))
				}
				_, err := fmt.Fprintln(w, escape.Text(text))
				return err
			})
		})
	})
}
