// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"overdue/alert"
)

// Alert is one sink of alerts. Exactly one of the kinds is given.
type Alert struct {
	Name     string   `mapstructure:"name"`
	Entities []string `mapstructure:"entities"`
	Labels   []string `mapstructure:"labels"`
	Events   []string `mapstructure:"events"`
	Title    string   `mapstructure:"title"`
	Text     string   `mapstructure:"text"`
	Links    Links    `mapstructure:"links"`
	Group    Group    `mapstructure:"group"`

	Webhook      *Webhook      `mapstructure:"webhook"`
	Alertmanager *Alertmanager `mapstructure:"alertmanager"`
	Slack        *Request      `mapstructure:"slack"`
	Teams        *Request      `mapstructure:"teams"`
	PagerDuty    *PagerDuty    `mapstructure:"pagerduty"`
	Email        *Email        `mapstructure:"email"`
	ServiceBus   *ServiceBus   `mapstructure:"serviceBus"`
	Shoutrrr     *Shoutrrr     `mapstructure:"shoutrrr"`

	Key string // alerts[0].webhook: where the kind is given
}

// Links are URLs with placeholders, which notifications show.
type Links struct {
	Dashboard string `mapstructure:"dashboard"`
	Runbook   string `mapstructure:"runbook"`
}

// Group says how events become notifications.
type Group struct {
	By           []string      `mapstructure:"by"`
	Wait         time.Duration `mapstructure:"wait"`
	Interval     time.Duration `mapstructure:"interval"`
	ResolveAfter time.Duration `mapstructure:"resolveAfter"`
}

// Request is a sink that takes requests over HTTP.
type Request struct {
	URL     string `mapstructure:"url"`
	URLFile string `mapstructure:"urlFile"`
}

// Server is a sink behind a server of the operator's own.
type Server struct {
	Request         `mapstructure:",squash"`
	Headers         map[string]string `mapstructure:"headers"`
	HeadersFile     string            `mapstructure:"headersFile"`
	BearerToken     string            `mapstructure:"bearerToken"`
	BearerTokenFile string            `mapstructure:"bearerTokenFile"`
	Username        string            `mapstructure:"username"`
	Password        string            `mapstructure:"password"`
	PasswordFile    string            `mapstructure:"passwordFile"`
	AuthorityFile   string            `mapstructure:"authorityFile"`

	Authority string // what AuthorityFile holds
}

// Webhook gets a CloudEvent for each event, or notifications of groups.
type Webhook struct {
	Server            `mapstructure:",squash"`
	Timeout           time.Duration `mapstructure:"timeout"`
	Grouped           bool          `mapstructure:"grouped"`
	SigningSecret     string        `mapstructure:"signingSecret"` // one or two, separated by space
	SigningSecretFile string        `mapstructure:"signingSecretFile"`
}

// Alertmanager is a sink that posts to the API of an Alertmanager.
type Alertmanager struct {
	Server      `mapstructure:",squash"`
	Severity    string            `mapstructure:"severity"`
	Labels      map[string]string `mapstructure:"labels"`
	Annotations map[string]string `mapstructure:"annotations"`
}

// PagerDuty is a sink that posts to the Events API v2.
type PagerDuty struct {
	RoutingKey     string `mapstructure:"routingKey"`
	RoutingKeyFile string `mapstructure:"routingKeyFile"`
	Severity       string `mapstructure:"severity"`
	URL            string `mapstructure:"url"`
}

// Email is a sink that sends mail over SMTP.
type Email struct {
	Host         string   `mapstructure:"host"`
	Port         int64    `mapstructure:"port"`
	Security     string   `mapstructure:"security"`
	Username     string   `mapstructure:"username"`
	Password     string   `mapstructure:"password"`
	PasswordFile string   `mapstructure:"passwordFile"`
	From         string   `mapstructure:"from"`
	To           []string `mapstructure:"to"`
}

// ServiceBus is a sink that sends to a queue or topic of the namespace.
type ServiceBus struct {
	Entity string `mapstructure:"entity"`
}

// Shoutrrr is a sink with an address of shoutrrr, a library for chats.
type Shoutrrr struct {
	URL     string `mapstructure:"url"`
	URLFile string `mapstructure:"urlFile"`
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
		errs = append(errs, a.complete(c), a.checkFilters(c), a.checkWording(c, element))
		if a.Alertmanager != nil && c.Sources.origin[element+".group.wait"] == "" {
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

// checkWording refuses the wording of notifications for a sink that gets single events. The settings
// of groups pass: a configuration that was printed has their defaults.
func (a *Alert) checkWording(c *Config, element string) error {
	cure := "remove it"
	switch {
	case a.Webhook != nil && !a.Webhook.Grouped:
		cure = "set webhook.grouped: true, or remove it"
	case a.ServiceBus == nil:
		return nil
	}
	var errs []error
	for key, value := range map[string]string{"title": a.Title, "text": a.Text, "links.dashboard": a.Links.Dashboard, "links.runbook": a.Links.Runbook} {
		if value != "" {
			errs = append(errs, fmt.Errorf("%s has no effect, since the sink gets single events and no notifications; %s", c.At(element+"."+key), cure))
		}
	}
	return errors.Join(errs...)
}

// complete puts what files hold in its place.
func (a *Alert) complete(c *Config) error {
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
		w := a.Webhook
		return errors.Join(url(&w.Request), w.complete(c, a.Key),
			c.optionalSecret(a.Key, "signingSecret", &w.SigningSecret, "signingSecretFile", w.SigningSecretFile))
	case a.Alertmanager != nil:
		return errors.Join(url(&a.Alertmanager.Request), a.Alertmanager.complete(c, a.Key))
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
		if c.isMonitorQueue(a.ServiceBus.Entity) {
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

// complete reads the files with the credentials of a server.
func (s *Server) complete(c *Config, section string) error {
	errs := []error{c.optionalSecret(section, "bearerToken", &s.BearerToken, "bearerTokenFile", s.BearerTokenFile)}
	if s.Username != "" {
		errs = append(errs, c.secret(section, "password", &s.Password, "passwordFile", s.PasswordFile))
	} else if s.Password != "" || s.PasswordFile != "" {
		errs = append(errs, fmt.Errorf("%s has a password and no username; give both or none", c.At(section)))
	}
	if s.AuthorityFile != "" {
		pem, err := ReadBounded(s.AuthorityFile, maxCAFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.At(section+".authorityFile"), err))
		}
		if s.Authority = string(pem); err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
			errs = append(errs, fmt.Errorf("%s: %s holds no certificate in PEM", c.At(section+".authorityFile"), s.AuthorityFile))
		}
		if strings.HasPrefix(s.URL, "http://") {
			errs = append(errs, fmt.Errorf("%s is given, and the URL is not https; write https for TLS", c.At(section+".authorityFile")))
		}
	}
	return errors.Join(append(errs, s.readHeaders(c, section))...)
}

// readHeaders adds the headers of a file, one on each line. No error shows a value.
func (s *Server) readHeaders(c *Config, section string) error {
	if s.HeadersFile == "" {
		return nil
	}
	text, err := ReadBounded(s.HeadersFile, maxHeadersFile)
	if err != nil {
		return fmt.Errorf("%s: %w", c.At(section+".headersFile"), err)
	}
	all := maps.Clone(s.Headers)
	if all == nil {
		all = map[string]string{}
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return fmt.Errorf("%s: line %d of %s has no colon; write each header as name: value", c.At(section+".headersFile"), i+1, s.HeadersFile)
		}
		if _, twice := all[name]; twice {
			return fmt.Errorf("%s: line %d of %s has the header %s again; keep one", c.At(section+".headersFile"), i+1, s.HeadersFile, Clip(name))
		}
		all[name] = strings.TrimSpace(value)
	}
	s.Headers = all
	return nil
}

// maxHeadersFile bounds a headersFile.
const maxHeadersFile = 64 << 10

// optionalSecret is secret for one that may be missing.
func (c *Config) optionalSecret(section, key string, value *string, fileKey, file string) error {
	if *value == "" && file == "" {
		return nil
	}
	return c.secret(section, key, value, fileKey, file)
}

// secret demands one of a value and a file that holds it, and reads the file.
func (c *Config) secret(section, key string, value *string, fileKey, file string) error {
	if (*value == "") == (file == "") {
		return fmt.Errorf("%s needs one of %s and %s", c.At(section), key, fileKey)
	}
	if file == "" {
		return nil
	}
	var err error
	if *value, err = readSecret(file, "the "+key); err != nil {
		return fmt.Errorf("%s: %w", c.At(section+"."+fileKey), err)
	}
	return nil
}

// IsSink reports whether events are sent to an entity, which therefore is not monitored unless somebody says so.
func (c *Config) IsSink(entity string) bool {
	return slices.ContainsFunc(c.Alerts, func(a Alert) bool {
		return a.ServiceBus != nil && strings.EqualFold(a.ServiceBus.Entity, entity)
	})
}

// Selection is the choice of events that the sink gets.
func (a *Alert) Selection() (*alert.Selection, error) {
	return alert.NewSelection(a.Entities, a.Labels, a.Events)
}

// SinksOf names the sinks that get the missed deadlines of a queue or topic.
func (c *Config) SinksOf(name string) (sinks []string) {
	var labels map[string]string
	for i := range c.Monitor.Entities {
		if e := &c.Monitor.Entities[i]; strings.EqualFold(e.Name(), name) {
			labels = e.Labels
		}
	}
	for i := range c.Alerts {
		s, err := c.Alerts[i].Selection()
		if err == nil && s.HasType(alert.TypeMissed) && s.HasEntity(name, labels) { // it was read before without an error
			sinks = append(sinks, c.Alerts[i].Name)
		}
	}
	return sinks
}

// checkFilters refuses filters of a sink that no event passes: a sink that stays silent looks like
// a namespace where all is well.
func (a *Alert) checkFilters(c *Config) error {
	element, _, _ := strings.Cut(a.Key, ".")
	selection, err := a.Selection()
	if bad := (*alert.SettingError)(nil); errors.As(err, &bad) {
		return fmt.Errorf("%s: %w", c.At(element+"."+bad.Key), err)
	}
	var errs []error
	for _, pattern := range a.Entities {
		errs = append(errs, c.Monitor.checkPattern(c.At(element+".entities"), pattern))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	passes := func(e Entity) bool { return selection.HasEntity(e.Name(), e.Labels) }
	warns := func(e Entity) bool { return len(e.WarnBefore) > 0 && passes(e) }
	switch all := c.Monitor.Entities; {
	case len(a.Labels) > 0 && !slices.ContainsFunc(all, passes):
		return fmt.Errorf("%s: no monitored entity of this sink has labels like these, so it gets no event; state them in monitor.entities[].labels, or change the matchers",
			c.At(element+".labels"))
	case len(all) > 0 && !slices.ContainsFunc(all, passes):
		return fmt.Errorf("%s: no monitored entity is left, so the sink gets no event; exclude fewer", c.At(element+".entities"))
	case slices.Contains(a.Events, "near") && !slices.ContainsFunc(all, warns):
		return fmt.Errorf("%s: no event near can come, because no monitored entity of this sink has warnBefore; set monitor.entities[].warnBefore, or remove near",
			c.At(element+".events"))
	}
	return nil
}

// checkPattern refuses a pattern that no monitored entity matches. Without monitor.entities any
// name may be one.
func (m *Monitor) checkPattern(at, pattern string) error {
	plain, excludes := strings.CutPrefix(pattern, "!")
	if !strings.ContainsAny(plain, `*?[\`) {
		if err := CheckEntity(plain); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	if len(m.Entities) == 0 {
		return nil
	}
	names := make([]string, 0, len(m.Entities))
	for i := range m.Entities {
		name := m.Entities[i].Name()
		if ok, _ := path.Match(strings.ToLower(plain), strings.ToLower(name)); ok { // the selection has checked it
			return nil
		}
		names = append(names, name)
	}
	effect, hint := "the sink gets no event", "add it to monitor.entities, or remove it here"
	if excludes {
		effect = "it excludes nothing"
	}
	if near := Nearest(plain, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return fmt.Errorf("%s: %q matches no monitored entity, so %s; %s", at, Clip(pattern), effect, hint)
}
