// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"overdue/alert"
)

// fickle is a sink that takes every other event.
type fickle struct{ n int }

func (f *fickle) Name() string { return "fickle" }
func (f *fickle) Alert(context.Context, alert.Event) error {
	if f.n++; f.n%2 == 0 {
		return errors.New("not now")
	}
	return nil
}

func eventOf(n int) alert.Event {
	id := fmt.Sprintf("m-%d", n)
	return alert.Event{ID: "e-" + id, Type: alert.TypeMissed, Subject: id, Data: alert.EventData{Entity: "orders", MessageID: id}}
}

// Who has taken an event is remembered, once, and nobody who has not.
func TestWhoWasToldIsRemembered(t *testing.T) {
	log := &toldLog{}
	first, second := log.watch(&fickle{}), log.watch(&fickle{n: 1})
	_ = first.Alert(t.Context(), eventOf(1))
	if err := second.Alert(t.Context(), eventOf(1)); err == nil {
		t.Error("the failure of a sink is kept from who calls it")
	}
	all := log.of("m-1")
	if len(all) != 1 || len(all[0].By) != 1 || all[0].By[0].Sink != "fickle" || all[0].By[0].Time.IsZero() {
		t.Errorf("of m-1: %+v, want one event that one has taken", all)
	}
	_ = second.Alert(t.Context(), eventOf(1))
	if all := log.of("m-1"); len(all) != 1 || len(all[0].By) != 2 {
		t.Errorf("of m-1: %+v, want one event that two have taken", all)
	}
	if alert.GroupsOf(first) != nil {
		t.Error("there is a group behind a sink that is none")
	}
	if none := (*toldLog)(nil).of(""); none == nil || len(none) != 0 {
		t.Errorf("of nobody: %v, want an empty list", none)
	}
}

// What is remembered is bounded; the oldest goes first.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	log := &toldLog{}
	var wg sync.WaitGroup
	for from := range 4 {
		wg.Go(func() {
			for n := from; n < toldMost; n += 4 {
				log.add(eventOf(n), "log", eventOf(n).Time)
			}
		})
	}
	wg.Wait()
	for n := range 150 {
		log.add(eventOf(toldMost+n), "log", eventOf(n).Time)
	}
	if len(log.ring) != toldMost || len(log.byID) != toldMost {
		t.Errorf("%d events in the ring and %d by id, want %d", len(log.ring), len(log.byID), toldMost)
	}
	all := log.of("")
	if len(all) != 100 {
		t.Fatalf("%d events are shown, want 100", len(all))
	}
	for i, e := range all {
		if want := eventOf(toldMost + 149 - i).ID; e.Event.ID != want {
			t.Fatalf("event %d is %s, want %s", i, e.Event.ID, want)
		}
	}
}
