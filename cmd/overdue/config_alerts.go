// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// alertConfig is one sink of alerts. Exactly one of the kinds is given.
type alertConfig struct {
	Name     string      `koanf:"name"`
	Entities []string    `koanf:"entities"`
	Events   []string    `koanf:"events"`
	Title    string      `koanf:"title"`
	Text     string      `koanf:"text"`
	Group    groupConfig `koanf:"group"`

	Webhook      *webhookConfig    `koanf:"webhook"`
	Alertmanager *requestConfig    `koanf:"alertmanager"`
	Slack        *requestConfig    `koanf:"slack"`
	Teams        *requestConfig    `koanf:"teams"`
	PagerDuty    *pagerDutyConfig  `koanf:"pagerduty"`
	Email        *emailConfig      `koanf:"email"`
	ServiceBus   *serviceBusConfig `koanf:"serviceBus"`
	Shoutrrr     *shoutrrrConfig   `koanf:"shoutrrr"`

	key string // alerts[0].webhook: where the kind is given
}

// groupConfig says how events become pages.
type groupConfig struct {
	By           []string      `koanf:"by"`
	Wait         time.Duration `koanf:"wait"`
	Interval     time.Duration `koanf:"interval"`
	ResolveAfter time.Duration `koanf:"resolveAfter"`
}

// requestConfig is a sink that takes requests over HTTP.
type requestConfig struct {
	URL     string        `koanf:"url"`
	URLFile string        `koanf:"urlFile"`
	Timeout time.Duration `koanf:"timeout"`
}

// webhookConfig gets a CloudEvent for each event, or pages.
type webhookConfig struct {
	requestConfig `koanf:",squash"`
	Grouped       bool `koanf:"grouped"`
}

type pagerDutyConfig struct {
	RoutingKey     string        `koanf:"routingKey"`
	RoutingKeyFile string        `koanf:"routingKeyFile"`
	Severity       string        `koanf:"severity"`
	URL            string        `koanf:"url"`
	Timeout        time.Duration `koanf:"timeout"`
}

type emailConfig struct {
	Host         string        `koanf:"host"`
	Port         int64         `koanf:"port"`
	Security     string        `koanf:"security"`
	Username     string        `koanf:"username"`
	Password     string        `koanf:"password"`
	PasswordFile string        `koanf:"passwordFile"`
	From         string        `koanf:"from"`
	To           []string      `koanf:"to"`
	Timeout      time.Duration `koanf:"timeout"`
}

type serviceBusConfig struct {
	Entity string `koanf:"entity"`
}

type shoutrrrConfig struct {
	URL     string `koanf:"url"`
	URLFile string `koanf:"urlFile"`
}

// kinds is the sinks that the element gives, by their keys.
func (a *alertConfig) kinds() (given []string) {
	for _, k := range []struct {
		name  string
		given bool
	}{
		{"webhook", a.Webhook != nil}, {"alertmanager", a.Alertmanager != nil}, {"slack", a.Slack != nil}, {"teams", a.Teams != nil},
		{"pagerduty", a.PagerDuty != nil}, {"email", a.Email != nil}, {"serviceBus", a.ServiceBus != nil}, {"shoutrrr", a.Shoutrrr != nil},
	} {
		if k.given {
			given = append(given, k.name)
		}
	}
	return given
}

// completeAlerts reads the files that hold secrets and gives every sink a name of its own.
func (c *config) completeAlerts() error {
	var errs []error
	taken := map[string]int{}
	for i := range c.Alerts {
		a := &c.Alerts[i]
		element := fmt.Sprintf("alerts[%d]", i)
		kinds := a.kinds()
		if len(kinds) != 1 {
			what := "names no sink"
			if len(kinds) > 1 {
				what = "names " + strings.Join(kinds, " and ")
			}
			errs = append(errs, fmt.Errorf("%s %s; give it one of webhook, alertmanager, slack, teams, pagerduty, email, serviceBus, shoutrrr", c.at(element), what))
			continue
		}
		a.key = element + "." + kinds[0]
		errs = append(errs, c.completeSink(a), c.checkEvents(a))
		if a.Alertmanager != nil && c.origin[element+".group.wait"] == "" {
			a.Group.Wait = 0
		}
		if a.Name == "" {
			a.Name = kinds[0]
			for n := 2; taken[a.Name] > 0; n++ {
				a.Name = fmt.Sprintf("%s-%d", kinds[0], n)
			}
		}
		if taken[a.Name]++; taken[a.Name] > 1 || a.Name == "log" {
			errs = append(errs, fmt.Errorf("%s: there is another sink %q; give each a name of its own", c.at(element+".name"), a.Name))
		}
	}
	return errors.Join(errs...)
}

// completeSink puts what files hold in its place.
func (c *config) completeSink(a *alertConfig) error {
	url := func(r *requestConfig) error {
		if err := c.secret(a.key, "url", &r.URL, "urlFile", r.URLFile); err != nil {
			return err
		}
		if err := checkURL(r.URL); err != nil {
			return fmt.Errorf("%s: %w", c.at(a.key+".urlFile"), err)
		}
		return nil
	}
	switch {
	case a.Webhook != nil:
		return url(&a.Webhook.requestConfig)
	case a.Alertmanager != nil:
		return url(a.Alertmanager)
	case a.Slack != nil:
		return url(a.Slack)
	case a.Teams != nil:
		return url(a.Teams)
	case a.PagerDuty != nil:
		return c.secret(a.key, "routingKey", &a.PagerDuty.RoutingKey, "routingKeyFile", a.PagerDuty.RoutingKeyFile)
	case a.Shoutrrr != nil:
		return c.secret(a.key, "url", &a.Shoutrrr.URL, "urlFile", a.Shoutrrr.URLFile)
	case a.ServiceBus != nil:
		if err := checkEntity(a.ServiceBus.Entity); err != nil {
			return fmt.Errorf("%s: %w", c.at(a.key+".entity"), err)
		}
		if strings.EqualFold(a.ServiceBus.Entity, c.MonitorQueue) {
			return fmt.Errorf("%s is %q, the monitor queue; give another queue or topic", c.at(a.key+".entity"), a.ServiceBus.Entity)
		}
		return nil
	}
	e := a.Email
	switch {
	case e.Host == "":
		return fmt.Errorf("%s lacks host", c.at(a.key))
	case e.From == "":
		return fmt.Errorf("%s lacks from", c.at(a.key))
	case len(e.To) == 0:
		return fmt.Errorf("%s lacks to", c.at(a.key))
	case e.Username == "":
		return nil
	}
	return c.secret(a.key, "password", &e.Password, "passwordFile", e.PasswordFile)
}

// secret demands one of a value and a file that holds it, and reads the file.
func (c *config) secret(section, key string, value *string, fileKey, file string) error {
	if (*value == "") == (file == "") {
		return fmt.Errorf("%s needs one of %s and %s", c.at(section), key, fileKey)
	}
	if file == "" {
		return nil
	}
	text, err := readBounded(file, maxSecretFile)
	if err != nil {
		return fmt.Errorf("%s: %w", c.at(section+"."+fileKey), err)
	}
	if *value = strings.TrimSpace(string(text)); *value == "" {
		return fmt.Errorf("%s: %s is empty; it has to hold the %s", c.at(section+"."+fileKey), file, key)
	}
	return nil
}

// isSink reports whether events are sent to an entity, which therefore is not monitored unless somebody says so.
func (c *config) isSink(entity string) bool {
	return slices.ContainsFunc(c.Alerts, func(a alertConfig) bool {
		return a.ServiceBus != nil && strings.EqualFold(a.ServiceBus.Entity, entity)
	})
}
