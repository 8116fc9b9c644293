// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
	"overdue/internal/slack"
	"overdue/internal/terminal"
)

// historyViews are what the command shows. Those that formerViews has, too, were also commands below
// deadlines.
var (
	historyViews = []string{"missed", "unknown", "minutes", "slack", "fleet"}
	formerViews  = []string{"missed", "minutes", "slack"}
)

// A historyQuery is what to show of the history of a process.
type historyQuery struct {
	view   string
	place  string // of the messages; "" = all
	since  time.Duration
	asJSON bool
}

// check refuses a place that the view does not take.
func (q *historyQuery) check() (err error) {
	switch {
	case !slices.Contains(historyViews, q.view):
		return fmt.Errorf("%q is no view of the history; write missed, unknown, minutes, slack or fleet", config.Clip(q.view))
	case q.place == "":
		return nil
	case q.view == "fleet":
		return errors.New("the fleet is the same for all queues; leave the queue or topic out")
	case q.view == "slack":
		_, err = dlq.ParsePlace(q.place)
		return err
	}
	return config.CheckEntity(q.place)
}

// showHistory shows what the process with the admin port addr knows.
func (p *program) showHistory(ctx context.Context, addr string, q historyQuery) error {
	switch q.view {
	case "missed":
		return historyTable[history.Fetched]{history.MissedPath, printMissed, "No deadline was missed", "No missed deadline is recorded"}.show(ctx, p, addr, q)
	case "unknown":
		return historyTable[history.Unknown]{history.UnknownPath, writeUnknown, "No outcome is unknown", "No unknown outcome is recorded"}.show(ctx, p, addr, q)
	case "minutes":
		return historyTable[history.Point]{history.MinutesPath, writeMinutes, "Nothing happened", "Nothing is recorded"}.show(ctx, p, addr, q)
	case "slack":
		return historyTable[slack.Summary]{history.SlackPath, writeSlack, "No message with a deadline was settled through this process",
			"No settlement of a message with a deadline is recorded"}.show(ctx, p, addr, q)
	}
	return p.showFleet(ctx, addr, q.asJSON)
}

// historyCommand shows a view of the history: the one that its first argument names, or, as a
// command of that name, always the same.
func (p *program) historyCommand(always string) *cobra.Command {
	q := historyQuery{view: always}
	cmd := &cobra.Command{
		Use:   "history missed|unknown|minutes|slack|fleet [queue or topic]",
		Short: "Show missed deadlines, counts, slack, or all processes",
		Long: "Asks the Overdue process at listen.admin for its history, and says for which spans that may lack something.\n\n" +
			"missed lists up to 1,000 missed deadlines, the latest first.\n\n" +
			"unknown lists up to 1,000 deadlines of which nobody can tell whether they were met, and why.\n\n" +
			"minutes counts sends, outcomes and alerts by the minute, the latest first. OUTSTANDING is the highest number\n" +
			"of the minute of deadlines that have come and have no verdict yet, because a message is in flight. Minutes in\n" +
			"which nothing happened are left out. The numbers are those of that process alone.\n\n" +
			"slack shows how much time was left before their deadlines when messages were settled, and which deadline 99 of\n" +
			"100 would have met. It takes a subscription, too. It counts Complete, DeadLetter and receive-and-delete\n" +
			"through the AMQP endpoint of that process. What consumers settle without passing it is not seen.\n\n" +
			"fleet shows the processes that share a Redis: whether each is ready and if not why, when it was seen last,\n" +
			"and its outstanding deadlines; then the outcomes since 00:00 UTC, and since they are counted.",
		Example: "  overdue history missed\n  overdue history missed orders --since 1h --json\n  overdue history minutes --since 1h\n" +
			"  overdue history slack events/Subscriptions/audit\n  overdue history fleet",
	}
	if always != "" {
		cmd.Use = always + " [queue or topic]"
	} else {
		cmd.ValidArgs = historyViews
	}
	durationVar(cmd.Flags(), &q.since, "since", 24*time.Hour, time.Millisecond, dlq.Longest, "how far back to read")
	jsonFlag(cmd, &q.asJSON)
	check := func(args []string) error {
		if always == "" {
			q.view, args = args[0], args[1:]
		}
		q.place = strings.Join(args, "")
		return q.check()
	}
	return p.configured(cmd, settings("listen.admin"), check, func(ctx context.Context, c *config.Config, _ []string) error {
		addr, err := adminAddress(c, cmd)
		if err != nil {
			return err
		}
		return p.showHistory(ctx, addr, q)
	})
}

// A historyTable reads a view from the admin port, and prints it.
type historyTable[T any] struct {
	path  string
	write func(w io.Writer, found []T) error
	// These say that nothing was found, without gaps in the history and with them.
	happened, recorded string
}

func (t historyTable[T]) show(ctx context.Context, p *program, addr string, q historyQuery) error {
	answer, err := history.Fetch[T](ctx, addr, t.path, q.place, time.Now().Add(-q.since))
	if err != nil {
		return err
	}
	err = p.print(q.asJSON, answer.Found, func(w io.Writer, _ int) error {
		if len(answer.Found) > 0 {
			return t.write(w, answer.Found)
		}
		none := t.happened
		if len(answer.Gaps) > 0 {
			none = t.recorded
		}
		_, err := fmt.Fprintf(w, "%s in the last %s.\n", none, duration.FormatRounded(q.since))
		return err
	})
	return errors.Join(err, p.printCoverage(answer.Scope, answer.Gaps, q.asJSON))
}

// printCoverage says what an answer lacks: what other processes know, or spans of time. Beside JSON it says so on stderr.
func (p *program) printCoverage(scope string, gaps []history.Gap, asJSON bool) error {
	var b bytes.Buffer
	switch scope {
	case history.ScopeAlone:
		b.WriteString("This process alone: Redis does not answer.\n")
	case history.ScopeProcess:
		b.WriteString("This process alone.\n")
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
		muted := ""
		if d.Muted {
			muted = "  muted"
		}
		_, err := fmt.Fprintf(w, "%s  %s  %s  %s late  %s%s\n", d.Deadline.UTC().Format("2006-01-02 15:04:05.000Z"),
			escape.Text(d.Path()), escape.Text(d.Name()), d.Lag().Round(time.Millisecond), escape.Text(d.DeadLetterReason), muted)
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

func writeUnknown(w io.Writer, found []history.Unknown) error {
	t := terminal.NewTable(terminal.Width(w), "DEADLINE", "ENTITY:12", "MESSAGE:12", "JUDGED", "WHY")
	for _, u := range found {
		name := address.MessageName(u.MessageID, u.SequenceNumber)
		if u.MessageID == "" && u.SequenceNumber == 0 {
			name = "(several)"
		}
		t.Add(u.Deadline.UTC().Format("2006-01-02 15:04:05.000Z"), u.Entity, name, u.Judged.UTC().Format("15:04:05Z"), u.Why)
	}
	return t.Flush(w)
}

// showFleet shows the processes of the fleet, and what they have counted.
func (p *program) showFleet(ctx context.Context, addr string, asJSON bool) error {
	f, err := history.FetchFleet(ctx, addr)
	if err != nil {
		return err
	}
	return p.print(asJSON, f, func(w io.Writer, width int) error {
		now := time.Now()
		t := terminal.NewTable(width, "HOST:12", "ROLE", "VERSION", "SEEN", "UP", "OUTSTANDING", "STATE:20")
		for _, r := range f.Processes {
			state := cmp.Or(r.NotReady, "ready")
			switch {
			case r.Gone && r.NotReady == "":
				state = "gone"
			case r.Gone:
				state = "gone; before that: " + r.NotReady
			}
			t.Add(r.Place(), r.Role, r.Version, duration.FormatRounded(max(0, now.Sub(r.Seen)).Truncate(time.Second))+" ago",
				duration.FormatRounded(r.Seen.Sub(r.Started).Truncate(time.Second)), r.TotalOutstanding(), state)
		}
		var b bytes.Buffer
		err := t.Flush(&b)
		fmt.Fprintf(&b, "\ntoday (UTC)%s\never%s\n", verdictsText(f.Today), verdictsText(f.Ever))
		if f.Since.IsZero() {
			b.WriteString("nothing was counted yet\n")
		} else {
			fmt.Fprintf(&b, "ever begins at %s\n", f.Since.UTC().Format("2006-01-02 15:04:05Z"))
		}
		switch f.Scope {
		case history.ScopeProcess:
			b.WriteString("This process alone: it has no Redis that others share.\n")
		case history.ScopeAlone:
			fmt.Fprintf(&b, "This process alone: Redis does not answer: %s\n", escape.Text(f.Error))
		}
		_, writeErr := b.WriteTo(w)
		return errors.Join(err, writeErr)
	})
}

// verdictsText adds up the outcomes of all entities.
func verdictsText(all history.Verdicts) string {
	sums := map[string]uint64{}
	for _, byVerdict := range all {
		for verdict, n := range byVerdict {
			sums[verdict] += n
		}
	}
	text := ""
	for _, verdict := range []string{"met", "missed", "incomplete", "unknown"} {
		text += fmt.Sprintf("  %s %d", verdict, sums[verdict])
	}
	return text
}

func writeSlack(w io.Writer, found []slack.Summary) error {
	t := terminal.NewTable(terminal.Width(w), "ENTITY:12", "SETTLED", "LATE", "LEFT, MEDIAN", "LEFT, 99 OF 100", "99 OF 100 WOULD MEET")
	span := func(ms int64) string { return duration.FormatRounded(time.Duration(ms) * time.Millisecond) }
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
