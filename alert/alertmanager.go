// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"overdue/internal/httpclient"
	"overdue/internal/servicebus/duration"
)

const (
	// alertmanagerResend is how often an Alertmanager gets an alert that still fires, since it
	// forgets alerts when it restarts.
	alertmanagerResend = time.Minute
	// alertmanagerLife is how long an alert stays if no more is heard of it. Only an answer of the
	// namespace shows that a group is over, so an alert must outlast the longest time in which the
	// namespace, or this process, does not answer.
	alertmanagerLife = 7 * 24 * time.Hour
)

// alertmanager posts to the v2 API of Alertmanager, which groups, silences and routes from there.
type alertmanager struct {
	text Text
	cfg  AlertmanagerConfig
	*poster
}

// AlertmanagerConfig configures a sink that posts alerts to an Alertmanager.
type AlertmanagerConfig struct {
	HTTP                          // its URL is the base URL of the Alertmanager; alertsPath is added unless it is there
	Severity    string            // of a missed deadline, "" = critical; critical, error, warning or info
	Labels      map[string]string // of each alert whose entity does not have them
	Annotations map[string]string // likewise
}

// Bounds of the labels, and of the annotations, of a configuration.
const (
	maxExtras     = 32
	maxExtraValue = 4 << 10 // bytes
)

// check checks the labels and the annotations. Its errors are of the type [SettingError].
func (c *AlertmanagerConfig) check() error {
	ownLabels := slices.AppendSeq([]string{"alertname", "source", "severity"}, maps.Keys(labelOf))
	for _, extra := range []struct {
		key    string
		values map[string]string
		own    []string
	}{
		{"labels", c.Labels, ownLabels},
		{"annotations", c.Annotations, []string{"summary", "description", "dashboard_url", "runbook_url"}},
	} {
		wrong := func(format string, args ...any) error {
			return &SettingError{"alertmanager." + extra.key, fmt.Errorf(format, args...)}
		}
		if len(extra.values) > maxExtras {
			return wrong("there are %d entries; give %d at most", len(extra.values), maxExtras)
		}
		for _, name := range slices.Sorted(maps.Keys(extra.values)) {
			switch value := extra.values[name]; {
			case !labelName.MatchString(name) || len(name) > maxLabelName:
				return wrong("%.60q is not a name; use letters, digits and '_', and no digit in front", name)
			case slices.Contains(extra.own, name):
				return wrong("Overdue sets %s itself; use another name", name)
			case len(value) > maxExtraValue || !utf8.ValidString(value):
				return wrong("the value of %s is not UTF-8 of %d bytes at most", name, maxExtraValue)
			}
		}
	}
	return nil
}

// alertsPath is where an Alertmanager takes alerts, below its base URL.
const alertsPath = "/api/v2/alerts"

// NewAlertmanager makes a Notifier that posts alerts to an Alertmanager.
func NewAlertmanager(name string, cfg AlertmanagerConfig, text Text) (Notifier, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	u, err := httpclient.ParseURL(cfg.URL) // newPoster has the error
	if err == nil && !strings.HasSuffix(u.Path, alertsPath) {
		cfg.URL = u.JoinPath(alertsPath).String() // which keeps the query
	}
	cfg.Severity = cmp.Or(cfg.Severity, "critical")
	p, err := newPoster("alertmanager", name, cfg.HTTP)
	if err != nil {
		return nil, err
	}
	return &alertmanager{text, cfg, p}, nil
}

type postableAlert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
	Generator   string            `json:"generatorURL,omitempty"`
}

func (a *alertmanager) Notify(ctx context.Context, p Notification) error {
	p, title, text, err := a.text.render(p)
	if err != nil {
		return err
	}
	one := postableAlert{Labels: maps.Clone(a.cfg.Labels), Annotations: p.annotations(title, text), Generator: p.Dashboard} // labels identify it
	if one.Labels == nil {
		one.Labels = map[string]string{}
	}
	maps.Copy(one.Labels, p.alertLabels()) // those of the entity count more
	one.Labels["severity"] = p.severity(a.cfg.Severity)
	maps.Copy(one.Annotations, a.cfg.Annotations)
	// The first answer may show that the clock of the Alertmanager is another.
	for tries := 0; ; tries++ {
		one.setTimes(&p, a.now())
		err = a.post(ctx, "application/json", "", p.trace(), []postableAlert{one})
		if tries > 0 || !one.isAhead(&p, a.now()) {
			return err
		}
	}
}

// dateError is how far a time in an answer may be from the truth: it has whole seconds.
const dateError = 2 * time.Second

// setTimes sets the times that fit the clock of the Alertmanager. An alert whose end is not in its
// past is not resolved.
func (a *postableAlert) setTimes(n *Notification, now time.Time) {
	a.StartsAt, a.EndsAt = duration.Earlier(n.Since, now.Add(-dateError)).UTC(), now.Add(alertmanagerLife).UTC()
	if n.Resolved {
		a.EndsAt = now.Add(-dateError).UTC()
	}
}

// isAhead reports whether an alert with these times does not say what n says.
func (a *postableAlert) isAhead(n *Notification, now time.Time) bool {
	return a.StartsAt.After(now) || n.Resolved == a.EndsAt.After(now)
}
