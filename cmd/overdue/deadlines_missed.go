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

func (p *program) missedCommand() *cobra.Command {
	var asJSON bool
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "missed [queue or topic]",
		Short: "List missed deadlines of the last hours, the latest first",
		Long: "Asks the Overdue process at listen.admin for its history, and lists up to 1,000 missed deadlines. It says for\n" +
			"which spans the history may lack some.",
		Example: "  overdue deadlines missed\n  overdue deadlines missed orders --since 1h --json",
		Args:    cobra.MaximumNArgs(1),
	}
	ask := p.historyFlags(cmd, "missed", &since, &asJSON, config.CheckEntity)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		addr, entity, err := ask(args)
		if err != nil {
			return err
		}
		missed, err := history.FetchMissed(cmd.Context(), addr, entity, time.Now().Add(-since))
		switch {
		case err != nil:
			return err
		case asJSON:
			err = escape.WriteJSON(p.stdout, missed.Found)
		case len(missed.Found) == 0:
			err = printNone(p.stdout, missed.Gaps, "No deadline was missed", "No missed deadline is recorded", since)
		default:
			err = printMissed(p.stdout, missed.Found)
		}
		return errors.Join(err, p.printCoverage(missed.Scope, missed.Gaps, asJSON))
	}
	return cmd
}

// historyFlags adds the flags of a command that reads the history. ask checks them and returns which
// process to ask, and for which entity.
func (p *program) historyFlags(cmd *cobra.Command, name string, since *time.Duration, asJSON *bool, check func(entity string) error) (ask func(args []string) (addr, entity string, err error)) {
	load := p.configFlags(cmd, isAdminAddress)
	durationVar(cmd.Flags(), since, "since", 24*time.Hour, "how far back to read")
	cmd.Flags().BoolVar(asJSON, "json", false, "print the result as JSON")
	return func(args []string) (addr, entity string, err error) {
		if *since <= 0 {
			return "", "", &config.Error{Err: fmt.Errorf("--since is %s; it must be positive", *since)}
		}
		if entity = strings.Join(args, ""); entity != "" {
			if err := check(entity); err != nil {
				return "", "", &config.Error{Err: err}
			}
		}
		c, err := load()
		if err != nil {
			return "", "", err
		}
		addr, err = adminAddress(c, "deadlines "+name)
		return addr, entity, err
	}
}

// printNone says that nothing happened, or else that nothing is recorded in a history with gaps.
func printNone(w io.Writer, gaps []history.Gap, happened, recorded string, since time.Duration) error {
	if len(gaps) > 0 {
		happened = recorded
	}
	_, err := fmt.Fprintf(w, "%s in the last %s.\n", happened, shortSpan(since))
	return err
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
