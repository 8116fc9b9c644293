// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"overdue/internal/plural"
)

const (
	maxFindings = 12
	// certificateNotice is how long before its end a certificate is a finding, as in the rules.
	certificateNotice = 14 * 24 * time.Hour
	// blindNotice is how long after its end a span in which nothing was seen is one.
	blindNotice = 24 * time.Hour
)

// A finding is something that is not well, and where the page says more.
type finding struct {
	Text, Link string
	Class      string // bad, or warn: it can wait
}

// A wellView is the first line of the overview.
type wellView struct {
	Text, Class string
	Findings    []finding
	More        int
	Began       time.Time // of the process
	Checked     time.Time // the latest checks
}

// well says whether all is well, and else what is not: the worst first.
func (d *Dashboard) well(v *view, k *known, r *reading, lines []*line, now time.Time) (w wellView) {
	var bad, warn []finding
	isBad := func(link, format string, args ...any) {
		bad = append(bad, finding{fmt.Sprintf(format, args...), link, "bad"})
	}
	isWarn := func(link, format string, args ...any) {
		warn = append(warn, finding{fmt.Sprintf(format, args...), link, "warn"})
	}
	if v.State != "serving" {
		isBad("#checks", "This process is %s", v.State)
	}
	for _, c := range causes(v.Checks) {
		link := "#checks"
		if strings.HasPrefix(c.Name, "sink ") {
			link = "#alert-sinks"
		}
		isBad(link, "%s: %s", c.Name, c.Message)
	}
	for _, name := range r.missing {
		isBad(Path+"entity?"+values("name", name), "%s does not exist in the namespace", name)
	}
	k.findMissed(isBad, isWarn, lines)
	k.findProcesses(isBad, now)
	for _, use := range slices.Sorted(maps.Keys(r.certificates)) {
		switch end := r.certificates[use]; {
		case end.Before(now):
			isBad("#checks", "The certificate of %s has expired, %s", use, relative(end, now))
		case end.Before(now.Add(certificateNotice)):
			isWarn("#checks", "The certificate of %s expires %s", use, relative(end, now))
		}
	}
	for i := range v.Blind {
		if b := v.Blind[i].Event.Blind; now.Sub(b.To) < blindNotice {
			isWarn("#blind-spans", "Blind from %s to %s: %s", clock(b.From), clock(b.To), b.Reason)
		}
	}
	if n := v.total.today.unknown; n > 0 {
		isWarn("#unknown-deadlines", "Outcome not known: %s", plural.Of(int(n), "deadline", "deadlines"))
	}
	if r.journal != nil && *r.journal > 0 {
		isWarn("#cards", "%s in the journal", plural.Of(int(*r.journal), "companion waits", "companions wait"))
	}
	if r.historyDropped > 0 {
		isWarn("#recent", "The history lacks %s", plural.Of(int(r.historyDropped), "missed deadline", "missed deadlines"))
	}
	if len(r.restart) > 0 {
		slices.Sort(r.restart)
		isWarn("#configuration", "Changed settings wait for a restart: %s", strings.Join(r.restart, ", "))
	}
	for _, l := range lines {
		if l.mute != nil {
			isWarn(Path+"entity?"+values("name", l.name), "%s is muted until %s: %s", l.name, clock(l.mute.Until), l.mute.Reason)
		}
	}
	w = newWellView(v, bad, warn)
	w.Began, w.Checked = d.began, k.at
	return w
}

// causes are the checks that have failed, without those that only follow from another: a namespace
// that is down fails several.
func causes(checks []Check) (found []Check) {
	for _, c := range checks {
		isKnown := slices.ContainsFunc(found, func(f Check) bool { return f.Message == c.Message })
		if c.Failed && !c.Follows && !isKnown {
			found = append(found, c)
		}
	}
	return found
}

// findMissed finds deadlines that were missed in the last quarter of an hour, or else today.
func (k *known) findMissed(isBad, isWarn func(link, format string, args ...any), lines []*line) {
	if text, link := missedOn(lines, "in 15 minutes", func(l *line) float64 { return float64(k.samples.lastQuarter(l.name)) }); text != "" {
		isBad(link, "%s", text)
	} else if text, link := missedOn(lines, "today", func(l *line) float64 { return l.today.missed }); text != "" {
		isWarn(link, "%s", text)
	}
}

// missedOn says how many deadlines were missed, and on which queue most.
func missedOn(lines []*line, when string, count func(*line) float64) (text, link string) {
	var worst *line
	var queues int
	var sum float64
	for _, l := range lines {
		n := count(l)
		if n == 0 {
			continue
		}
		if worst == nil || n > count(worst) {
			worst = l
		}
		queues++
		sum += n
	}
	switch queues {
	case 0:
		return "", ""
	case 1:
		return fmt.Sprintf("%s: %s missed %s", worst.name, number(sum), when), Path + "entity?" + values("name", worst.name)
	}
	return fmt.Sprintf("%s missed %s on %d queues, most on %s", number(sum), when, queues, worst.name), Path + "?" + values("sort", "missed") + "#by-entity"
}

// findProcesses finds those of the fleet that are gone or not ready. This one has its checks.
func (k *known) findProcesses(isBad func(link, format string, args ...any), now time.Time) {
	f := k.fleet
	if f == nil {
		return // a check of Redis fails, or there is none
	}
	for i := range f.Processes {
		p := &f.Processes[i]
		switch {
		case p.Own:
		case p.Gone:
			isBad("#processes", "%s on %s was last seen %s", p.Role, p.Place(), relative(p.Seen, now))
		case p.NotReady != "":
			isBad("#processes", "%s on %s is not ready: %s", p.Role, p.Place(), p.NotReady)
		}
	}
}

func newWellView(v *view, bad, warn []finding) (w wellView) {
	all := slices.Concat(bad, warn)
	switch {
	case len(bad) > 0:
		w.Text, w.Class = plural.Of(len(bad), "thing is not well", "things are not well"), "bad"
		if len(warn) > 0 {
			w.Text += fmt.Sprintf("; %d to look at", len(warn))
		}
	case len(warn) > 0:
		w.Text, w.Class = "All works; "+plural.Of(len(warn), "thing", "things")+" to look at", "warn"
	case !v.Checked:
		w.Text = "The checks are not finished yet"
	default:
		w.Text, w.Class = "All is well", "good"
	}
	w.Findings = all[:min(len(all), maxFindings)]
	w.More = len(all) - len(w.Findings)
	return w
}
