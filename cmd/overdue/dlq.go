// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/operator"
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
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.dlqListCommand(), p.dlqShowCommand(), p.dlqResubmitCommand(), p.dlqPurgeCommand())
	return cmd
}

// filterFlags defines the flags that filter dead letters, and the endpoint.
func filterFlags(cmd *cobra.Command, o *messages.LettersOptions) (endpoint *string) {
	endpoint = new(string)
	endpointFlag(cmd, endpoint)
	f := cmd.Flags()
	f.StringVar(&o.Filter.Reason, "reason", "", "only those with this reason, such as TTLExpiredException or DeadlineExceeded")
	f.StringVar(&o.Filter.Description, "description", "", "only those whose description contains this")
	durationVar(f, &o.Filter.OlderThan, "older-than", 0, "only those that were enqueued longer ago than this")
	durationVar(f, &o.Filter.YoungerThan, "younger-than", 0, "only those that were enqueued within this time")
	f.StringVar(&o.DueBefore, "due-before", "", "only those whose deadline was earlier: RFC 3339, or a duration from now such as -1h")
	f.StringVar(&o.DueAfter, "due-after", "", "only those whose deadline was, or is, later")
	f.StringArrayVar(&o.Filter.MessageIDs, "message-id", nil, "only that message. May be repeated")
	f.Int64SliceVar(&o.Filter.Numbers, "number", nil, "only the one with that sequence number. May be repeated")
	f.Func("session-id", "only those of that `session`", func(id string) error {
		o.Filter.SessionID = &id // "" is a session as well
		return nil
	})
	f.StringArrayVar(&o.Properties, "property", nil, "only those with this application property, name=value. May be repeated")
	f.IntVar(&o.Limit, "limit", 0, "at most this many, in the order of their sequence numbers; 0 = all")
	f.BoolVar(&o.JSON, "json", false, "print the result as JSON")
	return endpoint
}

// changeFlags defines the flags of commands that change something.
func changeFlags(cmd *cobra.Command, o *messages.LettersOptions) (endpoint *string) {
	endpoint = filterFlags(cmd, o)
	o.Asks = true
	f := cmd.Flags()
	f.BoolVar(&o.All, "all", false, "all dead letters: --yes without a filter needs it")
	f.BoolVar(&o.Yes, "yes", false, "do not ask")
	f.BoolVar(&o.Dry, "dry-run", false, "say what would be done, and do nothing")
	f.Float64Var(&o.Rate, "rate", 100, "messages per second, so that consumers can keep up; 0 = as fast as possible")
	return endpoint
}

// A dlqRun is one of the commands, once its flags have been read.
type dlqRun struct {
	options  *messages.LettersOptions
	endpoint *string
	check    func(dlq.Place) error // of what this command alone has; nil: nothing
	sends    bool
	do       func(ctx context.Context, conn *operator.Connection, place dlq.Place) error
}

// run returns what cobra runs.
func (r dlqRun) run(p *program, load func() (*config.Config, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		r.options.In, r.options.Width = cmd.InOrStdin(), terminal.Width(p.stdout)
		place, err := dlq.ParsePlace(args[0])
		if err == nil {
			err = r.options.Check(time.Now())
		}
		if err == nil && r.check != nil {
			err = r.check(place)
		}
		if err != nil {
			return &config.Error{Err: err}
		}
		c, err := load()
		if err != nil {
			return err
		}
		conn, err := p.connect(cmd.Context(), c, *r.endpoint, r.sends)
		if err != nil {
			return err
		}
		defer conn.Close()
		return r.do(cmd.Context(), conn, place)
	}
}

// connect connects to the namespace of the configuration, or through an endpoint.
func (p *program) connect(ctx context.Context, c *config.Config, endpoint string, sends bool) (*operator.Connection, error) {
	if sends {
		return operator.ConnectSender(ctx, c, endpoint, p.stderr)
	}
	return operator.Connect(ctx, c, endpoint)
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
	r := dlqRun{options: &o, endpoint: filterFlags(cmd, &o)}
	r.do = func(ctx context.Context, conn *operator.Connection, place dlq.Place) error {
		return messages.List(ctx, conn, place, &o, p.stdout)
	}
	cmd.RunE = r.run(p, load)
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
	r := dlqRun{options: &o, endpoint: filterFlags(cmd, &o)}
	r.check = func(dlq.Place) error {
		if !o.Narrows() {
			return errors.New("say which: --message-id, --number, or --limit for the first of them")
		}
		return nil
	}
	r.do = func(ctx context.Context, conn *operator.Connection, place dlq.Place) error {
		return messages.Show(ctx, conn, place, &o, p.stdout)
	}
	cmd.RunE = r.run(p, load)
	return cmd
}
