// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/history"
)

// A historyCommand asks the process at listen.admin for some of its history.
type historyCommand[T any] struct {
	cobra.Command
	check              func(entity string) error
	path               string // of the admin port
	happened, recorded string // that none were, in a history without gaps and in one with gaps
	print              func(w io.Writer, found []T) error
}

func (p *program) missedCommand() *cobra.Command {
	return newHistoryCommand(p, &historyCommand[history.Fetched]{
		Command: cobra.Command{
			Use:   "missed [queue or topic]",
			Short: "List missed deadlines of the last hours, the latest first",
			Long: "Asks the Overdue process at listen.admin for its history, and lists up to 1,000 missed deadlines. It says for\n" +
				"which spans the history may lack some.",
			Example: "  overdue deadlines missed\n  overdue deadlines missed orders --since 1h --json",
		},
		check:    config.CheckEntity,
		path:     history.MissedPath,
		happened: "No deadline was missed",
		recorded: "No missed deadline is recorded",
		print:    printMissed,
	})
}

func newHistoryCommand[T any](p *program, c *historyCommand[T]) *cobra.Command {
	var asJSON bool
	var since time.Duration
	load := p.configFlags(&c.Command, isAdminAddress)
	durationVar(c.Flags(), &since, "since", 24*time.Hour, "how far back to read")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	c.Args = cobra.MaximumNArgs(1)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if since <= 0 {
			return &config.Error{Err: fmt.Errorf("--since is %s; it must be positive", since)}
		}
		entity := strings.Join(args, "")
		if entity != "" {
			if err := c.check(entity); err != nil {
				return &config.Error{Err: err}
			}
		}
		settings, err := load()
		if err != nil {
			return err
		}
		addr, err := adminAddress(settings, "deadlines "+c.Name())
		if err != nil {
			return err
		}
		found, err := history.Fetch[T](cmd.Context(), addr, c.path, entity, time.Now().Add(-since))
		switch {
		case err != nil:
			return err
		case asJSON:
			err = escape.WriteJSON(p.stdout, found.Found)
		case len(found.Found) > 0:
			err = c.print(p.stdout, found.Found)
		case len(found.Gaps) > 0:
			_, err = fmt.Fprintf(p.stdout, "%s in the last %s.\n", c.recorded, shortSpan(since))
		default:
			_, err = fmt.Fprintf(p.stdout, "%s in the last %s.\n", c.happened, shortSpan(since))
		}
		return errors.Join(err, p.printCoverage(found.Scope, found.Gaps, asJSON))
	}
	return &c.Command
}

// printCoverage says what an answer lacks: the rest of the fleet although there is a Redis, or
// spans of time. Beside JSON it says so on stderr.
func (p *program) printCoverage(scope string, gaps []history.Gap, asJSON bool) error {
	var b bytes.Buffer
	if scope == history.ScopeAlone {
		b.WriteString("Redis does not answer: this is what the process itself saw.\n")
	}
	if len(gaps) > 0 {
		b.WriteString("The history of this process has gaps (UTC):\n")
	}
	for _, g := range gaps {
		fmt.Fprintf(&b, "  %s\n", escape.Text(g.String()))
	}
	w := p.stdout
	if asJSON {
		w = p.stderr
	}
	_, err := b.WriteTo(w)
	return err
}

func printMissed(w io.Writer, missed []history.Fetched) error {
	for i := range missed {
		d := &missed[i].Data
		_, err := fmt.Fprintf(w, "%s  %s  %s  %s late  %s\n", d.Deadline.UTC().Format("2006-01-02 15:04:05.000Z"),
			escape.Text(d.Path()), escape.Text(d.Name()), d.Lag().Round(time.Millisecond), escape.Text(d.DeadLetterReason))
		if err != nil {
			return err
		}
	}
	if len(missed) == history.MaxShown {
		_, err := fmt.Fprintf(w, "These are the latest %d; there may be more.\n", history.MaxShown)
		return err
	}
	return nil
}
