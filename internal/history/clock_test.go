// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A clock that was set wrong must not cost the history, whether it is found out soon or not.
func TestAClockThatJumpsAheadRemovesNothing(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, prometheus.NewRegistry())
	miss(t, h, "m-0", start)
	h.flush(t.Context(), start)
	year := start.Add(365 * 24 * time.Hour)
	h.clock.read = year // as the monotonic clock has it, no time passes
	miss(t, h, "m-1", start)
	h.flush(t.Context(), year)
	if err := h.file.close(); err != nil {
		t.Fatal(err)
	}
	h = open(t, dir, prometheus.NewRegistry())
	h.forgetMemory()
	h.clock.resume(h.file.clock, year)
	for i := range 20 {
		h.flush(t.Context(), year.Add(time.Duration(i)*pruneInterval))
	}
	if got := ids(t, h, time.Time{}); len(strings.Fields(got)) != 2 {
		t.Errorf("20 minutes after a restart a year ahead, %q is left, want both", got)
	}
	for i := range 40 {
		h.flush(t.Context(), year.Add(time.Duration(i)*pruneInterval))
	}
	if got := ids(t, h, time.Time{}); got != "" {
		t.Errorf("after more than half of what is kept, %q is left, want none", got)
	}
}

func TestAClockThatWasSetBackRemovesNothing(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	h.flush(t.Context(), start)
	miss(t, h, "m-0", start.Add(-48*time.Hour))
	h.flush(t.Context(), start.Add(-48*time.Hour))
	h.flush(t.Context(), start.Add(-47*time.Hour))
	h.forgetMemory()
	if got := ids(t, h, time.Time{}); got != "m-0" {
		t.Errorf("%q is left, want m-0", got)
	}
}

// Entries that a wrong clock has dated into the future would otherwise stay for ever, and new ones
// would be the oldest.
func TestEntriesOfTheFutureAreTheFirstToGo(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	year := start.Add(365 * 24 * time.Hour)
	for i := range 150 {
		miss(t, h, fmt.Sprintf("future-%04d-%s", i, strings.Repeat("x", 1000)), year.Add(time.Duration(i)*time.Second))
	}
	h.flush(t.Context(), year)
	for i := range 150 {
		miss(t, h, fmt.Sprintf("now-%04d-%s", i, strings.Repeat("x", 1000)), start.Add(time.Duration(i)*time.Second))
	}
	h.flush(t.Context(), start.Add(10*time.Minute))
	h.forgetMemory()
	now, _, err := h.Missed(t.Context(), time.Time{}, all, 2000)
	if err != nil {
		t.Fatal(err)
	}
	var recent, ahead int
	for i := range now {
		if strings.HasPrefix(now[i].Event.Data.MessageID, "now-") {
			recent++
		} else {
			ahead++
		}
	}
	if recent != 150 || ahead == 0 || h.file.bytes > h.cfg.MaxSize {
		t.Errorf("%d of now and %d of the future are left in %d bytes, want 150 and the rest", recent, ahead, h.file.bytes)
	}
}

func TestAnIdleHistoryWritesOnceAMinute(t *testing.T) {
	h := open(t, t.TempDir(), prometheus.NewRegistry())
	h.flush(t.Context(), start)
	before := h.file.clock
	for i := range 11 {
		h.flush(t.Context(), start.Add(time.Duration(i+1)*5*time.Second))
	}
	if !h.file.clock.Equal(before) {
		t.Errorf("the file was written at %v, want no write after %v", h.file.clock, before)
	}
	h.flush(t.Context(), start.Add(time.Minute))
	if !h.file.clock.After(before) {
		t.Error("the file was not written after a minute")
	}
}
