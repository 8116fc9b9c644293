// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"strings"
)

// Without returns an Alerter that accepts events about entity without delivery and passes all
// others to a.
func Without(a Alerter, entity string) Alerter {
	return &filter{a, func(e *Event) bool { return !strings.EqualFold(e.Data.Entity, entity) }}
}

// Unmuted returns an Alerter that accepts events of muted entities without delivery and passes all
// others to a.
func Unmuted(a Alerter) Alerter {
	return &filter{a, func(e *Event) bool { return !e.Data.Muted }}
}

// A filter passes some events to the Alerter, and accepts the others.
type filter struct {
	Alerter
	passes func(*Event) bool
}

// Unwrap returns the Alerter behind the filter.
func (f *filter) Unwrap() Alerter { return f.Alerter }

func (f *filter) Alert(ctx context.Context, e Event) error {
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
		f, ok := Find[*filter](a)
		if !ok || !f.passes(e) {
			return !ok
		}
		a = f.Alerter
	}
}
