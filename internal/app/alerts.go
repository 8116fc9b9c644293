// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"overdue/alert"
	"overdue/internal/adminport"
	"overdue/internal/catalog"
	"overdue/internal/config"
	"overdue/internal/history"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/link"
	"overdue/internal/traces"
	"overdue/internal/version"
)

// A sinkSet makes the sinks of configurations, and keeps those that the next one has, too: what groups know of the
// events of the last minutes is theirs.
type sinkSet struct {
	*environment
	namespace *connection
	catalog   *catalog.Catalog
	traces    *traces.Tracer // nil: off
	pages     alert.Pool     // of the fleet; nil without Redis
	sight     *alert.Sight
	outbox    alert.Outbox
	describe  func(ctx context.Context, entity string) (entities.Info, error)
	logged    alert.Alerter                 // every event is
	forward   atomic.Pointer[alert.Forward] // nil until a configuration needs it
	history   *history.History

	active []activeSink
}

// activeSink is a sink in force.
type activeSink struct {
	cfg  config.Alert
	sink alert.Alerter
	ask  adminport.Check
}

// fill makes what c has and the set has not. Nothing of it counts before take is called with what it returns. An error
// is of type *config.Error.
func (s *sinkSet) fill(c *config.Config) (next []activeSink, err error) {
	for i := range c.Alerts {
		a := c.Alerts[i]
		key := a.Key
		a.Key = "" // where it stands in the list says nothing of the sink
		if j := slices.IndexFunc(s.active, func(r activeSink) bool { return reflect.DeepEqual(r.cfg, a) }); j >= 0 {
			next = append(next, activeSink{a, s.active[j].sink, s.active[j].ask})
			continue
		}
		selection, err := a.Selection()
		if err != nil {
			return nil, err // it was checked before
		}
		sink, ask, err := s.alerter(&a)
		if err != nil {
			return nil, &config.Error{Err: fmt.Errorf("%s: %w", sinkAt(c, key, err), err)}
		}
		next = append(next, activeSink{a, selection.Only(s.history.Record(sink)), ask})
	}
	if s.forward.Load() == nil && slices.ContainsFunc(c.Monitor.Entities, func(e config.Entity) bool { return e.ForwardMissedTo != "" || e.ReportToSender }) {
		f, err := alert.NewForward(alert.ForwardConfig{
			Links:        s.namespace.links,
			Handling:     s.handling,
			MonitorQueue: s.cfg.MonitorQueue,
			Log:          s.log.Named(alertLog),
		})
		if err != nil {
			return nil, err
		}
		s.forward.Store(f)
	}
	return next, nil
}

// sinkAt names the setting that an error of a sink is about, or else the sink, and its place. A
// value that comes from a file has the place of that.
func sinkAt(c *config.Config, key string, err error) string {
	bad := (*alert.SettingError)(nil)
	if !errors.As(err, &bad) {
		return c.At(key)
	}
	key = key[:strings.LastIndexByte(key, '.')+1] + bad.Key
	if at := c.At(key); at != key {
		return at
	}
	return c.At(key + "File")
}

// take returns the sinks that get events from now on: the log always, then those of the configuration.
func (s *sinkSet) take(next []activeSink) []alert.Alerter {
	s.active = next
	all := []alert.Alerter{s.logged}
	var checks []adminport.Check
	for i := range next {
		all = append(all, alert.Unmuted(next[i].sink))
		checks = append(checks, next[i].ask)
	}
	if f := s.forward.Load(); f != nil {
		all = append(all, f)
	}
	for i := range all {
		all[i] = tracedSink{Alerter: all[i], tracer: s.traces, records: i == 0}
		if queue := s.cfg.Canary.Queue; queue != "" {
			all[i] = alert.Without(all[i], queue)
		}
	}
	s.admin.Sinks.Store(&checks)
	return all
}

// handling says what to do with a message that has missed its deadline, in addition to notifications.
func (s *sinkSet) handling(entity string) alert.Handling {
	if e, _ := s.catalog.View().Entity(entity); e != nil {
		return alert.Handling{ForwardTo: e.ForwardMissedTo, Report: e.ReportToSender}
	}
	return alert.Handling{}
}

// alerter is one sink: of events, or of notifications behind groups. ask is its check.
func (s *sinkSet) alerter(a *config.Alert) (sink alert.Alerter, ask adminport.Check, err error) {
	events, pager, err := NewSink(a, s.namespace.links)
	if err != nil {
		return nil, ask, err
	}
	ask = AskSink(a, events, pager)
	if events != nil {
		return events, ask, nil
	}
	sink, err = alert.NewGroups(alert.GroupsConfig{
		Outbox: s.outbox, Source: alert.SourceOf(s.namespace.Host, ""), Sink: pager, Pool: s.pages, Sight: s.sight,
		Tracker: s.history, By: a.Group.By, Wait: a.Group.Wait, Interval: a.Group.Interval, ResolveAfter: a.Group.ResolveAfter,
		DeadLetters: deadLetters(s.namespace.links).below(s.describe), Log: s.log.Named(alertLog),
	})
	return sink, ask, err
}

// runbook is the page that alerts link where the configuration names none.
const runbook = "docs/operate/troubleshoot.md#overduedeadlinemissed"

// NewSink makes the sink of events, or else the sink of grouped events, of a configuration.
func NewSink(a *config.Alert, links *link.Namespace) (events alert.Alerter, pages alert.Notifier, err error) {
	text, err := alert.NewText(a.Title, a.Text)
	if err != nil {
		return nil, nil, err
	}
	if text, err = text.WithLinks(a.Links.Dashboard, cmp.Or(a.Links.Runbook, version.DocURL(runbook))); err != nil {
		return nil, nil, err
	}
	switch {
	case a.ServiceBus != nil:
		events = alert.NewServiceBus(a.Name, links, a.ServiceBus.Entity)
	case a.Webhook != nil && !a.Webhook.Grouped:
		events, err = alert.NewWebhook(a.Name, webhook(a.Webhook))
	case a.Webhook != nil:
		pages, err = alert.NewWebhookNotifier(a.Name, webhook(a.Webhook), text)
	case a.Alertmanager != nil:
		d := a.Alertmanager
		pages, err = alert.NewAlertmanager(a.Name, alert.AlertmanagerConfig{
			HTTP: server(&d.Server), Severity: d.Severity, Labels: d.Labels, Annotations: d.Annotations,
		}, text)
	case a.Slack != nil:
		pages, err = alert.NewChat("slack", a.Name, alert.HTTP{URL: a.Slack.URL}, text)
	case a.Teams != nil:
		pages, err = alert.NewChat("teams", a.Name, alert.HTTP{URL: a.Teams.URL}, text)
	case a.PagerDuty != nil:
		d := a.PagerDuty
		pages, err = alert.NewPagerDuty(a.Name, alert.PagerDutyConfig{
			HTTP: alert.HTTP{URL: d.URL}, RoutingKey: d.RoutingKey, Severity: d.Severity,
		}, text)
	case a.Email != nil:
		e := a.Email
		pages, err = alert.NewEmail(a.Name, alert.EmailConfig{
			Host: e.Host, Port: int(e.Port), Security: e.Security, Username: e.Username, Password: e.Password,
			From: e.From, To: e.To,
		}, text)
	case a.Shoutrrr != nil:
		pages, err = alert.NewShoutrrr(a.Name, a.Shoutrrr.URL, text)
	}
	return events, pages, err
}

// server is a sink behind a server of the operator's own.
func server(s *config.Server) alert.HTTP {
	return alert.HTTP{
		URL: s.URL, Roots: s.Authority, Headers: s.Headers,
		BearerToken: s.BearerToken, Username: s.Username, Password: s.Password,
	}
}

func webhook(w *config.Webhook) alert.HTTP {
	h := server(&w.Server)
	h.Timeout = w.Timeout
	h.SigningSecrets = strings.Fields(w.SigningSecret)
	return h
}

// AskSink is the check of a sink that NewSink has made. It has the name that logs and metrics have,
// and the host.
func AskSink(a *config.Alert, events alert.Alerter, pages alert.Notifier) adminport.Check {
	name := "sink " + a.Name
	if u, err := url.Parse(SinkAddress(a)); err == nil && u.Host != "" {
		name += " (" + u.Host + ")"
	} else if a.Email != nil {
		name += " (" + a.Email.Host + ")"
	}
	var sink any = pages
	if events != nil {
		sink = events
	}
	if c, can := sink.(interface{ Check(context.Context) error }); can {
		return adminport.Check{Name: name, OK: c.Check}
	}
	return adminport.Check{Name: name, OK: func(context.Context) error {
		return adminport.Remark("not asked, since its service takes nothing but alerts; overdue doctor --send-test sends it one")
	}}
}

// SinkAddress is the URL of the sink; "" when it has none.
func SinkAddress(a *config.Alert) string {
	switch {
	case a.Webhook != nil:
		return a.Webhook.URL
	case a.Alertmanager != nil:
		return a.Alertmanager.URL
	case a.Slack != nil:
		return a.Slack.URL
	case a.Teams != nil:
		return a.Teams.URL
	case a.PagerDuty != nil:
		return a.PagerDuty.URL
	}
	return ""
}

// SinkCheck opens a connection to a host. It sends nothing.
func SinkCheck(name, raw string) adminport.Check {
	return adminport.Check{Name: name, OK: func(ctx context.Context) error {
		u, err := url.Parse(raw)
		if err != nil {
			return errors.New("its URL cannot be read") // the error would quote it
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
		if err != nil {
			return err
		}
		return c.Close()
	}}
}
