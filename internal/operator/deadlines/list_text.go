// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"overdue/internal/escape"
	"overdue/internal/plural"
	"overdue/internal/terminal"
)

// timeFormat has the precision of the broker's stamps.
const timeFormat = "2006-01-02T15:04:05.000Z"

const (
	// stuckAfter is how long a companion may be due before the listing asks why.
	stuckAfter = time.Minute

	// minName is how many columns of a name or an id a terminal shows at least.
	minName = 12
)

// WriteText writes the listing for people. width is that of the terminal, 0 without one: lines are
// not cut then.
func (r *Listing) WriteText(w io.Writer, now time.Time, width int) error {
	var b bytes.Buffer
	r.writeTables(&b, now, width)
	r.Fleet.write(&b, width)
	r.writeRemarks(&b, now, width)
	_, err := b.WriteTo(w)
	return err
}

func (r *Listing) writeTables(b *bytes.Buffer, now time.Time, width int) {
	if len(r.Entities) == 0 {
		fmt.Fprintf(b, "No deadlines are outstanding in %s.\n", escape.Text(r.MonitorQueue))
		return
	}
	t := newTable(width, "ENTITY", "DEADLINES", "SLOTS", "DUE", "NEXT DUE", "LAST DUE")
	for _, e := range r.Entities {
		t.Add(e.Entity, strconv.Itoa(e.Deadlines), strconv.Itoa(e.Slots), strconv.Itoa(e.Due), until(e.Next, now), until(e.Last, now))
	}
	_ = t.Flush(b) // a buffer takes everything
	if len(r.Upcoming) == 0 {
		return
	}
	b.WriteByte('\n')
	t = newTable(width, "DEADLINE", "IN", "MESSAGE-ID", "SESSION", "STATED")
	for i := range r.Upcoming {
		d := &r.Upcoming[i]
		in := until(d.Deadline, now)
		if d.Missed {
			in = "missed"
		}
		t.Add(d.Deadline.UTC().Format(timeFormat), in, d.Name(), d.SessionID, d.Stated)
	}
	_ = t.Flush(b) // as above
}

// writeRemarks writes what the tables leave out.
func (r *Listing) writeRemarks(b *bytes.Buffer, now time.Time, width int) {
	remark := func(format string, args ...any) {
		fmt.Fprintln(b, terminal.Wrap(fmt.Sprintf(format, args...), width, 0))
	}
	if r.Unreadable > 0 {
		remark("%s to the dead-letter queue of %s.", plural.Of(r.Unreadable, "companion cannot be read. The monitor moves it", "companions cannot be read. The monitor moves them"), escape.Text(r.MonitorQueue))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Failed)) {
		remark("%s failed: %s.", plural.Of(r.Failed[reason], "companion", "companions"), escape.Text(reason))
	}
	if r.More {
		remark("There are more companions: only the first %d were read.", maxMessages)
	}
	for _, e := range r.Entities {
		if e.Due > 0 && now.Sub(e.Next) > stuckAfter {
			remark("%s has companions that have been due for more than a minute: consumers hold the messages, or no monitor is running.", escape.Text(e.Entity))
		}
	}
}

// write writes what the monitors reported, if there is a Redis.
func (f *Fleet) write(b *bytes.Buffer, width int) {
	if f == nil {
		return
	}
	b.WriteByte('\n')
	switch {
	case f.Error != "":
		fmt.Fprintln(b, terminal.Wrap(fmt.Sprintf("The totals of all monitors are unknown: %s.", escape.Text(f.Error)), width, 0))
		return
	case f.Monitors == 0:
		fmt.Fprintln(b, "No monitor has reported to Redis lately.")
	case f.Monitors == 1:
		fmt.Fprintln(b, "One monitor reported to Redis:")
	default:
		fmt.Fprintf(b, "%d monitors reported to Redis. Their totals:\n", f.Monitors)
	}
	if len(f.Entities) == 0 {
		return
	}
	t := newTable(width, "ENTITY", "IN PROGRESS", "MISSED")
	for _, e := range f.Entities {
		t.Add(e.Entity, strconv.FormatInt(e.InProgress, 10), strconv.FormatInt(e.Missed, 10))
	}
	_ = t.Flush(b) // a buffer takes everything
}

// newTable returns a table in which a terminal may cut names and ids.
func newTable(width int, titles ...string) *terminal.Table {
	columns := make([]terminal.Column, len(titles))
	for i, title := range titles {
		columns[i].Title = title
		if title == "ENTITY" || title == "MESSAGE-ID" || title == "SESSION" {
			columns[i].Min = minName
		}
	}
	return terminal.NewTable(width, columns...)
}

// until returns how far t is from now.
func until(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d < 0:
		return d.Round(time.Second).Abs().String() + " ago"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
