// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/history"
	"overdue/internal/operator/dlq"
	"overdue/internal/slack"
	"overdue/internal/terminal"
)

func (p *program) slackCommand() *cobra.Command {
	return newHistoryCommand(p, &historyCommand[slack.Summary]{
		Command: cobra.Command{
			Use:   "slack [queue, topic or subscription]",
			Short: "Show how much time was left when messages were settled",
			Long: "Asks the Overdue process at listen.admin how much time was left before their deadlines when messages\n" +
				"were settled, and which deadline 99 of 100 would have met. It needs the history there.\n\n" +
				"It counts Complete, DeadLetter and receive-and-delete through the AMQP endpoint of that process. What\n" +
				"consumers settle without passing it is not seen.",
			Example: "  overdue deadlines slack\n  overdue deadlines slack orders --since 1h --json\n  overdue deadlines slack events/Subscriptions/audit",
		},
		check: func(place string) error {
			_, err := dlq.ParsePlace(place)
			return err
		},
		path:     history.SlackPath,
		happened: "No message with a deadline was settled through this process",
		recorded: "No settlement of a message with a deadline is recorded",
		print:    printSlack,
	})
}

func printSlack(w io.Writer, found []slack.Summary) error {
	t := terminal.NewTable(terminal.Width(w), terminal.Column{Title: "ENTITY", Min: 12}, terminal.Column{Title: "SETTLED"}, terminal.Column{Title: "LATE"},
		terminal.Column{Title: "LEFT, MEDIAN"}, terminal.Column{Title: "LEFT, 99 OF 100"}, terminal.Column{Title: "99 OF 100 WOULD MEET"})
	span := func(ms int64) string { return shortSpan(time.Duration(ms) * time.Millisecond) }
	for _, s := range found {
		t.Add(s.Entity, strconv.FormatUint(s.Count, 10), strconv.FormatUint(s.Late, 10), span(s.LeftP50), span(s.LeftP1), span(s.TakenP99))
	}
	var b bytes.Buffer
	_ = t.Flush(&b) // a buffer takes everything
	b.WriteString("\n" + terminal.Wrap("LEFT is the time before the deadline: half of the messages, or 99 of 100, had at least this much when they were settled. "+
		"A deadline as in the last column would be met by 99 of 100. Spans are exact to 7 %.", terminal.Width(w), 0) + "\n")
	_, err := b.WriteTo(w)
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
