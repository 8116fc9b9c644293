// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"overdue/internal/escape"
)

// Bounds of what is said, in characters.
const (
	maxTitle = 250
	maxText  = 8000
)

// Text says a page in words. The zero value has words of its own.
type Text struct{ title, text *pageTemplate }

// NewText takes Go templates, which are given the [Page]; empty ones stand for the words of the zero value. It tries them
// out, so that a wrong one is told at start and not when somebody has to be alerted.
func NewText(title, text string) (t Text, err error) {
	parse := func(name, s string) (*pageTemplate, error) {
		if s == "" {
			return nil, nil
		}
		return parsePageTemplate(name, s)
	}
	if t.title, err = parse("title", title); err != nil {
		return Text{}, fmt.Errorf("alert: %w", err)
	}
	if t.text, err = parse("text", text); err != nil {
		return Text{}, fmt.Errorf("alert: %w", err)
	}
	e := Event{Type: TypeMissed, Subject: "order-1"}
	for _, p := range []Page{
		{Labels: map[string]string{"entity": "orders"}, Count: 1, Total: 1, Oldest: &e, Samples: []Event{e}},
		{Labels: map[string]string{"entity": "orders"}, Resolved: true, Total: 1},
	} {
		if _, _, _, err := t.of(p); err != nil {
			return Text{}, err
		}
	}
	return t, nil
}

// of is the page in words, and as people may see it. An error comes from a template, and is final.
func (t Text) of(raw Page) (p Page, title, text string, err error) {
	p = raw.visible()
	title, text = p.Title(), p.Text()
	for _, part := range []struct {
		t  *pageTemplate
		to *string
	}{{t.title, &title}, {t.text, &text}} {
		if part.t == nil {
			continue
		}
		said, err := part.t.execute(p)
		if err != nil {
			return Page{}, "", "", backoff.Permanent(fmt.Errorf("alert: %w", err))
		}
		*part.to = said
	}
	title = escape.Text(strings.Join(strings.Fields(title), " "))
	return p, cut(title, maxTitle), cut(escape.Lines(text), maxText), nil
}

// visible is a copy of p in which nothing is hidden, in no text that an event brings: a message-id may have line ends, which would
// look like lines of ours.
func (p Page) visible() Page {
	p.Source, p.Labels = escape.Text(p.Source), maps.Clone(p.Labels)
	for name, value := range p.Labels {
		p.Labels[name] = escape.Text(value)
	}
	if p.Oldest != nil {
		oldest := p.Oldest.visible()
		p.Oldest = &oldest
	}
	p.Samples = slices.Clone(p.Samples)
	for i := range p.Samples {
		p.Samples[i] = p.Samples[i].visible()
	}
	return p
}

func (e Event) visible() Event {
	for _, s := range []*string{
		&e.ID, &e.Type, &e.Source, &e.Subject, &e.Data.Entity, &e.Data.Subscription, &e.Data.MessageID, &e.Data.SessionID,
		&e.Data.DeadlineKind, &e.Data.Strategy, &e.Data.DeadLetterReason, &e.Data.State, &e.Data.CorrelationID,
	} {
		*s = escape.Text(*s)
	}
	return e
}

// cut shortens s to n characters.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// Where is what the page is about, as far as its group says.
func (p Page) Where() string {
	entity, subscription := p.Labels["entity"], p.Labels["subscription"]
	switch {
	case entity == "":
		return strings.TrimPrefix(p.Source, "sb://")
	case subscription != "":
		return entity + "/" + subscription
	}
	return entity
}

// noun is what has happened, once or more.
func (p Page) noun(n int) string {
	one, more := "event", "events"
	if words, ok := nouns[p.Labels["type"]]; ok {
		one, more = words[0], words[1]
	}
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

var nouns = map[string][2]string{
	TypeMissed:     {"missed deadline", "missed deadlines"},
	TypeIncomplete: {"message not completed in time", "messages not completed in time"},
	TypeNear:       {"deadline that is near", "deadlines that are near"},
}

// Title is the page in one line.
func (p Page) Title() string {
	switch {
	case p.Resolved:
		return fmt.Sprintf("Resolved: %s on %s, none since %s", p.noun(p.Total), p.Where(), stamp(p.Last))
	case p.Count == 0:
		return fmt.Sprintf("%s on %s since %s", p.noun(p.Total), p.Where(), stamp(p.Since))
	case p.Total > p.Count:
		return fmt.Sprintf("%s more on %s, %d since %s", p.noun(p.Count), p.Where(), p.Total, stamp(p.Since))
	}
	return fmt.Sprintf("%s on %s", p.noun(p.Count), p.Where())
}

// Text is what else there is to say, a line each; "" when there is nothing.
func (p Page) Text() string {
	var lines []string
	if p.Oldest != nil {
		lines = append(lines, fmt.Sprintf("Oldest: %s, due %s", p.Oldest.Subject, stamp(p.Oldest.Data.Deadline)))
	}
	if p.WorstLag > 0 && p.Labels["type"] != TypeNear {
		lines = append(lines, fmt.Sprintf("Worst lag: %v", p.WorstLag))
	}
	for _, e := range p.Samples {
		line := "- " + e.Subject
		if e.Data.SessionID != "" {
			line += " in session " + e.Data.SessionID
		}
		line += ", due " + stamp(e.Data.Deadline)
		if e.Data.CorrelationID != "" {
			line += ", correlation " + e.Data.CorrelationID
		}
		lines = append(lines, line)
	}
	if more := p.Count - len(p.Samples); more > 0 && len(p.Samples) > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func (p Page) state() string {
	if p.Resolved {
		return "resolved"
	}
	return "firing"
}

// alertLabels are the labels that name the group as an alert of Prometheus.
func (p Page) alertLabels() map[string]string {
	labels := map[string]string{"alertname": "OverdueDeadlineMissed", "source": p.Source}
	for name, value := range p.Labels {
		if name == "type" {
			labels["alertname"] = alertName(value)
			continue
		}
		labels[name] = value
	}
	labels["severity"] = p.severity("critical")
	return labels
}

// alertName turns overdue.deadline.missed into OverdueDeadlineMissed.
func alertName(eventType string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(eventType, ".") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}
