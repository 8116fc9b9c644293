// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/broker/httpapi"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
)

// maxRows bounds the entities on one page.
const maxRows = 100

// A view is the overview, ready to be rendered.
type view struct {
	page
	queueTable  // of a broker alone
	Well        wellView
	State       string
	Query       string // of the missed deadlines
	Monitor     bool
	Proxy       bool
	BrokerAlone bool
	total       line
	sends       sends
	Cards       []card
	List        queuesView
	Missed      []missedRow
	Checks      []Check
	Checked     bool
	Sinks       sinksView
	Settings    string
	Fleet       fleetView
	Blind       []history.Notification
	Unknown     []unknownRow
	Demo        *Demo // nil = this is no demo
}

// gaps are the spans of which the history may lack something.
func (d *Dashboard) gaps() []history.Gap {
	if !d.source.History.HasFile() {
		return nil
	}
	return d.source.History.Gaps(time.Time{})
}

type card struct {
	Name, Value, Note string
	Link              string // "" = it leads nowhere
	Current           bool   // to this page
	Bad               bool   // it is no good
}

// A graph has a bar for each sample with a lag, and none if there is no lag.
type graph struct {
	Label       string // for those who do not see it
	Top, Middle string // of its axis
	Bars        []bar
}

type bar struct{ X, Y, Height string }

type missedRow struct {
	*alert.EventData
	TakenBy, Link string
}

// view reads everything that the overview shows, except the settings.
func (d *Dashboard) view(o overviewOptions) (*view, error) {
	r, err := read(d.source.Metrics)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	v := &view{
		page: d.page("overview", ""), State: d.source.State(), Query: o.query, Monitor: d.source.Monitor, Proxy: r.proxy,
	}
	if demo := d.demo.Load(); demo != nil {
		v.Demo = (*demo)()
	}
	k := d.known()
	if v.Monitor {
		v.Gaps = d.gaps()
		v.Missed = d.missed(k, func(e *alert.Event) bool { return matches(&e.Data, o.query) })
		v.Sinks = d.sinks(r, now)
		v.Blind = d.blind()
	}
	v.Unknown = unknownRows(k.unknown)
	v.Checks, v.Checked = d.source.Ready(), now.Sub(k.at) < checksLast
	if v.Checked {
		ready := v.Checks
		v.Checks = slices.Concat(ready, slices.DeleteFunc(slices.Clone(k.checks), func(c Check) bool { // readiness may depend on one of them
			return slices.ContainsFunc(ready, func(r Check) bool { return r.Name == c.Name })
		}))
	}
	v.Fleet = d.fleetView(k)
	if b := d.source.Broker; b != nil && b.Alone {
		v.BrokerAlone = true
		v.fill(b.Default(), "", func(path string) string {
			return b.URL + strings.TrimPrefix(entityLink(brokerPath, "", path), httpapi.ControlPath)
		})
		v.Cards = namespaceCards(b.Default())
		v.Well = d.well(v, k, r, nil, now)
		return v, nil
	}
	t := d.tallyOf(k.fleet, now)
	lines := d.lines(k, r, &t)
	for _, l := range lines {
		v.total.today.add(l.today)
		v.total.ever.add(l.ever)
		v.total.outstanding += l.outstanding
		v.sends.sent += l.figure.sends.sent
		v.sends.refused += l.figure.sends.refused
	}
	if v.Monitor {
		v.Cards = verdictCards(&v.total, t.since, now)
	}
	if v.Proxy {
		v.Cards = slices.Concat(v.Cards, sendCards(v.sends), proxyCards(r))
	}
	v.List = newQueuesView(v, slices.Clone(lines), &o)
	v.Well = d.well(v, k, r, lines, now)
	return v, nil
}

// verdictCards are what became of the deadlines of a queue, or of all.
func verdictCards(l *line, since, now time.Time) []card {
	note := func(n float64) string { return number(n) + " since " + day(since, now) }
	met := card{Name: "Met today", Value: "–", Note: "of " + number(l.today.known()) + " deadlines"}
	if share, ok := l.today.share(); ok {
		met.Value = percent(share)
	}
	return []card{
		{Name: "Missed today", Value: number(l.today.missed), Note: note(l.ever.missed), Bad: l.today.missed > 0, Link: "#recent"},
		{Name: "Late today", Value: number(l.today.incomplete), Note: note(l.ever.incomplete), Bad: l.today.incomplete > 0},
		{Name: "Unknown today", Value: number(l.today.unknown), Note: note(l.ever.unknown), Bad: l.today.unknown > 0, Link: "#unknown-deadlines"},
		met,
		{Name: "Outstanding", Value: number(l.outstanding), Note: "no verdict yet"},
	}
}

// sendCards are what apps sent to a queue, or to all.
func sendCards(s sends) []card {
	return []card{
		{Name: "Sent", Value: number(s.sent), Note: "since the start"},
		{Name: "Refused", Value: number(s.refused), Note: "or failed", Bad: s.refused > 0},
	}
}

// proxyCards are how the proxy is.
func proxyCards(r *reading) []card {
	cards := []card{{Name: "In flight", Value: number(r.inFlight), Note: number(r.queued) + " wait for a place"}}
	if r.journal != nil {
		cards = append(cards, card{Name: "Journal", Value: number(*r.journal), Note: "companions wait", Bad: *r.journal > 0})
	}
	return cards
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
		return graph{Label: "–"}
	}
	g := graph{Top: span(seconds(highest)), Middle: span(seconds(highest / 2))}
	g.Label = "up to " + g.Top
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
	return isPart(q, data.Path(), data.Entity+"/"+data.Subscription, data.Name(), data.SessionID)
}

// missed finds the latest missed deadlines that match, of all processes that share a Redis.
func (d *Dashboard) missed(k *known, match func(*alert.Event) bool) (rows []missedRow) {
	isAsked := func(e *alert.Event) bool { return e.Type == alert.TypeMissed && match(e) }
	own := d.source.History.Find(isAsked, maxMatches)
	found := own
	for _, n := range k.elsewhere {
		if isAsked(&n.Event) && !slices.ContainsFunc(own, func(o history.Notification) bool { return o.Event.ID == n.Event.ID }) {
			n.TakenBy = []history.Delivery{{Sink: "another process"}}
			found = append(found, n)
		}
	}
	slices.SortStableFunc(found, func(a, b history.Notification) int { return b.Event.Time.Compare(a.Event.Time) })
	found = found[:min(len(found), maxMatches)]
	for i := range found {
		data := &found[i].Event.Data
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
		link := messageLink(dlq.Place{Entity: data.Entity, Subscription: data.Subscription}, data.Name())
		rows = append(rows, missedRow{data, strings.Join(sinks, ", "), link})
	}
	return rows
}

// number is a count of any type, with a comma at each thousand.
func number(n any) string {
	text := fmt.Sprint(n)
	if f, ok := n.(float64); ok {
		text = strconv.FormatFloat(math.Round(f), 'f', 0, 64)
	}
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// percent is a share for a person. Only all is 100 %, and only nothing is 0 %.
func percent(share float64) string {
	p := share * 100
	switch {
	case p < 100 && p > 99.99:
		return "> 99.99\u00a0%"
	case p > 0 && p < 0.1:
		return "< 0.1\u00a0%"
	}
	digits := 10.0
	if p > 99 {
		digits = 100
	}
	return strconv.FormatFloat(math.Round(p*digits)/digits, 'f', -1, 64) + "\u00a0%"
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
