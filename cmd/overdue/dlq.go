// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/operator"
	"overdue/internal/operator/audit"
	"overdue/internal/operator/dlq"
	"overdue/internal/operator/messages"
	"overdue/internal/terminal"
)

// dlqCommand is the family of commands about dead letters.
func (p *program) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, show, resubmit and purge dead letters",
		Long: "Works on the dead-letter queue of a queue, or of a subscription (topic/Subscriptions/name). list and show\n" +
			"only peek. resubmit and purge release the dead letters that do not match, and their delivery counts stay.",
	}
	for _, r := range []dlqRun{dlqList(), dlqShow(), dlqResubmit(), dlqPurge()} {
		cmd.AddCommand(r.command(p))
	}
	return cmd
}

// filterFlags defines the flags that filter dead letters, and the endpoint.
func filterFlags(cmd *cobra.Command, o *messages.LettersOptions) {
	endpointFlag(cmd, &o.Endpoint)
	f := pflag.NewFlagSet("filters", pflag.ContinueOnError)
	optionalVar(f, &o.Filter.Reason, "reason", "only those with this reason, such as TTLExpiredException or DeadlineExceeded; \"\" = those without one")
	textVar(f, &o.Filter.Description, "description", anyLength, "only those whose description contains this")
	durationVar(f, &o.Filter.OlderThan, "older-than", 0, time.Millisecond, dlq.Longest, "only those that were enqueued longer ago than this")
	durationVar(f, &o.Filter.YoungerThan, "younger-than", 0, time.Millisecond, dlq.Longest, "only those that were enqueued within this time")
	textVar(f, &o.DueBefore, "due-before", anyLength, "only those whose deadline was earlier: RFC 3339, or a duration from now such as -1h")
	textVar(f, &o.DueAfter, "due-after", anyLength, "only those whose deadline was, or is, later")
	f.StringArrayVar(&o.Filter.MessageIDs, "message-id", nil, "only that message. May be repeated")
	f.Int64SliceVar(&o.Filter.Numbers, "number", nil, "only the one with that sequence number. May be repeated")
	optionalVar(f, &o.Filter.SessionID, "session-id", "only those of that session") // "" is a session as well
	f.StringArrayVar(&o.Properties, "property", nil, "only those with this application property, name=value. May be repeated")
	numberVar(f, &o.Limit, "limit", 0, 0, messages.MaxLetters, "at most this many, in the order of their sequence numbers; 0 = all")
	cmd.Flags().AddFlagSet(f)
	cmd.PreRun = func(*cobra.Command, []string) {
		var given []string
		f.VisitAll(func(flag *pflag.Flag) {
			if flag.Changed {
				given = append(given, flag.Name+" "+cmp.Or(flag.Value.String(), `""`))
			}
		})
		o.Given = strings.Join(given, ", ")
	}
	jsonFlag(cmd, &o.JSON)
}

// optionalVar defines a flag whose text may be empty, which is not the same as none.
func optionalVar(f *pflag.FlagSet, value **string, name, usage string) {
	checkedVar(f, value, name, "", "string", usage, func(text string) (*string, error) { return &text, nil })
}

// changeFlags defines the flags of commands that change something.
func changeFlags(cmd *cobra.Command, o *messages.LettersOptions) {
	filterFlags(cmd, o)
	o.Asks = true
	f := cmd.Flags()
	f.BoolVar(&o.All, "all", false, "all dead letters: --yes without a filter needs it")
	f.BoolVar(&o.Yes, "yes", false, "do not ask")
	f.BoolVar(&o.Dry, "dry-run", false, "say what would be done, and do nothing")
	checkedVar(f, &o.Rate, "rate", "100", "float", "messages per second, so that consumers can keep up; 0 = as fast as possible", within(parseFloat, 0, messages.MaxRate))
	f.StringVar(&o.As, "as", "", "who does this, for the line of the log; by default the user of this machine")
	f.StringVar(&o.Why, "why", "", "why, for the line of the log")
}

// audited has actions write their lines to stderr.
func (p *program) audited(c *config.Config, o *messages.LettersOptions) error {
	log, _, err := app.NewLog(p.stderr, config.Log{Level: "info", Format: c.Log.Format})
	if err != nil {
		return fmt.Errorf("make a log: %w", err)
	}
	o.Audit = func(l audit.Line) { l.Write(log) }
	if u, err := user.Current(); o.As == "" && err == nil {
		o.As = u.Username
	}
	return nil
}

// A dlqRun is one of the commands.
type dlqRun struct {
	cmd     *cobra.Command
	options *messages.LettersOptions
	check   func(dlq.Place) error // of what this command alone has; nil: nothing
	sends   bool
	do      func(ctx context.Context, conn *operator.Connection, place dlq.Place, o *messages.LettersOptions, stdout io.Writer) error
}

// command makes r.cmd that command.
func (r dlqRun) command(p *program) *cobra.Command {
	var place dlq.Place
	check := func(args []string) (err error) {
		r.options.In, r.options.Width = r.cmd.InOrStdin(), terminal.Width(p.stdout)
		if place, err = dlq.ParsePlace(args[0]); err != nil {
			return err
		}
		if err := r.options.Check(time.Now()); err != nil || r.check == nil {
			return err
		}
		return r.check(place)
	}
	wants := settings("namespace")
	if r.sends {
		wants = settings("namespace", "monitorQueue", "monitorQueues")
	}
	return p.configured(r.cmd, wants, check, func(ctx context.Context, c *config.Config, _ []string) error {
		if err := p.audited(c, r.options); err != nil {
			return err
		}
		var conn *operator.Connection
		var err error
		if r.sends {
			conn, err = operator.ConnectSender(ctx, c, r.options.Endpoint, p.stderr)
		} else {
			conn, err = operator.Connect(ctx, c, r.options.Endpoint)
		}
		if err != nil {
			return err
		}
		defer conn.Close()
		return r.do(ctx, conn, place, r.options, p.stdout)
	})
}

func dlqList() dlqRun {
	var o messages.LettersOptions
	cmd := &cobra.Command{
		Use:   "list queue-or-subscription",
		Short: "List dead letters, and count them by reason",
		Example: "  overdue dlq list orders --reason TTLExpiredException --older-than 1h\n" +
			"  overdue dlq list orders --group-by reason\n" +
			"  overdue dlq list events/Subscriptions/audit --json",
	}
	filterFlags(cmd, &o)
	choiceVar(cmd, &o.GroupBy, "group-by", "", []string{"reason"}, "a line for each reason instead of each dead letter")
	return dlqRun{
		cmd:     cmd,
		options: &o,
		do:      messages.List,
	}
}

func dlqShow() dlqRun {
	var o messages.LettersOptions
	cmd := &cobra.Command{
		Use:     "show queue-or-subscription",
		Short:   "Show dead letters whole: stamps, properties, body",
		Example: "  overdue dlq show orders --message-id order-1\n  overdue dlq show orders --number 4711 --json",
	}
	filterFlags(cmd, &o)
	return dlqRun{
		cmd:     cmd,
		options: &o,
		check: func(dlq.Place) error {
			if !o.Narrows() {
				return errors.New("say which: --message-id, --number, or --limit for the first of them")
			}
			return nil
		},
		do: messages.Show,
	}
}

func dlqPurge() dlqRun {
	var o messages.LettersOptions
	cmd := &cobra.Command{
		Use:   "purge queue-or-subscription",
		Short: "Take dead letters off for good",
		Example: "  overdue dlq purge orders --reason TTLExpiredException --older-than 168h\n" +
			"  overdue dlq purge events/Subscriptions/audit --all --yes --rate 0",
	}
	changeFlags(cmd, &o)
	return dlqRun{
		cmd:     cmd,
		options: &o,
		do:      messages.Purge,
	}
}

func dlqResubmit() dlqRun {
	var o messages.ResubmitOptions
	cmd := &cobra.Command{
		Use:   "resubmit queue-or-subscription",
		Short: "Send copies of dead letters back, or elsewhere, and take them off",
		Long: "Sends a copy of each dead letter through an AMQP endpoint and takes the dead letter off once the broker has the\n" +
			"copy. A copy has the body and the properties of its dead letter, byte for byte. It says where it comes from in\n" +
			"overdue-resubmitted-* properties.\n\n" +
			"A copy also has the deadline that its message had, counted anew: its time to live, and the time from the\n" +
			"message's enqueued-time to the deadline that it stated. Both begin when the copy is enqueued, or with --delay\n" +
			"when it becomes available. --within, --ttl and --no-deadline replace all of that.\n\n" +
			"It copies no dead letter twice. A journal on this machine has the copies that were sent, so a resubmission\n" +
			"that was stopped goes on where it was when you start it again. If it was stopped between a send and its\n" +
			"acknowledgement, and no copy is in the target any more, it leaves those dead letters alone and lists them.\n" +
			"--resend sends those of them that match.",
		Example: "  overdue dlq resubmit orders --reason TTLExpiredException --delay 10m\n" +
			"  overdue dlq resubmit events/Subscriptions/audit --to audit-retries --rate 20\n" +
			"  overdue dlq resubmit orders --number 4711 --set kind=tea --body-file new.json\n" +
			"  overdue dlq resubmit orders --message-id order-1 --dry-run",
	}
	changeFlags(cmd, &o.LettersOptions)
	f := cmd.Flags()
	textVar(f, &o.To, "to", anyLength, "queue or topic that gets the copies; by default the queue that they are dead letters of")
	durationVar(f, &o.Copying.Delay, "delay", 0, time.Millisecond, dlq.Longest, "how long until each copy becomes available to consumers")
	durationVar(f, &o.Copying.Within, "within", 0, time.Millisecond, dlq.Longest, "another deadline: each copy is to be received within this time after it is enqueued")
	durationVar(f, &o.Copying.TTL, "ttl", 0, time.Millisecond, dlq.Longest, "another time to live of each copy")
	f.BoolVar(&o.Copying.NoDeadline, "no-deadline", false, "neither the deadline nor the time to live that the message had")
	f.Func("set", "give this application property another value, `name=value`, of the type that it has. May be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("write name=value")
		}
		return o.Copying.Edits.Add(name, &value)
	})
	f.Func("unset", "leave out the application property of that `name`. May be repeated", func(name string) error { return o.Copying.Edits.Add(name, nil) })
	optionalVar(f, &o.Copying.Body, "body", "another body, as text, for one dead letter")
	textVar(f, &o.BodyFile, "body-file", anyLength, "a file that holds another body, - for standard input")
	f.BoolVar(&o.NewIDs, "new-ids", false, "give copies message-ids of their own; done anyway where the target detects duplicates")
	f.BoolVar(&o.KeepIDs, "keep-ids", false, "keep the message-ids, though it is not known whether the target detects duplicates")
	f.BoolVar(&o.Resend, "resend", false, "also send those that match and that a stopped resubmission may have sent")
	textVar(f, &o.Journal, "journal", anyLength, "file with the copies that were sent; by default one for each target in the user's cache folder")
	return dlqRun{
		cmd:     cmd,
		options: &o.LettersOptions,
		check:   o.CheckTarget,
		sends:   true,
		do: func(ctx context.Context, conn *operator.Connection, place dlq.Place, _ *messages.LettersOptions, stdout io.Writer) error {
			return messages.Resubmit(ctx, conn, place, &o, stdout)
		},
	}
}
