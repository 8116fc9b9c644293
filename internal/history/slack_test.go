// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"

	"overdue/internal/slack"
)

// measure makes the meter that h reads.
func (h *History) measure() *slack.Meter {
	r := prometheus.NewRegistry()
	h.cfg.Metrics = r
	return slack.NewMeter(r)
}

func TestSlackIsKeptByMinute(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, prometheus.NewRegistry())
	meter := h.measure()
	settle := func(entity string, n int, taken time.Duration) {
		for range n {
			meter.Link(entity).Settled(start, start.Add(taken), start.Add(time.Minute), 1)
		}
	}
	settle("orders", 50, 10*time.Second)
	settle("Invoices", 1, 70*time.Second)
	h.flush(t.Context(), start)
	settle("orders", 48, 10*time.Second)
	h.flush(t.Context(), start.Add(5*time.Second))
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
	h = open(t, dir, prometheus.NewRegistry()) // another process, which begins to count at 0
	meter = h.measure()
	settle("orders", 2, 30*time.Second)
	h.flush(t.Context(), start.Add(time.Minute))
	h.flush(t.Context(), start.Add(2*time.Minute)) // there is nothing new

	s := httptest.NewServer(h)
	defer s.Close()
	addr := s.Listener.Addr().String()
	got, err := Fetch[slack.Summary](t.Context(), addr, SlackPath, "", start.Add(-time.Minute))
	want := []slack.Summary{
		{Entity: "Invoices", Count: 1, Late: 1, TakenP50: 72882, TakenP99: 72882},
		{Entity: "orders", Count: 100, LeftP1: 29344, LeftP50: 49350, TakenP50: 10374, TakenP99: 30643},
	}
	if diff := cmp.Diff(want, got.Found); err != nil || diff != "" {
		t.Errorf("all: %v %s", err, diff)
	}
	got, err = Fetch[slack.Summary](t.Context(), addr, SlackPath, "ORDERS", start.Add(time.Minute).Truncate(time.Minute))
	want = []slack.Summary{{Entity: "orders", Count: 2, LeftP1: 29344, LeftP50: 29344, TakenP50: 30643, TakenP99: 30643}}
	if diff := cmp.Diff(want, got.Found); err != nil || diff != "" {
		t.Errorf("the last minute of orders: %v %s", err, diff)
	}
}

func TestATopicStandsForItsSubscriptions(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	meter := h.measure()
	for _, name := range []string{"events/Subscriptions/audit", "events/Subscriptions/mail", "events2/Subscriptions/audit", "events"} {
		meter.Link(name).Settled(start, start, start.Add(time.Minute), 1)
	}
	h.flush(t.Context(), start)
	s := httptest.NewServer(h)
	defer s.Close()
	for asked, want := range map[string]int{"": 4, "Events": 3, "events/subscriptions/Mail": 1, "events/Subscriptions/m": 0, "event": 0} {
		got, err := Fetch[slack.Summary](t.Context(), s.Listener.Addr().String(), SlackPath, asked, start.Add(-time.Minute))
		if err != nil || len(got.Found) != want {
			t.Errorf("of %q: %+v, %v, want %d", asked, got.Found, err, want)
		}
	}
}

// Slack that waits while the file cannot be written is bounded, and written once it can.
func TestSlackThatCannotBeWrittenWaits(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	meter := h.measure()
	path := h.file.db.Path()
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		meter.Link("orders").Settled(start, start.Add(time.Second), start.Add(time.Minute), 1)
		h.flush(t.Context(), start.Add(time.Duration(i)*30*time.Second))
	}
	var err error
	if h.file, err = tryOpen(path, start, reasonBegin); err != nil {
		t.Fatal(err)
	}
	h.cfg.Keep = 1000 * time.Hour
	h.flush(t.Context(), start)
	h.flush(t.Context(), start.Add(time.Minute))
	got, err := h.Slack(time.Time{}, func(string) bool { return true })
	if err != nil || len(got) != 1 || got[0].Count != 3 {
		t.Errorf("Slack = %+v, %v; want 3 settlements", got, err)
	}
}

func TestUnreadableRecordsAreLeftOut(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	meter := h.measure()
	meter.Link("orders").Settled(start, start, start.Add(time.Minute), 1)
	miss(t, h, "m-0", start)
	h.flush(t.Context(), start)
	minute := start.Truncate(time.Minute)
	err := h.file.db.Update(func(tx *bbolt.Tx) error {
		records := tx.Bucket(recordsBucket)
		return errors.Join(
			records.Put(keyOf(minute.Unix(), kindCount, kindLeft, "invoices", ""), []byte{0x80}),
			records.Put(keyOf(minute.Unix(), kindCount, kindLeft, "orders", ""), []byte{0x80}),
			records.Put(keyOf(start.Unix(), kindMissed, "e-bad"), []byte("unreadable")),
			records.Put(keyOf(start.Unix(), kindCount, "unreadable"), []byte{0, 1}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	meter.Link("orders").Settled(start, start, start.Add(time.Minute), 1)
	h.flush(t.Context(), start.Add(time.Second))
	got, err := h.Slack(time.Time{}, func(string) bool { return true })
	if err != nil || len(got) != 1 || got[0].Count != 1 {
		t.Errorf("Slack = %+v, %v, want one settlement", got, err)
	}
	if got := ids(t, h, time.Time{}); got != "m-0" {
		t.Errorf("missed %q, want m-0", got)
	}
	if got, err := h.Minutes(time.Time{}, func(string) bool { return true }, 10); err != nil || len(got) != 0 {
		t.Errorf("Minutes = %+v, %v, want none", got, err)
	}
}
