// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"fmt"
	"path"
	"strings"
)

// Only is an Alerter that tells a of events about some entities only, and takes all others as told. The patterns are
// those of [path.Match]; none lets everything pass.
func Only(a Alerter, entities []string) (Alerter, error) {
	if len(entities) == 0 {
		return a, nil
	}
	for _, pattern := range entities {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("alert: %q is not a pattern: %w", pattern, err)
		}
	}
	return only{a, entities}, nil
}

type only struct {
	Alerter
	entities []string
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
	for _, pattern := range o.entities {
		if ok, _ := path.Match(pattern, e.Data.Entity); ok { // the pattern was checked when it was given
			return o.Alerter.Alert(ctx, e)
		}
	}
	return nil
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
