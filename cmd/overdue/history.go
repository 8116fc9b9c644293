// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
	"overdue/internal/slack"
	"overdue/internal/terminal"
)

// A historyView is a command below deadlines that reads the history of a process.
type historyView[T any] struct {
	check func(entity string) error
	path  string // of the admin port
	write func(w io.Writer, found []T) error
	// These say that nothing was found, without gaps in the history and with them.
	happened, recorded string
}

// historyCommand adds the flags of a view to its command, and makes it read that.
func historyCommand[T any](p *program, cmd *cobra.Command, v historyView[T]) *cobra.Command {
	var asJSON bool
	var since time.Duration
	cmd.Args = cobra.MaximumNArgs(1)
	durationVar(cmd.Flags(), &since, "since", 24*time.Hour, "how far back to read")
	jsonFlag(cmd, &asJSON)
	check := func(args []string) error {
		if since <= 0 {
			return fmt.Errorf("--since is %s; it must be positive", since)
		}
		if len(args) > 0 && args[0] != "" {
			return v.check(args[0])
		}
		return nil
	}
	return p.configured(cmd, settings("listen.admin"), check, func(ctx context.Context, c *config.Config, args []string) error {
		addr, err := adminAddress(c, "deadlines "+cmd.Name())
		if err != nil {
			return err
		}
		answer, err := history.Fetch[T](ctx, addr, v.path, strings.Join(args, ""), time.Now().Add(-since))
		if err != nil {
			return err
		}
		err = p.print(asJSON, answer.Found, func(w io.Writer, _ int) error {
			if len(answer.Found) > 0 {
				return v.write(w, answer.Found)
			}
			none := v.happened
			if len(answer.Gaps) > 0 {
				none = v.recorded
			}
			_, err := fmt.Fprintf(w, "%s in the last %s.\n", none, shortSpan(since))
			return err
		})
		return errors.Join(err, p.printCoverage(answer.Scope, answer.Gaps, asJSON))
	})
}

func missedCommand(p *program) *cobra.Command {
	return historyCommand(p, &cobra.Command{
		Use:   "missed [queue or topic]",
		Short: "List missed deadlines of the last hours, the latest first",
		Long: "Asks the Overdue process at listen.admin for its history, and lists up to 1,000 missed deadlines. It says for\n" +
			"which spans the history may lack some.",
		Example: "  overdue deadlines missed\n  overdue deadlines missed orders --since 1h --json",
	}, historyView[history.Fetched]{
		check:    config.CheckEntity,
		path:     history.MissedPath,
		write:    printMissed,
		happened: "No deadline was missed",
		recorded: "No missed deadline is recorded",
	})
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

func slackCommand(p *program) *cobra.Command {
	return historyCommand(p, &cobra.Command{
		Use:   "slack [queue, topic or subscription]",
		Short: "Show how much time was left when messages were settled",
		Long: "Asks the Overdue process at listen.admin how much time was left before their deadlines when messages\n" +
			"were settled, and which deadline 99 of 100 would have met. It needs the history there.\n\n" +
			"It counts Complete, DeadLetter and receive-and-delete through the AMQP endpoint of that process. What\n" +
			"consumers settle without passing it is not seen.",
		Example: "  overdue deadlines slack\n  overdue deadlines slack orders --since 1h --json\n  overdue deadlines slack events/Subscriptions/audit",
	}, historyView[slack.Summary]{
		check: func(place string) error {
			_, err := dlq.ParsePlace(place)
			return err
		},
		path:     history.SlackPath,
		write:    writeSlack,
		happened: "No message with a deadline was settled through this process",
		recorded: "No settlement of a message with a deadline is recorded",
	})
}

func writeSlack(w io.Writer, found []slack.Summary) error {
	t := terminal.NewTable(terminal.Width(w), "ENTITY:12", "SETTLED", "LATE", "LEFT, MEDIAN", "LEFT, 99 OF 100", "99 OF 100 WOULD MEET")
	span := func(ms int64) string { return shortSpan(time.Duration(ms) * time.Millisecond) }
	for _, s := range found {
		t.Add(s.Entity, s.Count, s.Late, span(s.LeftP50), span(s.LeftP1), span(s.TakenP99))
	}
	if err := t.Flush(w); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n"+terminal.Wrap("LEFT is the time before the deadline: half of the messages, or 99 of 100, had at least this much when they were settled. "+
		"A deadline as in the last column would be met by 99 of 100. Spans are exact to 7 %.", terminal.Width(w), 0)+"\n")
	return err
}

// shortSpan writes a span with three digits or so, as wide as a column has room for.
func shortSpan(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 2*day:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

func minutesCommand(p *program) *cobra.Command {
	return historyCommand(p, &cobra.Command{
		Use:   "minutes [queue or topic]",
		Short: "Count sends, outcomes and alerts by the minute, the latest first",
		Long: "Asks the Overdue process at listen.admin for its history: how many messages were sent, how many deadlines\n" +
			"were met and missed, and which sinks took alerts. OUTSTANDING is the highest number of the minute of deadlines\n" +
			"that have come and have no verdict yet, because a message is in flight. Minutes in which nothing happened\n" +
			"are left out. The numbers are those of that process alone.",
		Example: "  overdue deadlines minutes --since 1h\n  overdue deadlines minutes orders --json",
	}, historyView[history.Point]{
		check:    config.CheckEntity,
		path:     history.MinutesPath,
		write:    writeMinutes,
		happened: "Nothing happened",
		recorded: "Nothing is recorded",
	})
}

// A minute is a row: an entity or a sink in one minute.
type minute struct {
	at     time.Time
	name   string
	alert  bool
	counts map[string]uint64 // by kind and result
}

func writeMinutes(w io.Writer, points []history.Point) error {
	var rows []*minute
	known := map[string]*minute{}
	for _, pt := range points {
		key := fmt.Sprint(pt.Minute.Unix(), pt.Kind == "alerts", pt.Name)
		if known[key] == nil {
			known[key] = &minute{pt.Minute, pt.Name, pt.Kind == "alerts", map[string]uint64{}}
			rows = append(rows, known[key])
		}
		known[key].counts[pt.Kind+pt.Result] += pt.Count
	}
	width := terminal.Width(w)
	entities := terminal.NewTable(width, "MINUTE", "ENTITY:12", "SENT", "MET", "MISSED", "UNKNOWN", "OUTSTANDING")
	sinks := terminal.NewTable(width, "MINUTE", "SINK:12", "TAKEN", "FAILED")
	for _, m := range rows {
		at, n := m.at.UTC().Format("2006-01-02 15:04Z"), m.counts
		if m.alert {
			sinks.Add(at, m.name, n["alertsok"], n["alertserror"])
			continue
		}
		sent := n["sendsmonitored"] + n["sendsunmonitored"]
		entities.Add(at, m.name, sent, n["deadlinesmet"], n["deadlinesmissed"], n["deadlinesunknown"], n["outstanding"])
	}
	var b, alerts bytes.Buffer
	_ = errors.Join(entities.Flush(&b), sinks.Flush(&alerts)) // a buffer takes everything
	if b.Len() > 0 && alerts.Len() > 0 {
		b.WriteByte('\n')
	}
	b.Write(alerts.Bytes())
	if len(points) == history.MaxPoints {
		fmt.Fprintf(&b, "These are the latest %d counts; there may be more.\n", history.MaxPoints)
	}
	_, err := b.WriteTo(w)
	return err
}
