// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/cenkalti/backoff/v5"

	"overdue/internal/escape"
)

// Bounds of a notification.
const (
	maxOutput = 1 << 20 // of a template, in bytes
	maxTitle  = 250     // characters
	maxText   = 8000    // characters
)

// Text words the notifications of a sink. The zero value uses [Notification.Title] and
// [Notification.Text].
type Text struct{ title, text *template.Template }

// A TemplateError is a mistake in one of the templates of a Text.
type TemplateError struct {
	Key string // "title" or "text"
	Err error
}

// Error is the error of the template, which names the line and the action.
func (e *TemplateError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the template.
func (e *TemplateError) Unwrap() error { return e.Err }

// NewText parses two Go templates, which are executed with a [Notification]. An empty template
// keeps the default wording. NewText also executes both, for a group that fires and for one that is
// resolved, so that a mistake shows at start and not when an alert is due. Its error is a
// *[TemplateError].
func NewText(title, text string) (t Text, err error) {
	if t.title, err = parse("title", title); err != nil {
		return Text{}, err
	}
	if t.text, err = parse("text", text); err != nil {
		return Text{}, err
	}
	e := Event{Type: TypeMissed, Subject: "order-1"}
	for _, p := range []Notification{
		{Labels: map[string]string{"entity": "orders"}, Count: 1, Total: 1, Oldest: &e, Samples: []Event{e}},
		{Labels: map[string]string{"entity": "orders"}, Resolved: true, Total: 1},
	} {
		if _, _, _, err := t.of(p); err != nil {
			return Text{}, err
		}
	}
	return t, nil
}

func parse(key, text string) (*template.Template, error) {
	if text == "" {
		return nil, nil
	}
	// A label that a group does not have is "", not "<no value>".
	t, err := template.New(key).Option("missingkey=zero").Parse(text)
	if err != nil {
		return nil, &TemplateError{Key: key, Err: err}
	}
	return t, nil
}

// execute runs a template with p. The result is fallback if there is no template.
func execute(t *template.Template, p Notification, fallback string) (string, error) {
	if t == nil {
		return fallback, nil
	}
	var out boundedBuilder
	if err := t.Execute(&out, p); err != nil {
		return "", &TemplateError{Key: t.Name(), Err: err}
	}
	return out.text.String(), nil
}

// A boundedBuilder ends the execution of a template that writes too much: a template may loop.
type boundedBuilder struct{ text strings.Builder }

var errOutput = fmt.Errorf("writes more than %d bytes", maxOutput)

func (b *boundedBuilder) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > maxOutput {
		return 0, errOutput
	}
	return b.text.Write(p)
}

// of returns p with every text made visible, its title and its text. Errors are permanent, since
// a template fails each time in the same way.
func (t Text) of(raw Notification) (p Notification, title, text string, err error) {
	p = raw.visible()
	title, titleErr := execute(t.title, p, p.Title())
	text, textErr := execute(t.text, p, p.Text())
	if err := errors.Join(titleErr, textErr); err != nil {
		return Notification{}, "", "", backoff.Permanent(fmt.Errorf("alert: %w", err))
	}
	title = escape.Text(strings.Join(strings.Fields(title), " "))
	return p, cut(title, maxTitle), cut(escape.Lines(text), maxText), nil
}

// visible returns a copy of p in which every text from an event is escaped. A message id may have
// line ends, which would look like further lines of the notification.
func (p Notification) visible() Notification {
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

// Where names the entity of the group, or else the namespace.
func (p Notification) Where() string {
	entity, subscription := p.Labels["entity"], p.Labels["subscription"]
	switch {
	case entity == "":
		return strings.TrimPrefix(p.Source, "sb://")
	case subscription != "":
		return entity + "/" + subscription
	}
	return entity
}

// events returns the kind of n events: missed deadlines, for example.
func (p Notification) events(n int) string {
	nouns, ok := nounsOf[p.Labels["type"]]
	if !ok {
		nouns = [2]string{"event", "events"}
	}
	if n == 1 {
		return nouns[0]
	}
	return nouns[1]
}

var nounsOf = map[string][2]string{
	TypeMissed:     {"missed deadline", "missed deadlines"},
	TypeIncomplete: {"message not completed in time", "messages not completed in time"},
	TypeNear:       {"approaching deadline", "approaching deadlines"},
}

// Title returns the default title, one line.
func (p Notification) Title() string {
	switch {
	case p.Resolved:
		return fmt.Sprintf("Resolved: %d %s on %s, the last at %s", p.Total, p.events(p.Total), p.Where(), stamp(p.Last))
	case p.Count == 0:
		return fmt.Sprintf("%d %s on %s since %s", p.Total, p.events(p.Total), p.Where(), stamp(p.Since))
	case p.Total > p.Count:
		return fmt.Sprintf("%d more %s on %s, %d since %s", p.Count, p.events(p.Count), p.Where(), p.Total, stamp(p.Since))
	}
	return fmt.Sprintf("%d %s on %s", p.Count, p.events(p.Count), p.Where())
}

// Text returns the default text, several lines, or "".
func (p Notification) Text() string {
	var lines []string
	if p.Oldest != nil {
		lines = append(lines, fmt.Sprintf("Oldest: %s, due %s", p.Oldest.Subject, stamp(p.Oldest.Data.Deadline)))
	}
	if p.WorstLag > 0 && p.Labels["type"] != TypeNear {
		lines = append(lines, "Worst lag: "+roughly(p.WorstLag))
	}
	for _, e := range p.Samples {
		line := "- " + e.Subject
		if e.Data.SessionID != "" {
			line += ", session " + e.Data.SessionID
		}
		line += ", due " + stamp(e.Data.Deadline)
		if e.Data.CorrelationID != "" {
			line += ", correlation id " + e.Data.CorrelationID
		}
		lines = append(lines, line)
	}
	if more := p.Count - len(p.Samples); more > 0 && len(p.Samples) > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// roughly returns d with a unit and no more digits than a reader needs.
func roughly(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func (p Notification) state() string {
	if p.Resolved {
		return "resolved"
	}
	return "firing"
}

// alertLabels returns the labels of the group as an alert of Prometheus.
func (p Notification) alertLabels() map[string]string {
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

// alertName returns OverdueDeadlineMissed for overdue.deadline.missed.
func alertName(eventType string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(eventType, ".") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}
