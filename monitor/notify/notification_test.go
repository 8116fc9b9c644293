// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"testing"

	"overdue/alert"
)

type taker struct{}

func (taker) Name() string                             { return "taker" }
func (taker) Alert(context.Context, alert.Event) error { return nil }

// An event that a filter keeps from a sink says nothing about the sink: a canary would hide one
// that is down.
func TestEventsThatAFilterKeepsFromASinkAreNotDelivered(t *testing.T) {
	some, err := alert.Only(taker{}, []string{"orders", "b*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := alert.Without(some, "Birds")
	for entity, want := range map[string]bool{"orders": true, "bills": true, "birds": false, "audit": false} {
		if got := delivers(a, &alert.Event{Data: alert.EventData{Entity: entity}}); got != want {
			t.Errorf("an event about %s is delivered: %v, want %v", entity, got, want)
		}
	}
}
