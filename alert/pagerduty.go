// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// pagerDutyURL is the Events API v2. The service region Europe has another host.
const pagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

// PagerDutyConfig configures a sink that opens incidents in PagerDuty.
type PagerDutyConfig struct {
	HTTP              // "" = pagerDutyURL
	RoutingKey string // the integration key, a secret
	Severity   string // of a missed deadline, "" = error; critical, error, warning or info
}

type pagerDuty struct {
	text Text
	cfg  PagerDutyConfig
	*poster
}

// NewPagerDuty makes a Notifier that opens an incident for each group and resolves it.
//
// The service of shoutrrr for it does not suffice: it has details and links in fields that the
// Events API v2 does not read. It says neither when to try again nor which answers are final.
func NewPagerDuty(name string, cfg PagerDutyConfig, text Text) (Notifier, error) {
	if cfg.RoutingKey == "" {
		return nil, errors.New("alert: pagerduty needs a routing key")
	}
	cfg.URL, cfg.Severity = cmp.Or(cfg.URL, pagerDutyURL), cmp.Or(cfg.Severity, "error")
	p, err := newPoster("pagerduty", name, cfg.HTTP)
	if err != nil {
		return nil, err
	}
	return &pagerDuty{text, cfg, p}, nil
}

func (a *pagerDuty) Notify(ctx context.Context, p Notification) error {
	p, title, text, err := a.text.render(p)
	if err != nil {
		return err
	}
	return a.postWithin(ctx, maxPagerDuty, text, func(text string) any { return a.event(&p, title, text) })
}

func (a *pagerDuty) event(p *Notification, title, text string) object {
	event := object{"routing_key": a.cfg.RoutingKey, "dedup_key": p.Key, "event_action": "trigger"}
	if p.Resolved {
		event["event_action"] = "resolve"
	}
	details := object{"description": text, "events": p.Total, "new": p.Count, "since": p.Since.UTC(), "worst_lag": p.WorstLag.String()}
	for name, value := range p.sinkLabels() {
		details[name] = value
	}
	event["payload"] = object{
		"summary": title, "source": p.Source, "severity": p.severity(a.cfg.Severity), "timestamp": p.Last.UTC().Format(time.RFC3339),
		"component": p.Where(), "class": p.Labels["type"], "custom_details": details,
	}
	if links := p.links(); len(links) > 0 {
		event["links"] = links
	}
	return event
}
