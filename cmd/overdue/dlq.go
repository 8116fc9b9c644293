// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator/dlq"
	"overdue/internal/operator/messages"
	"overdue/internal/terminal"
)

// dlqCommand is the family of commands about dead letters.
func (p *program) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, show, resubmit and purge dead letters",
		Long: "Goes through the dead-letter queue of a queue, or of a subscription (topic/Subscriptions/name). Looking disturbs\n" +
			"nothing. What resubmit and purge do not mean is given back as if it had never been taken.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.dlqListCommand(), p.dlqShowCommand(), p.dlqResubmitCommand(), p.dlqPurgeCommand())
	return cmd
}

// filterFlags are those that say which dead letters are meant.
func filterFlags(cmd *cobra.Command, o *messages.LettersOptions) {
	endpointFlag(cmd, &o.Endpoint)
	f := cmd.Flags()
	f.StringVar(&o.Filter.Reason, "reason", "", "only those with this reason, such as TTLExpiredException or DeadlineExceeded")
	f.StringVar(&o.Filter.Description, "description", "", "only those whose description contains this")
	durationVar(f, &o.Filter.OlderThan, "older-than", 0, "only those that were enqueued longer ago")
	durationVar(f, &o.Filter.YoungerThan, "younger-than", 0, "only those that were enqueued since")
	f.StringVar(&o.Due, "due-before", "", "only those whose deadline was earlier: RFC 3339, or a duration from now such as -1h")
	f.StringVar(&o.After, "due-after", "", "only those whose deadline was, or is, later")
	f.StringArrayVar(&o.Filter.MessageIDs, "message-id", nil, "only that message. May be repeated")
	f.Int64SliceVar(&o.Filter.Numbers, "number", nil, "only the one with that sequence number. May be repeated")
	f.StringVar(&o.Session, "session-id", "", "only those of that session")
	f.StringArrayVar(&o.Properties, "property", nil, "only those with this application property, name=value. May be repeated")
	f.IntVar(&o.Limit, "limit", 0, "no more than so many, the first in the order of their sequence numbers; 0 = all")
	f.BoolVar(&o.JSON, "json", false, "print nothing but the result, as JSON")
}

// changeFlags are those of what changes something.
func changeFlags(cmd *cobra.Command, o *messages.LettersOptions) {
	filterFlags(cmd, o)
	f := cmd.Flags()
	f.BoolVar(&o.All, "all", false, "all of them: without any filter, --yes wants to be told so")
	f.BoolVar(&o.Yes, "yes", false, "do not ask")
	f.BoolVar(&o.Dry, "dry-run", false, "say what would be done, and do nothing")
	f.Float64Var(&o.Rate, "rate", 100, "messages per second, so that consumers can keep up; 0 = as fast as it goes")
}

// readFilter makes the filter of the flags.
func readFilter(cmd *cobra.Command, o *messages.LettersOptions, now time.Time) (err error) {
	o.In, o.Width = cmd.InOrStdin(), terminal.Width(cmd.OutOrStdout())
	for _, at := range []struct {
		flag, text string
		to         *time.Time
	}{{"--due-before", o.Due, &o.Filter.DueBefore}, {"--due-after", o.After, &o.Filter.DueAfter}} {
		if at.text == "" {
			continue
		}
		if *at.to, err = messages.Instant(at.text, now); err != nil {
			return fmt.Errorf("%s: %w", at.flag, err)
		}
	}
	if cmd.Flags().Changed("session-id") {
		o.Filter.SessionID = &o.Session
	}
	for _, text := range o.Properties {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return fmt.Errorf("--property is %q; write name=value", config.Clip(text))
		}
		if o.Filter.Properties == nil {
			o.Filter.Properties = map[string]string{}
		}
		o.Filter.Properties[name] = value
	}
	switch {
	case o.Limit < 0:
		return fmt.Errorf("--limit is %d; it must be 0 or more", o.Limit)
	case o.Rate < 0 || o.Rate > 1e6:
		return fmt.Errorf("--rate is %g; it must be between 0 and 1000000", o.Rate)
	case o.Filter.OlderThan < 0 || o.Filter.YoungerThan < 0:
		return errors.New("--older-than and --younger-than are durations such as 1h; they must be positive")
	case o.JSON && !o.Yes && !o.Dry && cmd.Flags().Lookup("yes") != nil:
		return errors.New("--json leaves no place for a question; give --yes or --dry-run with it")
	case o.Yes && !o.All && !o.Narrows() && !o.Dry:
		return errors.New("--yes without a filter means every dead letter; give --all as well if that is meant")
	}
	return nil
}

// dlqRun prepares one of the commands and runs it.
func (p *program) dlqRun(load func() (*config.Config, error), o *messages.LettersOptions, run func(ctx context.Context, c *config.Config, place dlq.Place) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		place, err := dlq.ParsePlace(args[0])
		if err == nil {
			err = readFilter(cmd, o, time.Now())
		}
		if err != nil {
			return &config.Error{Err: err}
		}
		c, err := load()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, place)
	}
}

func isNamespace(path string) bool { return path == "namespace" }

func (p *program) dlqListCommand() *cobra.Command {
	var o messages.LettersOptions
	cmd := &cobra.Command{
		Use:   "list queue-or-subscription",
		Short: "List dead letters, and count them by reason",
		Example: "  overdue dlq list orders --reason TTLExpiredException --older-than 1h\n" +
			"  overdue dlq list events/Subscriptions/audit --json",
	}
	load := p.configFlags(cmd, isNamespace)
	filterFlags(cmd, &o)
	cmd.RunE = p.dlqRun(load, &o, func(ctx context.Context, c *config.Config, place dlq.Place) error {
		return messages.List(ctx, c, place, &o, p.stdout)
	})
	return cmd
}

func (p *program) dlqShowCommand() *cobra.Command {
	var o messages.LettersOptions
	cmd := &cobra.Command{
		Use:     "show queue-or-subscription",
		Short:   "Show dead letters whole: stamps, properties, body",
		Example: "  overdue dlq show orders --message-id order-1\n  overdue dlq show orders --number 4711 --json",
	}
	load := p.configFlags(cmd, isNamespace)
	filterFlags(cmd, &o)
	cmd.RunE = p.dlqRun(load, &o, func(ctx context.Context, c *config.Config, place dlq.Place) error {
		if !o.Narrows() {
			return &config.Error{Err: errors.New("say which: --message-id, --number, or --limit for the first of them")}
		}
		return messages.Show(ctx, c, place, &o, p.stdout)
	})
	return cmd
}
