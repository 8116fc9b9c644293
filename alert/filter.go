// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Only is an Alerter that tells a of some events only, and takes all others as told: those about entities that one of the
// patterns matches, see [path.Match], and of one of the types, by their last words. None lets everything pass.
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
		if !slices.Contains(eventTypes, typePart+name) {
			return nil, fmt.Errorf("alert: there are no events called %q; choose of %s", name, strings.ReplaceAll(strings.Join(eventTypes, ", "), typePart, ""))
		}
	}
	return only{a, entities, events}, nil
}

type only struct {
	Alerter
	entities, events []string
}

// Without is an Alerter that takes events about one entity as told, and tells a of all others.
func Without(a Alerter, entity string) Alerter { return without{a, entity} }

type without struct {
	Alerter
	entity string
}

// Unwrap is the Alerter behind the filter.
func (w without) Unwrap() Alerter { return w.Alerter }

func (w without) Alert(ctx context.Context, e Event) error {
	if strings.EqualFold(e.Data.Entity, w.entity) {
		return nil
	}
	return w.Alerter.Alert(ctx, e)
}

// Unwrap is the Alerter behind the filter.
func (o only) Unwrap() Alerter { return o.Alerter }

func (o only) Alert(ctx context.Context, e Event) error {
	if o.passes(&e) {
		return o.Alerter.Alert(ctx, e)
	}
	return nil
}

func (o only) passes(e *Event) bool {
	if len(o.events) > 0 && !slices.Contains(o.events, strings.TrimPrefix(e.Type, typePart)) {
		return false
	}
	return len(o.entities) == 0 || slices.ContainsFunc(o.entities, func(pattern string) bool {
		ok, _ := path.Match(pattern, e.Data.Entity) // the pattern was checked when it was given
		return ok
	})
}

// GroupsOf is the Groups behind a, nil when it has none.
func GroupsOf(a Alerter) *Groups {
	for {
		if g, ok := a.(*Groups); ok {
			return g
		}
		u, ok := a.(interface{ Unwrap() Alerter })
		if !ok {
			return nil
		}
		a = u.Unwrap()
	}
}
