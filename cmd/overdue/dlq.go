// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/dlq"
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

// dlqOptions are what the commands about dead letters have in common.
type dlqOptions struct {
	endpoint   string
	filter     dlq.Filter
	due, after string // as typed
	session    string
	properties []string
	limit      int
	json, yes  bool
	dry, all   bool
	rate       float64
	in         io.Reader
}

// filterFlags are those that say which dead letters are meant.
func (o *dlqOptions) filterFlags(cmd *cobra.Command) {
	endpointFlag(cmd, &o.endpoint)
	f := cmd.Flags()
	f.StringVar(&o.filter.Reason, "reason", "", "only those with this reason, such as TTLExpiredException or DeadlineExceeded")
	f.StringVar(&o.filter.Description, "description", "", "only those whose description contains this")
	durationVar(f, &o.filter.OlderThan, "older-than", 0, "only those that were enqueued longer ago")
	durationVar(f, &o.filter.YoungerThan, "younger-than", 0, "only those that were enqueued since")
	f.StringVar(&o.due, "due-before", "", "only those whose deadline was earlier: RFC 3339, or a duration from now such as -1h")
	f.StringVar(&o.after, "due-after", "", "only those whose deadline was, or is, later")
	f.StringArrayVar(&o.filter.MessageIDs, "message-id", nil, "only that message. May be repeated")
	f.Int64SliceVar(&o.filter.Numbers, "number", nil, "only the one with that sequence number. May be repeated")
	f.StringVar(&o.session, "session-id", "", "only those of that session")
	f.StringArrayVar(&o.properties, "property", nil, "only those with this application property, name=value. May be repeated")
	f.IntVar(&o.limit, "limit", 0, "no more than so many, the first in the order of their sequence numbers; 0 = all")
	f.BoolVar(&o.json, "json", false, "print nothing but the result, as JSON")
}

// changeFlags are those of what changes something.
func (o *dlqOptions) changeFlags(cmd *cobra.Command) {
	o.filterFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "all of them: without any filter, --yes wants to be told so")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.BoolVar(&o.dry, "dry-run", false, "say what would be done, and do nothing")
	f.Float64Var(&o.rate, "rate", 100, "messages per second, so that consumers can keep up; 0 = as fast as it goes")
}

// read makes the filter.
func (o *dlqOptions) read(cmd *cobra.Command, now time.Time) (err error) {
	o.in = cmd.InOrStdin()
	for _, at := range []struct {
		flag, text string
		to         *time.Time
	}{{"--due-before", o.due, &o.filter.DueBefore}, {"--due-after", o.after, &o.filter.DueAfter}} {
		if at.text == "" {
			continue
		}
		if *at.to, err = instant(at.text, now); err != nil {
			return fmt.Errorf("%s: %w", at.flag, err)
		}
	}
	if cmd.Flags().Changed("session-id") {
		o.filter.SessionID = &o.session
	}
	for _, text := range o.properties {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return fmt.Errorf("--property is %q; write name=value", config.Clip(text))
		}
		if o.filter.Properties == nil {
			o.filter.Properties = map[string]string{}
		}
		o.filter.Properties[name] = value
	}
	switch {
	case o.limit < 0:
		return fmt.Errorf("--limit is %d; it must be 0 or more", o.limit)
	case o.rate < 0 || o.rate > 1e6:
		return fmt.Errorf("--rate is %g; it must be between 0 and 1000000", o.rate)
	case o.filter.OlderThan < 0 || o.filter.YoungerThan < 0:
		return errors.New("--older-than and --younger-than are durations such as 1h; they must be positive")
	case o.json && !o.yes && !o.dry && cmd.Flags().Lookup("yes") != nil:
		return errors.New("--json leaves no place for a question; give --yes or --dry-run with it")
	case o.yes && !o.all && !o.narrows() && !o.dry:
		return errors.New("--yes without a filter means every dead letter; give --all as well if that is meant")
	}
	return nil
}

// narrows reports whether anything is left out.
func (o *dlqOptions) narrows() bool {
	f := &o.filter
	return o.limit > 0 || f.Reason != "" || f.Description != "" || f.OlderThan > 0 || f.YoungerThan > 0 || !f.DueBefore.IsZero() || !f.DueAfter.IsZero() ||
		len(f.MessageIDs) > 0 || len(f.Numbers) > 0 || f.SessionID != nil || len(f.Properties) > 0
}

// dlqRun prepares one of the commands and runs it.
func (p *program) dlqRun(load func() (*config.Config, error), o *dlqOptions, run func(ctx context.Context, c *config.Config, place dlq.Place) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		place, err := dlq.ParsePlace(args[0])
		if err == nil {
			err = o.read(cmd, time.Now())
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
	var o dlqOptions
	cmd := &cobra.Command{
		Use:   "list queue-or-subscription",
		Short: "List dead letters, and count them by reason",
		Example: "  overdue dlq list orders --reason TTLExpiredException --older-than 1h\n" +
			"  overdue dlq list events/Subscriptions/audit --json",
	}
	load := p.configFlags(cmd, isNamespace)
	o.filterFlags(cmd)
	cmd.RunE = p.dlqRun(load, &o, func(ctx context.Context, c *config.Config, place dlq.Place) error {
		h, err := operator.Connect(ctx, c, o.endpoint)
		if err != nil {
			return err
		}
		defer h.Close()
		list := newDLQList(p.stdout, o.json, place)
		survey, err := survey(ctx, h, place, &o, list.add)
		if err != nil {
			return err
		}
		return list.end(survey)
	})
	return cmd
}

func (p *program) dlqShowCommand() *cobra.Command {
	var o dlqOptions
	cmd := &cobra.Command{
		Use:     "show queue-or-subscription",
		Short:   "Show dead letters whole: stamps, properties, body",
		Example: "  overdue dlq show orders --message-id order-1\n  overdue dlq show orders --number 4711 --json",
	}
	load := p.configFlags(cmd, isNamespace)
	o.filterFlags(cmd)
	cmd.RunE = p.dlqRun(load, &o, func(ctx context.Context, c *config.Config, place dlq.Place) error {
		if !o.narrows() {
			return &config.Error{Err: errors.New("say which: --message-id, --number, or --limit for the first of them")}
		}
		h, err := operator.Connect(ctx, c, o.endpoint)
		if err != nil {
			return err
		}
		defer h.Close()
		shown := newDLQShow(p.stdout, o.json)
		survey, err := survey(ctx, h, place, &o, shown.add)
		if err != nil {
			return err
		}
		if survey.Chosen == 0 {
			return fmt.Errorf("none of the %d dead letters of %s is meant", survey.Looked, place)
		}
		return shown.end()
	})
	return cmd
}

// dlqMost bounds how many dead letters one command means: their numbers are in memory.
const dlqMost = 5_000_000

// dlqSurvey is what there is, and what of it is meant.
type dlqSurvey struct {
	Entity   string         `json:"entity"`
	Looked   int            `json:"lookedAt"`
	Chosen   int            `json:"meant"`
	More     bool           `json:"more,omitempty"` // there may be more than --limit let through
	Reasons  map[string]int `json:"reasons,omitempty"`
	Earliest time.Time      `json:"earliest,omitzero"` // enqueued
	Latest   time.Time      `json:"latest,omitzero"`
	numbers  map[int64]bool
}

// survey walks over the dead letters and shows add those that are meant.
func survey(ctx context.Context, h *operator.Connection, place dlq.Place, o *dlqOptions, add func(*dlq.Letter) error) (*dlqSurvey, error) {
	s := &dlqSurvey{Entity: place.String(), Reasons: map[string]int{}, numbers: map[int64]bool{}}
	now := time.Now()
	var failure error
	most := dlqMost
	if o.limit > 0 {
		most = min(most, o.limit)
	}
	err := dlq.Walk(ctx, h.Links, place, 0, func(l *dlq.Letter) bool {
		s.Looked++
		if !o.filter.Fits(l, now) {
			return true
		}
		if s.Chosen == most {
			s.More = true
			s.Looked--
			return false
		}
		s.Chosen++
		s.numbers[l.Number] = true
		s.Reasons[l.Reason]++
		if s.Earliest.IsZero() || l.EnqueuedTime.Before(s.Earliest) {
			s.Earliest = l.EnqueuedTime
		}
		if l.EnqueuedTime.After(s.Latest) {
			s.Latest = l.EnqueuedTime
		}
		if failure = add(l); failure != nil {
			return false
		}
		return true
	})
	if err == nil && s.Looked == 0 && h.IsTopic(ctx, place) {
		return s, dlq.NoMessages(place)
	}
	return s, errors.Join(failure, dlq.Failure(place, err))
}

// agrees shows what would be done and asks. It is false when nothing is to be done.
func (p *program) agrees(o *dlqOptions, what string, s *dlqSurvey) bool {
	if o.json {
		return !o.dry && s.Chosen > 0
	}
	s.write(p.stdout)
	switch {
	case s.Chosen == 0:
		fmt.Fprintln(p.stdout, "There is nothing to do.") // who reads it may be gone; that is told at the end
		return false
	case o.dry:
		fmt.Fprintf(p.stdout, "Without --dry-run this would %s.\n", what)
		return false
	case o.yes:
		return true
	}
	fmt.Fprintf(p.stdout, "%s%s? [y/N] ", strings.ToUpper(what[:1]), what[1:])
	line, err := bufio.NewReader(io.LimitReader(o.in, 100)).ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(p.stdout)
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		fmt.Fprintln(p.stdout, "Nothing was changed.")
		return false
	}
	return true
}
