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
	case d < time.Hour:
		return fmt.Sprintf(format, fmt.Sprintf("%d min", int(d.Minutes())))
	case d < 48*time.Hour:
		return fmt.Sprintf(format, fmt.Sprintf("%d h", int(d.Hours())))
	}
	return fmt.Sprintf(format, fmt.Sprintf("%d days", int(d.Hours())/24))
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
	for _, n := range d.source.Missed(func(*alert.Event) bool { return true }, -1) {
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
	Processes []processRow
	More      int
}

type processRow struct {
	Host, Role, Version, State string
	Started, Seen              moment
	Outstanding                string
	Own, Bad                   bool
}

func (d *Dashboard) fleetView(k *known, now time.Time) (f fleetView) {
	if f.Alone = d.source.Fleet == nil; f.Alone || k.at.IsZero() {
		return f
	}
	if err := k.fleetErr; err != nil {
		f.Error = err.Error()
		return f
	}
	for _, p := range k.fleet.Processes {
		if len(f.Processes) == maxRows {
			f.More++
			continue
		}
		row := processRow{
			Host: p.Host, Role: p.Role, Version: p.Version, State: "ready", Outstanding: number(float64(p.Outstanding)), Own: p.Own,
			Started: momentOf(p.Started, now), Seen: momentOf(p.Seen, now),
		}
		switch {
		case p.Gone:
			row.State, row.Bad = "gone", true
		case p.NotReady != "":
			row.State, row.Bad = "not ready: "+p.NotReady, true
		}
		f.Processes = append(f.Processes, row)
	}
	return f
}

type unknownRow struct {
	Entity, Message, Link, Why string
	From, Deadline, Judged     moment
}

func unknownRows(all []history.Unknown, now time.Time) (rows []unknownRow) {
	for i := range all {
		u := &all[i]
		row := unknownRow{
			Entity: u.Entity, Why: u.Why,
			From: momentOf(u.From, now), Deadline: momentOf(u.Deadline, now), Judged: momentOf(u.Judged, now),
		}
		if u.MessageID != "" || u.SequenceNumber > 0 {
			row.Message = address.MessageName(u.MessageID, u.SequenceNumber)
		}
		if place, err := dlq.ParsePlace(u.Entity); err == nil && row.Message != "" {
			row.Link = messageLink(place, row.Message)
		}
		rows = append(rows, row)
	}
	return rows
}

// A blindRow is a span in which a monitor saw nothing.
type blindRow struct {
	data     *alert.Blind
	From, To moment
	Took     string
	Reason   string
	SoFar    bool
	Host     string
	Counts   []countCell // deadlines, and those that were harmed
	Entities []string
}

// A countCell is a number, and whether it is no good.
type countCell struct {
	Text string
	Bad  bool
}

// blind are the latest spans in which a monitor saw nothing.
func (d *Dashboard) blind(now time.Time) (rows []blindRow) {
	for _, n := range d.source.Missed(func(e *alert.Event) bool { return e.Type == alert.TypeBlind && e.Blind != nil }, maxListed) {
		b := n.Event.Blind
		row := blindRow{data: b, From: momentOf(b.From, now), To: momentOf(b.To, now), Took: span(b.To.Sub(b.From)), Reason: b.Reason, SoFar: b.SoFar, Host: n.Event.Subject}
		row.Counts = append(row.Counts, countCell{Text: number(float64(b.Deadlines))})
		for _, harmed := range []int{b.Late, b.Unknown, b.Lost} {
			row.Counts = append(row.Counts, countCell{number(float64(harmed)), harmed > 0})
		}
		for i := range b.Entities {
			row.Entities = append(row.Entities, b.Entities[i].Entity)
		}
		rows = append(rows, row)
	}
	return rows
}
