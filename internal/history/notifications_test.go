// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"overdue/alert"
)

// flaky is a sink that takes every other event.
type flaky struct{ n int }

func (f *flaky) Name() string { return "flaky" }

func (f *flaky) Alert(context.Context, alert.Event) error {
	if f.n++; f.n%2 == 0 {
		return errors.New("not now")
	}
	return nil
}

func eventOf(n int) alert.Event {
	id := fmt.Sprintf("m-%d", n)
	return alert.Event{ID: "e-" + id, Type: alert.TypeMissed, Subject: id, Data: alert.EventData{Entity: "orders", MessageID: id}}
}

func TestOnlySinksThatTookAnEventAreRecorded(t *testing.T) {
	h := &History{}
	first, second := h.Record(&flaky{}), h.Record(&flaky{n: 1})
	if err := first.Alert(t.Context(), eventOf(1)); err != nil {
		t.Fatal(err)
	}
	if err := second.Alert(t.Context(), eventOf(1)); err == nil {
		t.Error("Alert of a sink that fails = nil, want its error")
	}
	all := h.Notifications(t.Context(), "m-1")
	if len(all) != 1 || len(all[0].TakenBy) != 1 || all[0].TakenBy[0].Sink != "flaky" || all[0].TakenBy[0].Time.IsZero() {
		t.Errorf("notifications of m-1: %+v, want one, taken once", all)
	}
	if err := second.Alert(t.Context(), eventOf(1)); err != nil {
		t.Fatal(err)
	}
	if all := h.Notifications(t.Context(), "m-1"); len(all) != 1 || len(all[0].TakenBy) != 2 {
		t.Errorf("notifications of m-1: %+v, want one, taken twice", all)
	}
	if other := h.Notifications(t.Context(), "m-2"); len(other) != 0 {
		t.Errorf("notifications of m-2: %+v, want none", other)
	}
}

func TestNotificationsOfAMessageWithoutAnIDAreFoundByNumber(t *testing.T) {
	h := &History{}
	for number := range int64(20) {
		e := alert.Event{ID: fmt.Sprint("e-", number), Type: alert.TypeMissed, Data: alert.EventData{Entity: "orders", SequenceNumber: number}}
		h.Queued("slack", "g", time.Now(), &e)
	}
	if all := h.Notifications(t.Context(), "#17"); len(all) != 1 || all[0].Event.Data.SequenceNumber != 17 {
		t.Errorf("notifications of number 17: %+v, want one", all)
	}
}

// An event that only waits for its group, or that the sink refuses, is not one that the sink took.
func TestWhatBecomesOfAnEventForASinkOfGroups(t *testing.T) {
	h := &History{}
	first, second := eventOf(1), eventOf(2)
	due := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	h.Queued("slack", "g", due, &first)
	h.Queued("slack", "g", due.Add(time.Minute), &second)
	h.Queued("teams", "g", due, &first)
	states := func(id string) string {
		all := h.Notifications(t.Context(), id)
		if len(all) != 1 {
			t.Fatalf("%d notifications of %s, want one", len(all), id)
		}
		text := ""
		for _, d := range all[0].TakenBy {
			text += d.Sink + " sent "
		}
		for _, d := range all[0].Waiting {
			text += fmt.Sprintf("%s %s %s ", d.Sink, d.State, d.Error)
		}
		return strings.Join(strings.Fields(text), " ")
	}
	for _, step := range []struct {
		refused               error
		by                    time.Time
		wantFirst, wantSecond string
	}{
		{nil, due.Add(-time.Second), "slack queued teams queued", "slack queued"},
		{errors.New("403"), due, "slack failed 403 teams queued", "slack queued"},
		{nil, due.Add(time.Second), "slack sent teams queued", "slack queued"},
		{nil, due.Add(time.Hour), "slack sent teams queued", "slack sent"},
	} {
		h.Notified("slack", "g", step.by, step.refused)
		h.Notified("slack", "other", step.by, nil)
		if one, two := states("m-1"), states("m-2"); one != step.wantFirst || two != step.wantSecond {
			t.Errorf("after a notification by %v, %v: %q and %q, want %q and %q", step.by, step.refused, one, two, step.wantFirst, step.wantSecond)
		}
	}
}

// A sink of single events has what it refused as failed, until it takes it.
func TestAnEventThatASinkRefusesWaits(t *testing.T) {
	h := &History{}
	sink := h.Record(&flaky{})
	untaken := sink.(interface{ Untaken(alert.Event, error) }).Untaken
	untaken(eventOf(1), nil)
	if w := h.Notifications(t.Context(), "m-1")[0].Waiting; len(w) != 1 || w[0].State != Queued {
		t.Errorf("waiting %+v, want one that is queued", w)
	}
	untaken(eventOf(1), errors.New("503"))
	if w := h.Notifications(t.Context(), "m-1")[0].Waiting; len(w) != 1 || w[0].State != Failed || w[0].Error != "503" {
		t.Errorf("waiting %+v, want one that failed", w)
	}
	if err := sink.Alert(t.Context(), eventOf(1)); err != nil {
		t.Fatal(err)
	}
	if n := h.Notifications(t.Context(), "m-1")[0]; len(n.Waiting) != 0 || len(n.TakenBy) != 1 {
		t.Errorf("%+v, want that the sink took it", n)
	}
}

// alert.Find looks for groups behind the sinks that wrap others.
func TestARecorderShowsTheSinkBehindIt(t *testing.T) {
	sink := &flaky{}
	recorded := (&History{}).Record(sink)
	if behind := recorded.(interface{ Unwrap() alert.Alerter }).Unwrap(); behind != alert.Alerter(sink) {
		t.Errorf("Unwrap = %v, want the sink that is recorded", behind)
	}
	if g, ok := alert.Find[*alert.Groups](recorded); ok {
		t.Errorf("a sink without groups has %v", g)
	}
}

func TestANewHistoryIsEmpty(t *testing.T) {
	if none := (&History{}).Notifications(t.Context(), ""); none == nil || len(none) != 0 {
		t.Errorf("Notifications = %v, want an empty list, which is [] in JSON", none)
	}
}

func TestTheOldestNotificationsAreForgottenFirst(t *testing.T) {
	h := &History{}
	var wg sync.WaitGroup
	for from := range 4 {
		wg.Go(func() {
			for n := from; n < Capacity; n += 4 {
				e := eventOf(n)
				h.took(&e, "log", e.Time)
			}
		})
	}
	wg.Wait()
	for n := range 150 {
		e := eventOf(Capacity + n)
		h.took(&e, "log", e.Time)
	}
	if len(h.latest) != Capacity || len(h.byID) != Capacity {
		t.Errorf("%d events in the ring and %d by id, want %d", len(h.latest), len(h.byID), Capacity)
	}
	all := h.Notifications(t.Context(), "")
	if len(all) != maxShown {
		t.Fatalf("%d notifications are shown, want %d", len(all), maxShown)
	}
	for i, n := range all {
		if want := eventOf(Capacity + 149 - i).ID; n.Event.ID != want {
			t.Fatalf("notification %d is of %s, want %s", i, n.Event.ID, want)
		}
	}
}

func TestFetchReadsWhatAHistoryServes(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	h := &History{began: at}
	e := eventOf(7)
	e.Data.MessageID, e.Data.Deadline = "a&b \x1b", at
	h.took(&e, "log", at)
	other := eventOf(8)
	h.took(&other, "log", at)
	mux := http.NewServeMux()
	mux.Handle("GET "+NotificationsPath, h)
	s := httptest.NewServer(mux)
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")

	got, err := FetchNotifications(t.Context(), addr, e.Data.MessageID)
	if err != nil {
		t.Fatal(err)
	}
	want := Notification{Event: e, TakenBy: []Delivery{{Sink: "log", Time: at}}}
	if diff := cmp.Diff([]Notification{want}, got.Found, cmpopts.IgnoreUnexported(Delivery{})); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
	if gaps := got.Gaps; len(gaps) != 1 || !gaps[0].To.Equal(at) || gaps[0].String() != "until 2026-05-04 03:02:01Z: this process keeps no history" {
		t.Errorf("gaps %v, want that before the process", got.Gaps)
	}
}

func TestFetchNamesWhatItCouldNotRead(t *testing.T) {
	for name, answer := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"no admin port": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) }, "no"},
		"no JSON":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "does not answer as Overdue does at /notifications"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(answer.handler)
			defer s.Close()
			_, err := FetchNotifications(t.Context(), strings.TrimPrefix(s.URL, "http://"), "m")
			if err == nil || !strings.Contains(err.Error(), answer.want) {
				t.Errorf("Fetch = %v, want an error with %q", err, answer.want)
			}
		})
	}
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	if _, err := FetchNotifications(t.Context(), strings.TrimPrefix(s.URL, "http://"), "m"); err == nil {
		t.Error("Fetch from a port that nobody listens on = nil, want an error")
	}
	if _, err := FetchNotifications(t.Context(), "no host\x7f", "m"); err == nil {
		t.Error("Fetch from an address that is none = nil, want an error")
	}
}
