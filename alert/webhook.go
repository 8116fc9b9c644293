// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"maps"
	"time"
)

// webhook posts each event as a structured CloudEvent, by the CloudEvents HTTP webhook
// specification: any 2xx accepts it.
type webhook struct{ *poster }

// NewWebhook makes an Alerter that posts events to a URL. Each of several needs a name of its own.
func NewWebhook(name string, cfg HTTP) (Alerter, error) {
	p, err := newPoster("webhook", name, cfg)
	if err != nil {
		return nil, err
	}
	return &webhook{p}, nil
}

func (a *webhook) Alert(ctx context.Context, e Event) error {
	return a.post(ctx, "application/cloudevents+json; charset=utf-8", e.ID, e.Traceparent, e)
}

// webhookNotifier posts notifications as Alertmanager posts to its webhooks, version 4, so that
// receivers of those webhooks work here, too.
type webhookNotifier struct {
	text Text
	*poster
}

// NewWebhookNotifier makes a Notifier that posts to a URL.
func NewWebhookNotifier(name string, cfg HTTP, text Text) (Notifier, error) {
	p, err := newPoster("webhook", name, cfg)
	if err != nil {
		return nil, err
	}
	return &webhookNotifier{text, p}, nil
}

type hookMessage struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"`
	TruncatedAlerts   int               `json:"truncatedAlerts"`
	Status            string            `json:"status"`
	Receiver          string            `json:"receiver"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	Alerts            []hookAlert       `json:"alerts"`
}

type hookAlert struct {
	Status       string            `json:"status"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"`
	Event        *Event            `json:"event,omitempty"` // not in Alertmanager's form
}

func (a *webhookNotifier) Notify(ctx context.Context, p Notification) error {
	seen, title, text, err := a.text.render(p)
	if err != nil {
		return err
	}
	m := hookMessage{
		Version: "4", GroupKey: p.Key, Status: p.state(), Receiver: a.name, GroupLabels: seen.sinkLabels(), CommonLabels: seen.alertLabels(),
		CommonAnnotations: seen.annotations(title, text),
		TruncatedAlerts:   max(p.Count-len(p.Samples), 0),
	}
	one := hookAlert{Status: p.state(), Labels: seen.alertLabels(), Annotations: m.CommonAnnotations, StartsAt: p.Since, GeneratorURL: seen.Dashboard, Fingerprint: p.Key}
	if p.Resolved {
		one.EndsAt = p.Last
	}
	m.Alerts = append(m.Alerts, one)
	if len(p.Samples) > 0 {
		m.Alerts = m.Alerts[:0]
	}
	for i := range p.Samples {
		e := p.Samples[i]
		of := one
		of.Labels = maps.Clone(one.Labels)
		if e.Blind == nil { // otherwise it is about no message
			of.Labels["message_id"] = seen.Samples[i].Subject
		}
		of.StartsAt, of.Fingerprint, of.Event = e.Time, seen.Samples[i].ID, &e
		m.Alerts = append(m.Alerts, of)
	}
	return a.post(ctx, "application/json", p.id(), p.trace(), m)
}
