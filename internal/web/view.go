// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/broker/httpapi"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
	"overdue/internal/plural"
)

// maxRows bounds the entities on one page.
const maxRows = 100

// A view is the overview, ready to be rendered.
type view struct {
	page
	queueTable   // of a broker alone
	State        string
	Query        string // of the missed deadlines
	Monitor      bool
	BrokerAlone  bool
	Cards        []card
	Entities     []entityRow
	MoreEntities int
	Missed       []missedRow
	Checks       []Check
	Checked      bool
	Sinks        []sinkRow
	Settings     string
	Fleet        *fleetRows // nil without Redis
	Demo         *Demo      // nil = this is no demo
}

func (d *Dashboard) gaps() []history.Gap {
	if d.source.Gaps == nil {
		return nil
	}
	return d.source.Gaps()
}

// fleetRows are what the monitors that share a Redis know together.
type fleetRows struct {
	Monitors string // that reported lately; "" = none
	Entities []fleetRow
}

type fleetRow struct{ Name, Outstanding, Missed string }

type card struct {
	Name, Value, Note string
	Link              string // "" = it leads nowhere
	Current           bool   // to this page
	Bad, Alarm        bool   // Bad is a figure that is no good; Alarm is one to act on now
}

type entityRow struct {
	Name, Link                                    string
	Outstanding, Met, Missed, Incomplete, Unknown string
	Within                                        string
	HasMissed, HasUnknown                         bool
	Graph                                         graph
}

// A graph has a bar for each sample with a lag.
type graph struct {
	Label string // for those who do not see it
	Bars  []bar
}

type bar struct{ X, Y, Height string }

type missedRow struct {
	Entity, MessageID, SessionID, Reason, Lag string
	Deadline                                  string // RFC 3339, to the millisecond
	TakenBy, Link                             string
}

type sinkRow struct {
	Name, OK, Failed string
	Bad              bool
}

// view reads everything that the overview shows, except the settings.
func (d *Dashboard) view(q string) (*view, error) {
	r, err := read(d.source.Metrics)
	if err != nil {
		return nil, err
	}
	v := &view{page: d.page("overview", ""), State: d.source.State(), Query: q, Monitor: d.source.Missed != nil, Fleet: r.fleetRows()}
	if demo := d.demo.Load(); demo != nil {
		v.Demo = (*demo)()
	}
	d.mu.Lock()
	v.Checks, v.Checked = d.checks, !d.checked.IsZero()
	total := figure{}
	for _, name := range slices.Sorted(maps.Keys(r.entities)) {
		if d.source.Canary != "" && strings.EqualFold(name, d.source.Canary) {
			continue
		}
		f := r.entities[name]
		total.met += f.met
		total.missed += f.missed
		total.incomplete += f.incomplete
		total.unknown += f.unknown
		total.outstanding += f.outstanding
		if len(v.Entities) == maxRows {
			v.MoreEntities++
			continue
		}
		v.Entities = append(v.Entities, rowOf(name, f, d.samples.means(name)))
	}
	d.mu.Unlock()
	v.Cards = cards(v, &total)
	if b := d.source.Broker; b != nil && b.Alone {
		v.BrokerAlone = true
		v.fill(b.Default(), "", func(path string) string {
			return b.URL + strings.TrimPrefix(entityLink(brokerPath, "", path), httpapi.ControlPath)
		})
		v.Cards = slices.Concat(v.Cards[:2], namespaceCards(b.Default()))
	}
	for _, name := range slices.Sorted(maps.Keys(r.sinks)) {
		s := r.sinks[name]
		v.Sinks = append(v.Sinks, sinkRow{name, number(s.ok), number(s.failed), s.failed > 0})
	}
	if v.Monitor {
		v.Gaps = d.gaps()
		v.Missed = d.missed(func(e *alert.Event) bool { return matches(&e.Data, q) })
	}
	return v, nil
}

func cards(v *view, total *figure) []card {
	failed := 0
	for _, c := range v.Checks {
		if c.Failed {
			failed++
		}
	}
	checks := card{Name: "Checks", Value: "all passed", Note: plural.Of(len(v.Checks), "check", "checks")}
	switch {
	case !v.Checked:
		checks = card{Name: "Checks", Value: "…", Note: "not finished yet"}
	case failed > 0:
		checks = card{Name: "Checks", Value: fmt.Sprintf("%d failed", failed), Note: "see Health", Alarm: true}
	}
	return []card{
		{Name: "State", Value: v.State, Note: v.Role, Alarm: v.State != "serving"},
		checks,
		{Name: "Outstanding", Value: number(total.outstanding), Note: "due, unfinished"},
		{Name: "Met", Value: number(total.met), Note: "settled in time"},
		{Name: "Missed", Value: number(total.missed), Note: "since the start", Bad: total.missed > 0},
		{Name: "Unknown", Value: number(total.unknown), Note: "outcome not known"},
	}
}

func rowOf(name string, f *figure, means []float64) entityRow {
	row := entityRow{
		Name: name, Link: Path + "entity?" + values("name", name), HasMissed: f.missed > 0, HasUnknown: f.unknown > 0, Outstanding: number(f.outstanding), Met: number(f.met), Missed: number(f.missed),
		Incomplete: number(f.incomplete), Unknown: number(f.unknown), Within: "–", Graph: graphOf(means),
	}
	if bound, ok := f.within(); ok {
		row.Within = "≤ " + span(bound)
	} else if f.lags > 0 {
		row.Within = "> " + span(seconds(f.buckets[len(f.buckets)-1].upTo))
	}
	return row
}

// The size of a graph, in units of its SVG.
const (
	barStep     = 2
	graphHeight = 32
)

// graphOf draws the latest sample at the right edge, and the highest one at full height.
func graphOf(means []float64) graph {
	highest := slices.Max(append([]float64{-1}, means...))
	if highest < 0 {
		return graph{Label: "none in 15 min"}
	}
	g := graph{Label: "up to " + span(seconds(highest))}
	for i, mean := range means {
		if mean < 0 {
			continue
		}
		height := 2.0 // a lag of 0 is a lag too
		if highest > 0 {
			height = max(height, mean/highest*graphHeight)
		}
		x := (maxSamples - len(means) + i) * barStep
		g.Bars = append(g.Bars, bar{strconv.Itoa(x), decimal(graphHeight - height), decimal(height)})
	}
	return g
}

// matches reports whether q is in the entity, message-id or session-id of an event.
func matches(data *alert.EventData, q string) bool {
	q = strings.ToLower(q)
	return slices.ContainsFunc([]string{data.Path(), data.Entity + "/" + data.Subscription, data.Name(), data.SessionID}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), q)
	})
}

// missed finds the latest missed deadlines that match.
func (d *Dashboard) missed(match func(*alert.Event) bool) (rows []missedRow) {
	found := d.source.Missed(func(e *alert.Event) bool { return e.Type == alert.TypeMissed && match(e) }, maxMatches)
	for i := range found {
		data := &found[i].Event.Data
		name := data.Name()
		var sinks []string
		if data.Muted {
			sinks = append(sinks, "muted")
		}
		for _, t := range found[i].TakenBy {
			sinks = append(sinks, t.Sink)
		}
		for _, t := range found[i].Waiting {
			sinks = append(sinks, fmt.Sprintf("%s (%s)", t.Sink, t.State))
		}
		rows = append(rows, missedRow{
			Entity: data.Path(), MessageID: name, SessionID: data.SessionID, Reason: data.DeadLetterReason, Lag: span(data.Lag()),
			Deadline: data.Deadline.UTC().Format("2006-01-02T15:04:05.000Z"), TakenBy: strings.Join(sinks, ", "),
			Link: messageLink(dlq.Place{Entity: data.Entity, Subscription: data.Subscription}, name),
		})
	}
	return rows
}

// number is a count with a comma at each thousand.
func number(f float64) string {
	text := strconv.FormatFloat(math.Round(f), 'f', 0, 64)
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

// span is a lag for a person: 14 ms, 2.5 s, 1h0m0s.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64) + " s"
	}
	return d.Round(time.Second).String()
}
