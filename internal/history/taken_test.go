// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"overdue/alert"
)

// failing is a sink that takes nothing.
type failing struct{ sink }

func (failing) Alert(context.Context, alert.Event) error { return errors.New("not now") }

// hook is a sink of another name.
type hook struct{ sink }

func (hook) Name() string { return "webhook" }

func TestNotificationsOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, prometheus.NewRegistry())
	event := func(id, kind string) alert.Event {
		return alert.Event{ID: "e-" + id, Type: kind, Data: alert.EventData{Entity: "orders", MessageID: id, Deadline: start}}
	}
	for _, e := range []alert.Event{event("m-1", alert.TypeMissed), event("m-2", alert.TypeMissed), event("m-3", "overdue.deadline.met")} {
		if err := h.Record(sink{}).Alert(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := h.Record(failing{}).Alert(t.Context(), e); err == nil {
			t.Fatal("a failing sink took an event")
		}
	}
	if err := h.Record(hook{}).Alert(t.Context(), event("m-1", alert.TypeMissed)); err != nil {
		t.Fatal(err)
	}
	h.flush(t.Context(), start)
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}

	h = open(t, dir, prometheus.NewRegistry())
	sinks := map[string][]string{}
	for _, found := range h.Notifications(t.Context(), "") {
		for _, by := range found.TakenBy {
			if by.Time.IsZero() || time.Since(by.Time) > time.Hour {
				t.Errorf("%s took %s at %v, want just now", by.Sink, found.Event.ID, by.Time)
			}
			sinks[found.Event.Data.MessageID] = append(sinks[found.Event.Data.MessageID], by.Sink)
		}
	}
	if diff := cmp.Diff(map[string][]string{"m-1": {"sink", "webhook"}, "m-2": {"sink"}}, sinks); diff != "" {
		t.Errorf("after a restart: %s", diff)
	}
	// A notification that has left the memory is found by its id.
	for i := range Capacity {
		if err := h.Record(sink{}).Alert(t.Context(), event(fmt.Sprint("filler-", i), "overdue.deadline.met")); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.Find(func(e *alert.Event) bool { return e.Data.MessageID == "m-1" }, 1); len(got) != 0 {
		t.Errorf("in memory: %v, want none", got)
	}
	if got := h.Notifications(t.Context(), "m-1"); len(got) != 1 || len(got[0].TakenBy) != 2 {
		t.Errorf("of m-1: %+v, want one with two sinks", got)
	}
}

func TestALateDeliveryAddsToItsEvent(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	e := missEvent("m", start)
	for _, name := range []string{"b", "a"} {
		h.took(&e, name, start)
		h.flush(t.Context(), start)
	}
	h.forgetMemory()
	h.took(&e, "c", start) // its event is in the file alone
	b := h.beginWrite(nil, start)
	if err := h.file.write(b, start, start); err != nil || len(b.added) != 0 {
		t.Errorf("write = %v, and %d events are shared again, want none", err, len(b.added))
	}
	h.forgetMemory()
	if found := h.Notifications(t.Context(), "m"); len(found) != 1 || len(found[0].TakenBy) != 3 {
		t.Errorf("%+v, want one event with its three sinks", found)
	}
}
