// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"overdue/internal/servicebus/address"
)

// Only returns an Alerter that passes some events to a and accepts all others without delivery. An
// event passes if one of the patterns matches its entity, see [path.Match], and its type ends in
// one of events. An empty list lets every event pass. An event of TypeBlind has several entities, or
// none, which concerns everybody.
func Only(a Alerter, entities, events []string) (Alerter, error) {
	if len(entities)+len(events) == 0 {
		return a, nil
	}
	for _, pattern := range entities {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("alert: %q is not a pattern: %w", pattern, err)
		}
	}
	var names []string
	for _, t := range eventTypes {
		names = append(names, shortType(t))
	}
	for _, name := range events {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("alert: no event type is called %q; use one of %s", name, strings.Join(names, ", "))
		}
	}
	return filter{a, func(e *Event) bool {
		isWanted := len(events) == 0 || slices.Contains(events, shortType(e.Type))
		return isWanted && (len(entities) == 0 || e.concerns(func(entity string) bool {
			return slices.ContainsFunc(entities, func(pattern string) bool {
				ok, _ := path.Match(pattern, entity) // the pattern was checked above
				return ok
			})
		}))
	}}, nil
}

// concerns reports whether an entity of e matches.
func (e *Event) concerns(matches func(entity string) bool) bool {
	if e.Blind == nil {
		return matches(e.Data.Entity)
	}
	return len(e.Blind.Entities) == 0 || slices.ContainsFunc(e.Blind.Entities, func(b BlindEntity) bool {
		name, _ := address.SplitSubscription(b.Entity)
		return matches(name)
	})
}

// Without returns an Alerter that accepts events about entity without delivery and passes all
// others to a.
func Without(a Alerter, entity string) Alerter {
	return filter{a, func(e *Event) bool { return !strings.EqualFold(e.Data.Entity, entity) }}
}

// A filter passes some events to the Alerter, and accepts the others.
type filter struct {
	Alerter
	passes func(*Event) bool
}

// Unwrap returns the Alerter behind the filter.
func (f filter) Unwrap() Alerter { return f.Alerter }

func (f filter) Alert(ctx context.Context, e Event) error {
	if f.passes(&e) {
		return f.Alerter.Alert(ctx, e)
	}
	return nil
}

// Find returns the first T among a and the sinks that it wraps: [*Groups] are behind filters.
func Find[T any](a Alerter) (found T, ok bool) {
	for {
		if found, ok = a.(T); ok {
			return found, true
		}
		w, wraps := a.(interface{ Unwrap() Alerter })
		if !wraps {
			return found, false
		}
		a = w.Unwrap()
	}
}

// Delivers reports whether no filter keeps e from the sink behind a. An event that a filter accepts
// without a delivery says nothing about that sink.
func Delivers(a Alerter, e *Event) bool {
	for {
		f, ok := Find[filter](a)
		if !ok || !f.passes(e) {
			return !ok
		}
		a = f.Alerter
	}
}
