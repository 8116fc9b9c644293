// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/history"
	"overdue/internal/terminal"
)

func (p *program) minutesCommand() *cobra.Command {
	return newHistoryCommand(p, &historyCommand[history.Point]{
		Command: cobra.Command{
			Use:   "minutes [queue or topic]",
			Short: "Count sends, outcomes and alerts by the minute, the latest first",
			Long: "Asks the Overdue process at listen.admin for its history: how many messages were sent, how many deadlines\n" +
				"were met and missed, and which sinks took alerts. OUTSTANDING is the highest number of the minute of deadlines\n" +
				"that have come and have no verdict yet, because a message is in flight. Minutes in which nothing happened\n" +
				"are left out. The numbers are those of that process alone.",
			Example: "  overdue deadlines minutes --since 1h\n  overdue deadlines minutes orders --json",
		},
		check:    config.CheckEntity,
		path:     history.MinutesPath,
		happened: "Nothing happened",
		recorded: "Nothing is recorded",
		print:    printMinutes,
	})
}

// A minute is a row: an entity or a sink in one minute.
type minute struct {
	at    time.Time
	name  string
	alert bool
	n     map[string]uint64
}

func printMinutes(w io.Writer, points []history.Point) error {
	var rows []*minute
	known := map[string]*minute{}
	for _, pt := range points {
		key := fmt.Sprint(pt.Minute.Unix(), pt.Kind == "alerts", pt.Name)
		if known[key] == nil {
			known[key] = &minute{pt.Minute, pt.Name, pt.Kind == "alerts", map[string]uint64{}}
			rows = append(rows, known[key])
		}
		known[key].n[pt.Kind+pt.Result] += pt.Count
	}
	width := terminal.Width(w)
	number := func(m *minute, names ...string) string {
		var n uint64
		for _, name := range names {
			n += m.n[name]
		}
		return strconv.FormatUint(n, 10)
	}
	entities := terminal.NewTable(width, terminal.Column{Title: "MINUTE"}, terminal.Column{Title: "ENTITY", Min: 12}, terminal.Column{Title: "SENT"},
		terminal.Column{Title: "MET"}, terminal.Column{Title: "MISSED"}, terminal.Column{Title: "UNKNOWN"}, terminal.Column{Title: "OUTSTANDING"})
	sinks := terminal.NewTable(width, terminal.Column{Title: "MINUTE"}, terminal.Column{Title: "SINK", Min: 12}, terminal.Column{Title: "TAKEN"}, terminal.Column{Title: "FAILED"})
	var alerts, others int
	for _, m := range rows {
		at := m.at.UTC().Format("2006-01-02 15:04Z")
		if m.alert {
			alerts++
			sinks.Add(at, m.name, number(m, "alertsok"), number(m, "alertserror"))
			continue
		}
		others++
		entities.Add(at, m.name, number(m, "sendsmonitored", "sendsunmonitored"), number(m, "deadlinesmet"), number(m, "deadlinesmissed"),
			number(m, "deadlinesunknown"), number(m, "outstanding"))
	}
	var b bytes.Buffer
	if others > 0 {
		_ = entities.Flush(&b) // a buffer takes everything
	}
	if alerts > 0 && others > 0 {
		b.WriteByte('\n')
	}
	if alerts > 0 {
		_ = sinks.Flush(&b) // as above
	}
	if len(points) == history.MaxPoints {
		fmt.Fprintf(&b, "These are the latest %d counts; there may be more.\n", history.MaxPoints)
	}
	_, err := b.WriteTo(w)
	return err
}
