// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net"
	"net/url"

	"overdue/alert"
	"overdue/internal/adminport"
	"overdue/internal/config"
)

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
