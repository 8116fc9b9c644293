// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"overdue/alert"
	"overdue/internal/operator/dlq"
	"overdue/internal/slack"
	"overdue/monitor/mute"
)

// An entityView is one queue or topic.
type entityView struct {
	page
	Name             string
	Known            bool // the metrics have it
	Monitor          bool
	Query            string // none here; the list of missed deadlines shows one on the overview
	Cards            []card
	Chart            graph // as wide as maxSamples
	Slack            []slackView
	Missed           []missedRow
	Unknown          []unknownRow
	Mute             *mute.Mute
	Labels, Runbook  string // of the queue; Runbook is a link
	Letters, Pending string // links
	MuteLink         string // "" = nobody can mute it here
}

// A slackView is how much time was left when messages of one place were settled.
type slackView struct {
	Place, Count, Late           string
	HasLate                      bool
	Half, Most, Would, TakenHalf string
	Columns                      []column
}

// A column is one of a histogram.
type column struct {
	Name, Count, Height string // the height in units of its SVG
	Y                   string
	Bad                 bool
}

// entity shows one queue or topic.
func (d *Dashboard) entity(w http.ResponseWriter, r *http.Request) {
	v, err := d.entityView(parameter(r, "name"))
	if err != nil {
		cannotShow(w, err)
		return
	}
	if !v.Known {
		show(w, "entity.html", v, refusal{http.StatusNotFound, "No deadline of this queue or topic is known."})
		return
	}
	v.Events = Path + "events?" + values("page", "entity", "name", v.Name)
	show(w, "entity.html", v, nil)
}

func (d *Dashboard) entityView(name string) (*entityView, error) {
	r, err := read(d.source.Metrics)
	if err != nil {
		return nil, err
	}
	v := &entityView{page: d.page("overview", cmp.Or(name, "No entity")), Name: name, Monitor: d.source.Monitor}
	now := time.Now()
	k := d.known()
	t := d.tallyOf(k.fleet, now)
	lines := d.lines(k, r, &t)
	i := slices.IndexFunc(lines, func(l *line) bool { return l.name == name })
	if v.Known = i >= 0; !v.Known {
		return v, nil
	}
	l := lines[i]
	v.Cards = []card{{Name: "Depth", Value: depthCell(l).Text, Note: "messages"}, {Name: "Dead letters", Value: lettersCell(l).Text, Note: "of any reason"}}
	if v.Monitor {
		v.Cards = append(v.Cards, card{Name: "Lag", Value: lagCell(l).Text, Note: "99 of 100 within"})
		v.Cards = append(v.Cards, verdictCards(l, t.since, now)...)
	}
	v.Labels, v.Runbook = strings.Join(l.figure.labels, ", "), l.figure.runbook
	v.Mute = l.mute
	if r.proxy {
		v.Cards = append(v.Cards, sendCards(l.figure.sends)...)
	}
	v.Chart, v.Slack = graphOf(l.means), r.slackOf(name)
	if v.Monitor {
		v.Gaps = d.gaps()
		v.Unknown = unknownRows(k.unknown)
		v.Unknown = slices.DeleteFunc(v.Unknown, func(u unknownRow) bool { return !strings.EqualFold(u.Entity, name) })
		v.Missed = d.missed(k, func(e *alert.Event) bool {
			return strings.EqualFold(e.Data.Path(), name) || strings.EqualFold(e.Data.Entity, name)
		})
	}
	if at, err := dlq.ParsePlace(name); err == nil {
		v.Letters, v.Pending = lettersLink(at), Path+"deadlines?"+values("entity", at.Entity)
		if a := d.source.Namespace.Actions; a != nil && a.Mute != nil {
			v.MuteLink = muteLink(name)
		}
	}
	return v, nil
}

// slackBounds are the bounds of the columns of a histogram of slack. The first column has none: it
// is that of the late settlements.
var slackBounds = []time.Duration{
	100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour,
}

var slackNames = []string{
	"late", "≤ 0.1 s", "≤ 0.5 s", "≤ 1 s", "≤ 2 s", "≤ 5 s", "≤ 10 s", "≤ 20 s", "≤ 30 s",
	"≤ 1 min", "≤ 2 min", "≤ 5 min", "≤ 10 min", "≤ 30 min", "≤ 1 h", "≤ 6 h", "≤ 1 d", "> 1 d",
}

// minColumns are shown at least: fewer make no shape.
const minColumns = 6

// histogramHeight is the height of a histogram, in units of its SVG.
const histogramHeight = 60

// slackOf is the slack of a queue, or of the subscriptions of a topic.
func (r *reading) slackOf(name string) (all []slackView) {
	var places []string
	for place := range r.slack {
		at, err := dlq.ParsePlace(place)
		if strings.EqualFold(place, name) || err == nil && strings.EqualFold(at.Entity, name) {
			places = append(places, place)
		}
	}
	slices.Sort(places)
	for _, place := range places[:min(len(places), maxRows)] {
		all = append(all, newSlackView(place, r.slack[place]))
	}
	return all
}

func newSlackView(place string, settled slack.Settlements) slackView {
	s := settled.Summarize(place)
	milliseconds := func(n int64) string { return span(time.Duration(n) * time.Millisecond) }
	v := slackView{
		Place: place, Count: number(s.Count), Late: number(s.Late), HasLate: s.Late > 0,
		Half: milliseconds(s.LeftP50), Most: milliseconds(s.LeftP1), Would: milliseconds(s.TakenP99), TakenHalf: milliseconds(s.TakenP50),
	}
	n := append([]uint64{s.Late}, settled.Left.Between(slackBounds)...)
	n[1] -= min(n[1], s.Late) // late ones had no time left
	first, last := 0, len(n)-1
	for first < last && n[first] == 0 {
		first++
	}
	for last > first && n[last] == 0 {
		last--
	}
	for wide := true; last-first+1 < minColumns; wide = !wide {
		if wide && last < len(n)-1 {
			last++
		} else if first > 0 {
			first--
		}
	}
	highest := max(slices.Max(n), 1)
	for i := first; i <= last; i++ {
		height := float64(n[i]) / float64(highest) * histogramHeight
		if n[i] > 0 {
			height = max(height, 1)
		}
		v.Columns = append(v.Columns, column{
			Name: slackNames[i], Count: number(n[i]), Height: decimal(height), Y: decimal(histogramHeight - height), Bad: i == 0,
		})
	}
	return v
}
