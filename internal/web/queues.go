// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"overdue/internal/history"
	"overdue/internal/redisstore"
	"overdue/monitor/mute"
)

// overviewOptions are what the address of the overview says: so they survive a reload, and can be
// sent to somebody.
type overviewOptions struct {
	query  string // of the missed deadlines
	filter string // of the queues
	sort   string // the key of a column, with "-" in front for the other direction
}

func readOverviewOptions(r *http.Request) overviewOptions {
	return overviewOptions{query(r), bounded(strings.TrimSpace(parameter(r, "queue")), maxQuery), bounded(parameter(r, "sort"), 20)}
}

// values is the query of a link to the overview; sort, if there is one, takes the place of that of o.
func (o *overviewOptions) values(sort string) string {
	return values("q", o.query, "queue", o.filter, "sort", cmp.Or(sort, o.sort))
}

// A line is what is known of one queue or topic.
type line struct {
	name        string
	figure      *figure
	today, ever verdicts
	outstanding float64
	depth       Depth
	hasDepth    bool
	slack       float64 // seconds that 99 of 100 settled messages had left; NaN = none was settled
	means       []float64
	mute        *mute.Mute
}

// matches reports whether q is in the name or in a label.
func (l *line) matches(q string) bool {
	return isPart(q, append([]string{l.name}, l.figure.labels...)...)
}

// A queueColumn is one of the list of queues.
type queueColumn struct {
	key, name string
	shown     func(v *view) bool
	cell      func(l *line) queueCell
}

// A queueCell is what a queue has in a column.
type queueCell struct {
	Text, Note, Link string
	Class            string
	Graph            *graph
	order            float64 // NaN = comes last
}

func always(*view) bool        { return true }
func withMonitor(v *view) bool { return v.Monitor }
func withProxy(v *view) bool   { return v.Proxy }

func count(n float64) queueCell { return queueCell{Text: number(n), order: n} }

// trouble is a count that should be 0.
func trouble(n float64, class string) queueCell {
	c := count(n)
	if n > 0 {
		c.Class = class
	}
	return c
}

func notKnown() queueCell { return queueCell{Text: "–", order: math.NaN()} }

// queueColumns are those of the list, in their order. A phone shows the first four that there are.
var queueColumns = []queueColumn{
	{"name", "Queue", always, func(l *line) queueCell {
		c := queueCell{Text: l.name, Link: Path + "entity?" + values("name", l.name)}
		notes := l.figure.labels
		if l.mute != nil {
			notes = append([]string{"muted until " + clock(l.mute.Until)}, notes...)
		}
		c.Note = strings.Join(notes, ", ")
		return c
	}},
	{"lag", "Lag, 99 %", withMonitor, lagCell},
	{"depth", "Depth", always, depthCell},
	{"missed", "Missed", withMonitor, func(l *line) queueCell { return trouble(l.today.missed, "bad") }},
	{"outstanding", "Outstanding", withMonitor, func(l *line) queueCell { return count(l.outstanding) }},
	{"unknown", "Unknown", withMonitor, func(l *line) queueCell { return trouble(l.today.unknown, "warn") }},
	{"sent", "Sent", withProxy, func(l *line) queueCell { return count(l.figure.sends.sent) }},
	{"refused", "Refused", withProxy, func(l *line) queueCell { return trouble(l.figure.sends.refused, "bad") }},
	{"met", "Met", always, func(l *line) queueCell {
		share, ok := l.today.share()
		if !ok {
			return notKnown()
		}
		return queueCell{Text: percent(share), order: share}
	}},
	{"letters", "Dead letters", always, lettersCell},
	{"slack", "Slack", withProxy, func(l *line) queueCell {
		if math.IsNaN(l.slack) {
			return notKnown()
		}
		c := queueCell{Text: span(seconds(l.slack)), order: l.slack}
		if l.slack <= 0 {
			c.Class = "warn"
		}
		return c
	}},
	{"graph", "Mean lag, 15 min", withMonitor, func(l *line) queueCell {
		g := graphOf(l.means)
		return queueCell{Text: g.Label, Graph: &g, order: slices.Max(append(l.means, -1))}
	}},
}

const phoneColumns = 4

func lagCell(l *line) queueCell {
	within, ok := l.figure.within()
	switch {
	case ok:
		return queueCell{Text: "≤ " + span(within), order: within.Seconds()}
	case l.figure.lags > 0:
		last := l.figure.buckets[len(l.figure.buckets)-1].upTo
		return queueCell{Text: "> " + span(seconds(last)), order: last + 1, Class: "bad"}
	}
	return notKnown()
}

func depthCell(l *line) queueCell { return counted(l, l.depth.Messages, l.depth.More) }

func lettersCell(l *line) queueCell {
	c := counted(l, l.depth.DeadLetters, l.depth.MoreDeadLetters)
	if l.depth.DeadLetters > 0 {
		c.Class = "warn"
	}
	return c
}

func counted(l *line, n uint64, more bool) queueCell {
	if !l.hasDepth {
		return notKnown()
	}
	c := count(float64(n))
	if more {
		c.Text += "+"
	}
	return c
}

// A queueHead is the head of a column.
type queueHead struct {
	Name, Link, Class string
	Sorted            string // as aria-sort; "" = by another column
}

// A queuesView is the list of queues.
type queuesView struct {
	Heads          []queueHead
	Rows           [][]queueCell
	More           int
	Filter, Sorted string
}

// newQueuesView sorts and filters lines, and cuts them to one page.
func newQueuesView(v *view, lines []*line, o *overviewOptions) (q queuesView) {
	q.Filter, q.Sorted = o.filter, o.sort
	key, reverse := strings.CutPrefix(o.sort, "-")
	var columns []*queueColumn
	by := &queueColumns[0]
	for i := range queueColumns {
		if c := &queueColumns[i]; c.shown(v) {
			if columns = append(columns, c); c.key == key {
				by = c
			}
		}
	}
	for i, c := range columns {
		q.Heads = append(q.Heads, headOf(i, c, c == by, reverse, o))
	}
	slices.SortFunc(lines, func(a, b *line) int { return by.compare(a, b, reverse) })
	for _, l := range lines {
		if !l.matches(o.filter) {
			continue
		}
		if len(q.Rows) == maxRows {
			q.More++
			continue
		}
		var row []queueCell
		for i, c := range columns {
			cell := c.cell(l)
			cell.Class = strings.TrimSpace(c.class(i) + " " + cell.Class)
			row = append(row, cell)
		}
		q.Rows = append(q.Rows, row)
	}
	return q
}

// headOf is the head of a column, which sorts by it, or the other way round if that is done already.
func headOf(i int, c *queueColumn, isSorted, reverse bool, o *overviewOptions) queueHead {
	h := queueHead{Name: c.name, Class: c.class(i), Link: Path + "?" + o.values(c.key) + "#by-entity"}
	if !isSorted {
		return h
	}
	h.Sorted = "descending"
	if reverse != (i == 0) {
		h.Sorted = "ascending"
	}
	if !reverse {
		h.Link = Path + "?" + o.values("-"+c.key) + "#by-entity"
	}
	return h
}

// compare orders two queues by a column. Names go up, numbers down: the largest is the one that
// somebody looks for. A queue without the number comes last either way.
func (c *queueColumn) compare(a, b *line, reverse bool) int {
	if c.key == "name" {
		order := strings.Compare(strings.ToLower(a.name), strings.ToLower(b.name))
		if reverse {
			return -order
		}
		return order
	}
	x, y := c.cell(a).order, c.cell(b).order
	order := cmp.Compare(y, x) // NaN is less than any number
	if reverse && !math.IsNaN(x) && !math.IsNaN(y) {
		order = -order
	}
	return cmp.Or(order, strings.Compare(a.name, b.name))
}

// class is that of the cells of the column, which is at i.
func (c *queueColumn) class(i int) string {
	switch {
	case c.key == "name":
		return ""
	case c.key == "graph":
		return "lag wide"
	case i >= phoneColumns:
		return "n wide"
	}
	return "n"
}

// lines are what is known of each queue and topic, but the canary.
func (d *Dashboard) lines(k *known, r *reading, t *tally) (all []*line) {
	depths := k.depths
	if b := d.source.Broker; b != nil {
		depths = brokerDepths(b.Default())
	}
	names := map[string]bool{}
	for name := range r.entities {
		names[name] = true
	}
	f := k.fleet
	if f == nil {
		f = &redisstore.Fleet{}
	}
	for name := range f.Outstanding {
		names[name] = true
	}
	for name := range t.ever {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if d.source.Canary != "" && strings.EqualFold(name, d.source.Canary) {
			continue
		}
		l := &line{
			name:   name,
			figure: valueOf(r.entities, name),
			slack:  math.NaN(),
			means:  k.samples.means(name),
		}
		l.outstanding = l.figure.outstanding
		if n, ok := f.Outstanding[name]; ok {
			l.outstanding = float64(n)
		}
		l.today, l.ever = verdictsOf(t.today[name]), verdictsOf(t.ever[name])
		l.depth, l.hasDepth = depths[strings.ToLower(name)]
		if s, ok := r.slack[name]; ok && s.Count() > 0 {
			l.slack = (time.Duration(s.Summarize(name).LeftP1) * time.Millisecond).Seconds()
		}
		for i := range k.mutes {
			if strings.EqualFold(k.mutes[i].Entity, name) {
				l.mute = &k.mutes[i]
			}
		}
		all = append(all, l)
	}
	return all
}

// A tally is what became of deadlines, by entity.
type tally struct {
	today, ever history.Verdicts
	since       time.Time // of ever
}

// tallyOf reads the tally of all processes if it is known, or else that of the history.
func (d *Dashboard) tallyOf(f *redisstore.Fleet, now time.Time) (t tally) {
	if f != nil && f.Ever != nil {
		return tally{f.Today, f.Ever, f.Since}
	}
	t.today, t.ever, t.since = d.source.History.Counts(now)
	return t
}

func verdictsOf(by map[string]uint64) (v verdicts) {
	for verdict, n := range by {
		v.count(verdict, float64(n))
	}
	return v
}
