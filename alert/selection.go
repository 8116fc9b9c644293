// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"overdue/internal/servicebus/address"
)

// A Selection is the choice of events that a sink gets.
type Selection struct {
	include, exclude []string // patterns of entities, in lower case
	matchers         []matcher
	types            []string
}

// NewSelection returns the selection of events that pass all three lists. An empty list lets every
// event pass. An event of TypeBlind has several entities, or none, which concerns everybody.
//
// One pattern of entities has to match, see [path.Match], and none of those with "!" in front. Each
// of labels has to hold: it is a matcher as Prometheus writes them, such as team="payments". A
// label that an entity does not have is "". One of events has to be the end of the type.
func NewSelection(entities, labels, events []string) (*Selection, error) {
	s := &Selection{}
	for _, pattern := range entities {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, &SettingError{"entities", fmt.Errorf("%q is not a pattern: %w", pattern, err)}
		}
		if excluded, ok := strings.CutPrefix(strings.ToLower(pattern), "!"); ok {
			s.exclude = append(s.exclude, excluded)
			continue
		}
		s.include = append(s.include, strings.ToLower(pattern))
	}
	for _, text := range labels {
		m, err := parseMatcher(text)
		if err != nil {
			return nil, &SettingError{"labels", err}
		}
		s.matchers = append(s.matchers, m)
	}
	var names []string
	for _, t := range eventTypes {
		names = append(names, shortType(t))
	}
	for _, name := range events {
		if !slices.Contains(names, name) {
			return nil, &SettingError{"events", fmt.Errorf("there are no events called %q; choose from %s", name, strings.Join(names, ", "))}
		}
	}
	s.types = events
	return s, nil
}

// HasEntity reports whether events about an entity with these labels pass.
func (s *Selection) HasEntity(name string, labels map[string]string) bool {
	name = strings.ToLower(name)
	isMatch := func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // NewSelection has checked the pattern
		return ok
	}
	return (len(s.include) == 0 || slices.ContainsFunc(s.include, isMatch)) && !slices.ContainsFunc(s.exclude, isMatch) &&
		!slices.ContainsFunc(s.matchers, func(m matcher) bool { return !m.holds(labels) })
}

// HasType reports whether events of a type pass.
func (s *Selection) HasType(eventType string) bool {
	return len(s.types) == 0 || slices.Contains(s.types, shortType(eventType))
}

// Only returns an Alerter that passes the events of the selection to a, and accepts all others
// without delivery.
func (s *Selection) Only(a Alerter) Alerter {
	return &filter{a, func(e *Event) bool { return s.HasType(e.Type) && s.hasEntityOf(e) }}
}

func (s *Selection) hasEntityOf(e *Event) bool {
	if e.Blind == nil {
		return s.HasEntity(e.Data.Entity, e.Data.Labels)
	}
	return len(e.Blind.Entities) == 0 || slices.ContainsFunc(e.Blind.Entities, func(b BlindEntity) bool {
		name, _ := address.SplitSubscription(b.Entity)
		return s.HasEntity(name, b.Labels)
	})
}

// A matcher is a condition on one label.
type matcher struct {
	name    string
	value   *regexp.Regexp
	negated bool
}

var matcherForm = regexp.MustCompile(`^\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*(.*?)\s*$`)

// parseMatcher reads a matcher. Its value may be in quotes.
func parseMatcher(text string) (matcher, error) {
	parts := matcherForm.FindStringSubmatch(text)
	if parts == nil {
		return matcher{}, fmt.Errorf("%.60q is no matcher; write one like team=payments, team!=payments or team=~payments|billing", text)
	}
	name, operator, value := parts[1], parts[2], strings.TrimSuffix(strings.TrimPrefix(parts[3], `"`), `"`)
	if !strings.HasSuffix(operator, "~") {
		value = regexp.QuoteMeta(value)
	}
	re, err := regexp.Compile("^(?s:" + value + ")$")
	if err != nil {
		return matcher{}, fmt.Errorf("%.60q is no matcher: %w", text, err)
	}
	return matcher{
		name:    name,
		value:   re,
		negated: operator[0] == '!',
	}, nil
}

func (m matcher) holds(labels map[string]string) bool {
	return m.value.MatchString(labels[m.name]) != m.negated
}
