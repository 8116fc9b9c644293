// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Only returns an Alerter that passes some events to a and accepts all others without delivery. An
// event passes if one of the patterns matches its entity, see [path.Match], and its type ends in
// one of events. An empty list lets every event pass.
func Only(a Alerter, entities, events []string) (Alerter, error) {
	if len(entities)+len(events) == 0 {
		return a, nil
	}
	for _, pattern := range entities {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("alert: %q is not a pattern: %w", pattern, err)
		}
	}
	for _, name := range events {
		if !slices.Contains(eventTypes, typePrefix+name) {
			return nil, fmt.Errorf("alert: no event type is called %q; use one of %s", name, strings.ReplaceAll(strings.Join(eventTypes, ", "), typePrefix, ""))
		}
	}
	return only{a, entities, events}, nil
}

type only struct {
	Alerter
	entities, events []string
}

// Without returns an Alerter that accepts events about entity without delivery and passes all
// others to a.
func Without(a Alerter, entity string) Alerter { return without{a, entity} }

type without struct {
	Alerter
	entity string
}

// Unwrap returns the Alerter behind the filter.
func (w without) Unwrap() Alerter { return w.Alerter }

func (w without) Alert(ctx context.Context, e Event) error {
	if !w.Passes(&e) {
		return nil
	}
	return w.Alerter.Alert(ctx, e)
}

// Passes reports whether e is delivered.
func (w without) Passes(e *Event) bool { return !strings.EqualFold(e.Data.Entity, w.entity) }

// Unwrap returns the Alerter behind the filter.
func (o only) Unwrap() Alerter { return o.Alerter }

func (o only) Alert(ctx context.Context, e Event) error {
	if o.Passes(&e) {
		return o.Alerter.Alert(ctx, e)
	}
	return nil
}

// Passes reports whether e is delivered.
func (o only) Passes(e *Event) bool {
	if len(o.events) > 0 && !slices.Contains(o.events, strings.TrimPrefix(e.Type, typePrefix)) {
		return false
	}
	return len(o.entities) == 0 || slices.ContainsFunc(o.entities, func(pattern string) bool {
		ok, _ := path.Match(pattern, e.Data.Entity) // Only checked the pattern
		return ok
	})
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
	type filter interface {
		Passes(*Event) bool
		Unwrap() Alerter
	}
	for {
		f, ok := Find[filter](a)
		if !ok || !f.Passes(e) {
			return !ok
		}
		a = f.Unwrap()
	}
}
