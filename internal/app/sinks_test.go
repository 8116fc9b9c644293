// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"net"
	"strings"
	"testing"

	"overdue/alert"
	"overdue/internal/adminport"
	"overdue/internal/config"
)

func TestEveryKindOfSinkIsMade(t *testing.T) {
	const hook = "http://127.0.0.1:1/hook"
	for name, tt := range map[string]struct {
		sink    string
		events  bool // it takes events, not groups of them
		address string
	}{
		"webhook":         {"webhook: {url: " + hook + "}", true, hook},
		"grouped webhook": {"webhook: {url: " + hook + ", grouped: true}", false, hook},
		"alertmanager":    {"alertmanager: {url: " + hook + "}", false, hook},
		"slack":           {"slack: {url: " + hook + "}", false, hook},
		"teams":           {"teams: {url: " + hook + "}", false, hook},
		"pagerduty":       {"pagerduty: {routingKey: k, url: " + hook + "}", false, hook},
		"email":           {"email: {host: mail.invalid, from: a@b.example, to: c@d.example}", false, ""},
		"serviceBus":      {"serviceBus: {entity: events}", true, ""},
		"shoutrrr":        {"shoutrrr: {url: \"discord://token@1234\"}", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := loadText(t, "alerts: [{"+tt.sink+"}]\nbroker: {queues: [{name: events}]}\n", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			events, pages, err := NewSink(&c.Alerts[0], nil)
			if err != nil || (events != nil) != tt.events || (pages != nil) == tt.events {
				t.Errorf("sink = %v, %v, %v, want one, of events: %v", events, pages, err, tt.events)
			}
			if got := SinkAddress(&c.Alerts[0]); got != tt.address {
				t.Errorf("address = %q, want %q", got, tt.address)
			}
		})
	}
}

func TestTheCheckOfASinkHasTheNameThatPeopleKnow(t *testing.T) {
	for sink, want := range map[string]string{
		"{webhook: {url: http://127.0.0.1:1/s3cr3t}}":                              "sink webhook (127.0.0.1:1)",
		"{name: pager, slack: {url: https://hooks.slack.invalid/services/s3cr3t}}": "sink pager (hooks.slack.invalid)",
		"{email: {host: mail.invalid, from: a@b.example, to: c@d.example}}":        "sink email (mail.invalid)",
		"{name: phone, shoutrrr: {url: \"ntfy://ntfy.sh/s3cr3t\"}}":                "sink phone",
	} {
		c, err := loadText(t, "alerts: ["+sink+"]\n", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		events, pages, err := NewSink(&c.Alerts[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		check := AskSink(&c.Alerts[0], events, pages)
		if check.Name != want {
			t.Errorf("the check of %s is %q, want %q", sink, check.Name, want)
		}
		// It has to say so where nobody was asked.
		var said adminport.Remark
		if asked := !errors.As(check.OK(t.Context()), &said); asked == (want == "sink phone") {
			t.Errorf("%s was asked: %v", want, asked)
		}
	}
}

func TestTheCheckOfASinkConnectsAndQuotesNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	check := SinkCheck("hook", "http://"+ln.Addr().String()+"/s3cr3t")
	if err := check.OK(t.Context()); err != nil {
		t.Errorf("check = %v, want nil", err)
	}
	ln.Close()
	for raw, want := range map[string]string{
		"http://" + ln.Addr().String() + "/s3cr3t": "connection refused",
		"http://127.0.0.1/%zz/s3cr3t":              "its URL cannot be read",
	} {
		if err := SinkCheck("hook", raw).OK(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("check of %s = %v, want %q", raw, err, want)
		}
	}
}

func TestAMissedMessageIsHandledAsItsEntitySays(t *testing.T) {
	p := startTest(t, "broker: {queues: [{name: orders, deadLetteringOnMessageExpiration: true}, {name: late}, {name: bills}]}\n"+
		"monitor: {entities: [{queue: orders, forwardMissedTo: late, reportToSender: true}, {queue: bills}]}\n")
	for entity, want := range map[string]alert.Handling{
		"orders": {ForwardTo: "late", Report: true}, "bills": {}, "unknown": {},
	} {
		if got := p.sinks.handling(entity); got != want {
			t.Errorf("handling of %s = %+v, want %+v", entity, got, want)
		}
	}
}

func TestCheckFindsWhatAStartWouldFind(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"nothing wrong": {"alerts: [{slack: {url: \"http://localhost/x\"}}, {serviceBus: {entity: events}}]\nbroker: {queues: [{name: events}]}\n", ""},
		"a title":       {"alerts:\n  - slack: {url: \"http://localhost/x\"}\n    title: \"{{.Nope\"\n", "overdue.yaml:3: alerts[0].title: "},
		"a rule":        {"broker: {topics: [{name: t, subscriptions: [{name: s, rules: [{name: r, sql: \"price >\"}]}]}]}\n", "rule \"r\": the filter"},
		"an address of the administration API": {"namespace: contoso.servicebus.windows.net\nnamespaceAdmin: http://contoso.example\n",
			"overdue.yaml:2: namespaceAdmin is not HTTPS"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := loadText(t, tt.text, nil, nil)
			if err == nil {
				err = Check(c, config.RoleRun)
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("check = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCheckReadsTheCertificates(t *testing.T) {
	text := "listen: {amqps: \"127.0.0.1:0\", tls: {certFile: c.pem, keyFile: k.pem}}\nbroker: {tls: {enabled: true, certFile: c.pem, keyFile: k.pem}}\n"
	c, err := loadHere(t, text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = Check(c, config.RoleRun)
	for _, want := range []string{"listen.tls.certFile: open c.pem", "broker.tls.certFile: open c.pem"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check = %v, want %q", err, want)
		}
	}
	if err := Check(c, config.RoleBroker); err == nil || strings.Contains(err.Error(), "listen.tls") {
		t.Errorf("check of a role without endpoints = %v, want nothing about them", err)
	}
}
