// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
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
	maxName   = 1000    // characters of a text from an event: a correlation id may have any length
)

// Text words the notifications of a sink. The zero value uses [Notification.Title] and
// [Notification.Text].
type Text struct {
	title, text        *template.Template
	dashboard, runbook string // with placeholders
	mentions           bool   // the sink sends texts as they are, and some words of them notify people or link
}

// A SettingError is a mistake in a setting of a sink.
type SettingError struct {
	Key string // such as title, links.runbook or webhook.headers
	Err error
}

// Error is the error without the key. That of a template names the line and the action.
func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns the error without the key.
func (e *SettingError) Unwrap() error { return e.Err }

// NewText parses two Go templates, which are executed with a [Notification]. An empty template
// keeps the default wording. NewText also executes both, for a group that fires and for one that is
// resolved, so that a mistake shows at start and not when an alert is due. Its error is a
// *[SettingError].
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
		{Labels: map[string]string{"entity": "orders"}, Resolved: true, Total: 1, DeadLetters: &DeadLetters{}},
	} {
		if _, _, _, err := t.render(p); err != nil {
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
		return nil, &SettingError{Key: key, Err: err}
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
		return "", &SettingError{Key: t.Name(), Err: err}
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

// render returns p with every text made visible, its title and its text. Errors are permanent,
// since a template fails each time in the same way.
func (t Text) render(raw Notification) (p Notification, title, text string, err error) {
	show := func(s string) string { return cut(escape.Text(s), maxName) }
	if t.mentions {
		show = func(s string) string {
			return cut(mention.ReplaceAllString(escape.Text(s), "$1$3 $2$4"), maxName)
		}
	}
	p = raw.shown(show)
	runbook := t.runbook
	if own := raw.Labels[labelRunbook]; own != "" && checkLink(own) == nil { // digests may come from outside
		runbook = own
	}
	p.Dashboard, p.Runbook = raw.link(t.dashboard), raw.link(runbook)
	title, titleErr := execute(t.title, p, p.Title())
	text, textErr := execute(t.text, p, p.Text())
	if err := errors.Join(titleErr, textErr); err != nil {
		return Notification{}, "", "", backoff.Permanent(fmt.Errorf("alert: %w", err))
	}
	// No service takes a title without text.
	title = cmp.Or(strings.Join(strings.Fields(title), " "), p.Title())
	return p, cut(escape.Text(title), maxTitle), cut(escape.Lines(strings.TrimSpace(text)), maxText), nil
}

// mention matches what notifies people in some chats, such as @channel and <!here>, and links whose
// text hides where they lead, such as [x](https://y) and <https://y|x>.
var mention = regexp.MustCompile(`((?:^|[^0-9A-Za-z])@|<)([!@#&0-9A-Za-z])|(\])(\()`)

// shown returns a copy of p with show applied to every text. A message id may have line ends, which
// would look like further lines of the notification.
func (p Notification) shown(show func(string) string) Notification {
	showAll(reflect.ValueOf(&p).Elem(), show)
	return p
}

// showAll applies show to every text in v, but the names of labels. It changes copies of what v
// refers to.
func showAll(v reflect.Value, show func(string) string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(show(v.String()))
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() { // not those of a time
				showAll(field, show)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			of := reflect.New(v.Type().Elem())
			of.Elem().Set(v.Elem())
			showAll(of.Elem(), show)
			v.Set(of)
		}
	case reflect.Slice:
		v.Set(reflect.AppendSlice(reflect.Zero(v.Type()), v))
		for i := range v.Len() {
			showAll(v.Index(i), show)
		}
	case reflect.Map: // of labels
		labels := maps.Clone(v.Interface().(map[string]string))
		for name, value := range labels {
			labels[name] = show(value)
		}
		v.Set(reflect.ValueOf(labels))
	}
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

// sinkLabels returns the labels of the group for a sink: the entity is named as in the metrics, so
// that alerts of sinks and of Prometheus rules share it.
func (p Notification) sinkLabels() map[string]string {
	labels := maps.Clone(p.Labels)
	if labels["entity"] != "" {
		labels["entity"] = p.Where()
	}
	return labels
}

// alertLabels returns the labels of the group as an alert of Prometheus.
func (p Notification) alertLabels() map[string]string {
	labels := map[string]string{"alertname": "OverdueDeadlineMissed", "source": p.Source}
	maps.Copy(labels, p.sinkLabels())
	if kind, ok := labels["type"]; ok {
		labels["alertname"] = alertName(kind)
		delete(labels, "type")
	}
	labels["severity"] = p.severity("critical")
	delete(labels, labelRunbook) // an annotation
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
