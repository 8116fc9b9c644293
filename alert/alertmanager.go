// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// AlertmanagerResend is how often an Alertmanager gets an alert that still fires, as its API
// requires.
const AlertmanagerResend = time.Minute

// alertmanager posts to the v2 API of Alertmanager, which groups, silences and routes from there.
type alertmanager struct {
	name string
	text Text
	*poster
	now func() time.Time
}

// NewAlertmanager makes a Notifier. The URL is the base URL of the Alertmanager, without
// api/v2/alerts.
func NewAlertmanager(name string, cfg HTTP, text Text) (Notifier, error) {
	cfg.URL = strings.TrimSuffix(cfg.URL, "/") + "/api/v2/alerts"
	p, err := newPoster("alertmanager", cfg)
	if err != nil {
		return nil, err
	}
	return &alertmanager{cmp.Or(name, "alertmanager"), text, p, time.Now}, nil
}

func (a *alertmanager) Name() string { return a.name }

type postableAlert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

func (a *alertmanager) Notify(ctx context.Context, p Notification) error {
	p, title, text, err := a.text.of(p)
	if err != nil {
		return err
	}
	// The labels identify an alert. It ends by itself if this process does.
	ends := a.now().Add(4 * AlertmanagerResend)
	if p.Resolved {
		ends = a.now()
	}
	return a.post(ctx, "application/json", []postableAlert{{
		Labels: p.alertLabels(), Annotations: map[string]string{"summary": title, "description": text},
		StartsAt: p.Since, EndsAt: ends.UTC(),
	}})
}
