// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Alert is one sink of alerts. Exactly one of the kinds is given.
type Alert struct {
	Name     string   `koanf:"name"`
	Entities []string `koanf:"entities"`
	Events   []string `koanf:"events"`
	Title    string   `koanf:"title"`
	Text     string   `koanf:"text"`
	Group    Group    `koanf:"group"`

	Webhook      *Webhook    `koanf:"webhook"`
	Alertmanager *Request    `koanf:"alertmanager"`
	Slack        *Request    `koanf:"slack"`
	Teams        *Request    `koanf:"teams"`
	PagerDuty    *PagerDuty  `koanf:"pagerduty"`
	Email        *Email      `koanf:"email"`
	ServiceBus   *ServiceBus `koanf:"serviceBus"`
	Shoutrrr     *Shoutrrr   `koanf:"shoutrrr"`

	Key string // alerts[0].webhook: where the kind is given
}

// Group says how events become pages.
type Group struct {
	By           []string      `koanf:"by"`
	Wait         time.Duration `koanf:"wait"`
	Interval     time.Duration `koanf:"interval"`
	ResolveAfter time.Duration `koanf:"resolveAfter"`
}

// Request is a sink that takes requests over HTTP.
type Request struct {
	URL     string        `koanf:"url"`
	URLFile string        `koanf:"urlFile"`
	Timeout time.Duration `koanf:"timeout"`
}

// Webhook gets a CloudEvent for each event, or pages.
type Webhook struct {
	Request `koanf:",squash"`
	Grouped bool `koanf:"grouped"`
}

type PagerDuty struct {
	RoutingKey     string        `koanf:"routingKey"`
	RoutingKeyFile string        `koanf:"routingKeyFile"`
	Severity       string        `koanf:"severity"`
	URL            string        `koanf:"url"`
	Timeout        time.Duration `koanf:"timeout"`
}

type Email struct {
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

type ServiceBus struct {
	Entity string `koanf:"entity"`
}

type Shoutrrr struct {
	URL     string `koanf:"url"`
	URLFile string `koanf:"urlFile"`
}

// kinds is the sinks that the element gives, by their keys.
func (a *Alert) kinds() (given []string) {
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
func (c *Config) completeAlerts() error {
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
			errs = append(errs, fmt.Errorf("%s %s; give it one of webhook, alertmanager, slack, teams, pagerduty, email, serviceBus, shoutrrr", c.At(element), what))
			continue
		}
		a.Key = element + "." + kinds[0]
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
			errs = append(errs, fmt.Errorf("%s: there is another sink %q; give each a name of its own", c.At(element+".name"), a.Name))
		}
	}
	return errors.Join(errs...)
}

// completeSink puts what files hold in its place.
func (c *Config) completeSink(a *Alert) error {
	url := func(r *Request) error {
		if err := c.secret(a.Key, "url", &r.URL, "urlFile", r.URLFile); err != nil {
			return err
		}
		if err := checkURL(r.URL); err != nil {
			return fmt.Errorf("%s: %w", c.At(a.Key+".urlFile"), err)
		}
		return nil
	}
	switch {
	case a.Webhook != nil:
		return url(&a.Webhook.Request)
	case a.Alertmanager != nil:
		return url(a.Alertmanager)
	case a.Slack != nil:
		return url(a.Slack)
	case a.Teams != nil:
		return url(a.Teams)
	case a.PagerDuty != nil:
		return c.secret(a.Key, "routingKey", &a.PagerDuty.RoutingKey, "routingKeyFile", a.PagerDuty.RoutingKeyFile)
	case a.Shoutrrr != nil:
		return c.secret(a.Key, "url", &a.Shoutrrr.URL, "urlFile", a.Shoutrrr.URLFile)
	case a.ServiceBus != nil:
		if err := CheckEntity(a.ServiceBus.Entity); err != nil {
			return fmt.Errorf("%s: %w", c.At(a.Key+".entity"), err)
		}
		if strings.EqualFold(a.ServiceBus.Entity, c.MonitorQueue) {
			return fmt.Errorf("%s is %q, the monitor queue; give another queue or topic", c.At(a.Key+".entity"), a.ServiceBus.Entity)
		}
		return nil
	}
	e := a.Email
	switch {
	case e.Host == "":
		return fmt.Errorf("%s lacks host", c.At(a.Key))
	case e.From == "":
		return fmt.Errorf("%s lacks from", c.At(a.Key))
	case len(e.To) == 0:
		return fmt.Errorf("%s lacks to", c.At(a.Key))
	case e.Username == "":
		return nil
	}
	return c.secret(a.Key, "password", &e.Password, "passwordFile", e.PasswordFile)
}

// secret demands one of a value and a file that holds it, and reads the file.
func (c *Config) secret(section, key string, value *string, fileKey, file string) error {
	if (*value == "") == (file == "") {
		return fmt.Errorf("%s needs one of %s and %s", c.At(section), key, fileKey)
	}
	if file == "" {
		return nil
	}
	text, err := ReadBounded(file, maxSecretFile)
	if err != nil {
		return fmt.Errorf("%s: %w", c.At(section+"."+fileKey), err)
	}
	if *value = strings.TrimSpace(string(text)); *value == "" {
		return fmt.Errorf("%s: %s is empty; it has to hold the %s", c.At(section+"."+fileKey), file, key)
	}
	return nil
}

// IsSink reports whether events are sent to an entity, which therefore is not monitored unless somebody says so.
func (c *Config) IsSink(entity string) bool {
	return slices.ContainsFunc(c.Alerts, func(a Alert) bool {
		return a.ServiceBus != nil && strings.EqualFold(a.ServiceBus.Entity, entity)
	})
}
