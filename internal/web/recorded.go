// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
	"overdue/internal/plural"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/address"
)

// A moment is a time as people read it, relative to now, and in full.
type moment struct{ Text, Stamp string }

func momentOf(t, now time.Time) moment { return moment{relative(t, now), stamp(t)} }

// relative says how long ago t was, or in how long it is. It is as coarse as people take it, so that
// a page that stays open does not change all the time.
func relative(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	d, format := now.Sub(t), "%s ago"
	if d < 0 {
		d, format = -d, "in %s"
	}
	switch {
	case d < 10*time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf(format, fmt.Sprintf("%d s", int(d.Seconds())/10*10))
	case d.Round(time.Minute) < time.Hour:
		return fmt.Sprintf(format, fmt.Sprintf("%.0f min", d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf(format, fmt.Sprintf("%.0f h", d.Hours()))
	}
	return fmt.Sprintf(format, fmt.Sprintf("%.0f days", d.Hours()/24))
}

// clock is a time within a sentence.
func clock(t time.Time) string { return t.UTC().Format("2 Jan 15:04 UTC") }

// day is since when something is counted: the time, if that was today.
func day(t, now time.Time) string {
	if t.UTC().Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return t.UTC().Format("15:04 UTC")
	}
	return t.UTC().Format("2 Jan 2006")
}

// A sinksView is how the sinks are.
type sinksView struct {
	Summary string // "" = there are none
	Rows    []sinkRow
}

type sinkRow struct {
	Name, State, OK, Failed string
	Bad                     bool
}

// sinks says of each sink whether it takes events, and else since when they wait.
func (d *Dashboard) sinks(r *reading, now time.Time) (v sinksView) {
	type queue struct {
		n     int
		since time.Time
	}
	waiting := map[string]*queue{}
	for _, n := range d.source.History.Find(func(*alert.Event) bool { return true }, -1) {
		for _, w := range n.Waiting {
			q := valueOf(waiting, w.Sink)
			if q.n++; q.since.IsZero() || w.Time.Before(q.since) {
				q.since = w.Time
			}
		}
	}
	well, notes := 0, []string{}
	for _, name := range slices.Sorted(maps.Keys(r.sinks)) {
		s := r.sinks[name]
		row := sinkRow{Name: name, State: "takes events", OK: number(s.ok), Failed: number(s.failed), Bad: s.failing}
		verb := "queued"
		if s.failing {
			verb, row.State = "failing", "failing"
		} else {
			well++
		}
		if q := waiting[name]; q != nil {
			row.State = fmt.Sprintf("%s since %s, %s", verb, day(q.since, now), plural.Of(q.n, "event waits", "events wait"))
		}
		if row.State != "takes events" {
			notes = append(notes, name+" "+row.State)
		}
		v.Rows = append(v.Rows, row)
	}
	if len(v.Rows) > 0 {
		v.Summary = strings.Join(append([]string{fmt.Sprintf("%d of %d take events", well, len(v.Rows))}, notes...), "; ")
	}
	return v
}

// A fleetView is the processes that share a Redis.
type fleetView struct {
	Alone     bool // there is no Redis
	Error     string
	Processes []redisstore.Process
	More      int
}

func (d *Dashboard) fleetView(k *known) (f fleetView) {
	f.Alone = d.source.Fleet == nil
	if k.fleetErr != nil {
		f.Error = k.fleetErr.Error()
	} else if k.fleet != nil {
		f.Processes = k.fleet.Processes[:min(len(k.fleet.Processes), maxRows)]
		f.More = len(k.fleet.Processes) - len(f.Processes)
	}
	return f
}

// An unknownRow is a deadline whose outcome is not known. Its message may not be known either.
type unknownRow struct {
	*history.Unknown
	Message, Link string
}

func unknownRows(all []history.Unknown) (rows []unknownRow) {
	for i := range all {
		row := unknownRow{Unknown: &all[i]}
		if row.MessageID != "" || row.SequenceNumber > 0 {
			row.Message = address.MessageName(row.MessageID, row.SequenceNumber)
		}
		if place, err := dlq.ParsePlace(row.Entity); err == nil && row.Message != "" {
			row.Link = messageLink(place, row.Message)
		}
		rows = append(rows, row)
	}
	return rows
}

// blind are the latest spans in which a monitor saw nothing.
func (d *Dashboard) blind() []history.Notification {
	return d.source.History.Find(func(e *alert.Event) bool { return e.Type == alert.TypeBlind && e.Blind != nil }, maxListed)
}
