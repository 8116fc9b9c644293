// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// checkFilters refuses filters of a sink that no event passes: a sink that stays silent looks like a
// namespace where all is well.
func (a *Alert) checkFilters(c *Config) error {
	element, _, _ := strings.Cut(a.Key, ".")
	var errs []error
	for _, pattern := range a.Entities {
		errs = append(errs, c.Monitor.checkPattern(c.At(element+".entities"), pattern))
	}
	for _, name := range a.Events {
		switch {
		case !slices.Contains([]string{"missed", "incomplete", "near"}, name):
			errs = append(errs, fmt.Errorf("%s: there are no events called %q; choose from missed, incomplete, near", c.At(element+".events"), name))
		case name == "near" && !slices.ContainsFunc(c.Monitor.Entities, func(e Entity) bool { return len(e.WarnBefore) > 0 && a.takes(e.Name()) }):
			errs = append(errs, fmt.Errorf("%s: no event near can come, because no monitored entity of this sink has warnBefore; set monitor.entities[].warnBefore, or remove near",
				c.At(element+".events")))
		}
	}
	return errors.Join(errs...)
}

// checkPattern refuses a pattern that no monitored entity matches. Without monitor.entities any name may be one. A pattern
// that is none is for the sink to refuse.
func (m *Monitor) checkPattern(at, pattern string) error {
	if !strings.ContainsAny(pattern, `*?[\`) {
		if err := CheckEntity(pattern); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	if len(m.Entities) == 0 {
		return nil
	}
	names := make([]string, 0, len(m.Entities))
	for i := range m.Entities {
		name := m.Entities[i].Name()
		if ok, err := path.Match(pattern, name); ok || err != nil {
			return nil
		}
		names = append(names, name)
	}
	hint := "add it to monitor.entities, or remove it here"
	if near := Nearest(pattern, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return fmt.Errorf("%s: %q matches no monitored entity, so the sink gets no event; %s", at, Clip(pattern), hint)
}

// takes reports whether the sink gets the events of an entity.
func (a *Alert) takes(entity string) bool {
	return len(a.Entities) == 0 || slices.ContainsFunc(a.Entities, func(pattern string) bool {
		ok, _ := path.Match(pattern, entity) // a pattern that is none matches nothing
		return ok
	})
}
