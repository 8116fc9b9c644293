// SPDX-License-Identifier: Apache-2.0

// Package emulator reads the configuration file of Microsoft's Service Bus
// emulator, Config.json, as it is, so that a team can change brokers without
// changing a file.
//
// The file's defaults are the emulator's, not those of Service Bus: three
// deliveries, an hour to live, twenty seconds of duplicate detection. Source:
// Config-schema.json of Azure/azure-service-bus-emulator-installer.
package emulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/tailscale/hujson"

	"overdue/internal/broker"
)

// Defaults of the emulator, where they are not those of package broker.
const (
	defaultLockDuration     = time.Minute
	defaultTTL              = time.Hour
	defaultMaxDeliveryCount = 3 // the schema's; the shipped example states it everywhere
	defaultDuplicateWindow  = 20 * time.Second
)

// Config is what a Config.json asks for.
type Config struct {
	Namespace string // its name; clients do not see it
	Queues    []broker.QueueConfig
	Topics    []broker.TopicSetup
	// Warnings are what the file says and nobody heeds: the emulator passes over
	// properties that it does not know, so they are no errors.
	Warnings []string
}

// A SyntaxError says what is wrong with a file, and in which line.
type SyntaxError struct {
	Line int // from 1
	Text string

	unknown bool // it is a property that is not known
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// The file, in its own words.
type (
	file struct{ UserConfig *userConfig }

	userConfig struct {
		Namespaces []namespace
		Logging    any // where the emulator logs to; Overdue logs to stderr
	}

	namespace struct {
		Name   string
		Queues []queue
		Topics []topic
	}

	queue struct {
		Name       string
		Properties *properties
	}

	topic struct {
		Name          string
		Properties    *properties
		Subscriptions []subscription
	}

	subscription struct {
		Name       string
		Properties *properties
		Rules      []rule
	}

	// properties of all three kinds; a kind passes over what it does not have.
	properties struct {
		DeadLetteringOnMessageExpiration    *bool
		DefaultMessageTimeToLive            *duration
		DuplicateDetectionHistoryTimeWindow *duration
		ForwardDeadLetteredMessagesTo       string
		ForwardTo                           string
		LockDuration                        *duration
		MaxDeliveryCount                    *int
		RequiresDuplicateDetection          *bool
		RequiresSession                     *bool
	}

	rule struct {
		Name       string
		Properties *ruleProperties
	}

	ruleProperties struct {
		FilterType        string
		CorrelationFilter *correlation
		SqlFilter         *expression //nolint:revive // the file's word
		Action            *expression
	}

	expression struct{ SqlExpression string }

	correlation struct {
		ContentType, CorrelationId, Label, MessageId *string
		ReplyTo, ReplyToSessionId, SessionId, To     *string
		Properties                                   map[string]any
	}
)

// Parse reads a Config.json. Comments and trailing commas are allowed, as the
// emulator allows them. Errors of the text are of type *SyntaxError; those of
// what it says name the entity.
func Parse(text []byte) (*Config, error) {
	plain, err := hujson.Standardize(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))) // it keeps every byte at its place
	if err != nil {
		return nil, hujsonError(err)
	}
	var f file
	var unknown *SyntaxError
	if err := decode(plain, &f, true); errors.As(err, &unknown) && unknown.unknown {
		f = file{}
		if err := decode(plain, &f, false); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if f.UserConfig == nil || len(f.UserConfig.Namespaces) == 0 {
		return nil, errors.New("the file has no UserConfig.Namespaces; is it the emulator's?")
	}
	if n := len(f.UserConfig.Namespaces); n > 1 {
		return nil, fmt.Errorf("the file has %d namespaces; the emulator allows one", n)
	}
	c, err := f.UserConfig.Namespaces[0].config()
	if err != nil {
		return nil, err
	}
	if unknown != nil {
		c.Warnings = append(c.Warnings, unknown.Error())
	}
	return c, nil
}

// decode reads text into v. strict makes an unknown property an error.
func decode(text []byte, v any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		return jsonError(text, d, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &SyntaxError{Line: lineOf(text, d.InputOffset()), Text: "there is something after the end of the configuration"}
	}
	return nil
}

func (n *namespace) config() (*Config, error) {
	c := &Config{Namespace: n.Name}
	var errs []error
	for _, q := range n.Queues {
		cfg, err := q.config()
		c.Queues, errs = append(c.Queues, cfg), append(errs, err)
	}
	for _, t := range n.Topics {
		setup, err := t.config()
		c.Topics, errs = append(c.Topics, setup), append(errs, err)
	}
	return c, errors.Join(errs...)
}

func (q *queue) config() (broker.QueueConfig, error) {
	p := orNone(q.Properties)
	return broker.QueueConfig{
		Name:                                q.Name,
		LockDuration:                        p.LockDuration.or(defaultLockDuration),
		MaxDeliveryCount:                    or(p.MaxDeliveryCount, defaultMaxDeliveryCount),
		DefaultMessageTimeToLive:            p.DefaultMessageTimeToLive.or(defaultTTL),
		DeadLetteringOnMessageExpiration:    or(p.DeadLetteringOnMessageExpiration, false),
		RequiresSession:                     or(p.RequiresSession, false),
		RequiresDuplicateDetection:          or(p.RequiresDuplicateDetection, false),
		DuplicateDetectionHistoryTimeWindow: p.DuplicateDetectionHistoryTimeWindow.or(defaultDuplicateWindow),
		ForwardTo:                           p.ForwardTo,
		ForwardDeadLetteredMessagesTo:       p.ForwardDeadLetteredMessagesTo,
	}, named("queue", q.Name)
}

func (t *topic) config() (broker.TopicSetup, error) {
	p := orNone(t.Properties)
	setup := broker.TopicSetup{TopicConfig: broker.TopicConfig{
		Name:                                t.Name,
		DefaultMessageTimeToLive:            p.DefaultMessageTimeToLive.or(defaultTTL),
		RequiresDuplicateDetection:          or(p.RequiresDuplicateDetection, false),
		DuplicateDetectionHistoryTimeWindow: p.DuplicateDetectionHistoryTimeWindow.or(defaultDuplicateWindow),
	}}
	errs := []error{named("topic", t.Name)}
	for _, s := range t.Subscriptions {
		sub, err := s.config(t.Name)
		setup.Subscriptions, errs = append(setup.Subscriptions, sub), append(errs, err)
	}
	return setup, errors.Join(errs...)
}

func (s *subscription) config(topic string) (broker.SubscriptionSetup, error) {
	p := orNone(s.Properties)
	where := fmt.Sprintf("subscription %q of topic %q", s.Name, topic)
	setup := broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{
		Name:                             s.Name,
		LockDuration:                     p.LockDuration.or(defaultLockDuration),
		MaxDeliveryCount:                 or(p.MaxDeliveryCount, defaultMaxDeliveryCount),
		DefaultMessageTimeToLive:         p.DefaultMessageTimeToLive.or(defaultTTL),
		DeadLetteringOnMessageExpiration: or(p.DeadLetteringOnMessageExpiration, false),
		RequiresSession:                  or(p.RequiresSession, false),
		ForwardTo:                        p.ForwardTo,
		ForwardDeadLetteredMessagesTo:    p.ForwardDeadLetteredMessagesTo,
	}}
	errs := []error{named("a subscription of topic "+topic, s.Name)}
	for _, r := range s.Rules {
		rule, err := r.config(where)
		setup.Rules, errs = append(setup.Rules, rule), append(errs, err)
	}
	return setup, errors.Join(errs...)
}

func (r *rule) config(where string) (broker.RuleConfig, error) {
	cfg := broker.RuleConfig{Name: r.Name}
	if r.Properties == nil {
		return cfg, fmt.Errorf("rule %q of %s has no Properties", r.Name, where)
	}
	p := r.Properties
	if p.Action != nil {
		cfg.Action.SQL = p.Action.SqlExpression
	}
	switch {
	case strings.EqualFold(p.FilterType, "Sql") && p.SqlFilter != nil && p.CorrelationFilter == nil:
		cfg.Filter.SQL = &broker.SQLFilter{Expression: p.SqlFilter.SqlExpression}
	case strings.EqualFold(p.FilterType, "Correlation") && p.CorrelationFilter != nil && p.SqlFilter == nil:
		c := p.CorrelationFilter
		cfg.Filter.Correlation = &broker.CorrelationFilter{
			CorrelationID: c.CorrelationId, MessageID: c.MessageId, To: c.To, ReplyTo: c.ReplyTo, Label: c.Label,
			SessionID: c.SessionId, ReplyToSessionID: c.ReplyToSessionId, ContentType: c.ContentType, Properties: broker.ValuesOf(c.Properties),
		}
	default:
		return cfg, fmt.Errorf(`rule %q of %s: FilterType has to be "Sql" with a SqlFilter, or "Correlation" with a CorrelationFilter`, r.Name, where)
	}
	return cfg, named("a rule of "+where, r.Name)
}

func named(what, name string) error {
	if name == "" {
		return fmt.Errorf("%s has no Name", what)
	}
	return nil
}

func orNone(p *properties) *properties {
	if p == nil {
		return &properties{}
	}
	return p
}

func or[T any](p *T, def T) T {
	if p == nil {
		return def
	}
	return *p
}

const day = 24 * time.Hour

// A duration of ISO 8601, of days and less: PT1M, P1DT12H.
type duration time.Duration

func (d *duration) or(def time.Duration) time.Duration { return time.Duration(or(d, duration(def))) }

// As in the schema; what a month is in days, it does not say.
var isoDuration = regexp.MustCompile(`^P(?:(\d{1,2})Y)?(?:(\d{1,3})M)?(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?$`)

func (d *duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	m := isoDuration.FindStringSubmatch(s)
	if m == nil || strings.HasSuffix(s, "P") || strings.HasSuffix(s, "T") {
		return fmt.Errorf("%.50q is no duration; write one like PT1M or P1DT12H", s)
	}
	for i, unit := range []time.Duration{365 * day, 30 * day, day, time.Hour, time.Minute, time.Second} {
		var n int64
		if m[i+1] != "" {
			_, _ = fmt.Sscan(m[i+1], &n) // digits, as the expression has it
		}
		*d += duration(time.Duration(n) * unit)
	}
	return nil
}
