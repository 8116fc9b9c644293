// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"testing"
	"time"

	"overdue/scheduler"
)

// What a shelf does not have is read again: it must never claim a stretch of which it lacks something.
func TestAShelfEndsWhereItIsFull(t *testing.T) {
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	stretch := func(from, until, each int) (all []shelved) {
		for ms := from; ms <= until; ms++ {
			for range each {
				all = append(all, shelved{int64(len(all)), at(ms).UnixMilli(), at(ms + 60_000).UnixMilli()})
			}
		}
		return all
	}
	s := shelf{from: at(0), until: at(-1)}
	const each = 100
	full := maxShelved / each // milliseconds, and 44 messages of the next one
	s.join(at(0), at(999), stretch(0, 999, each))
	s.join(at(1000), at(full+500), stretch(1000, full+500, each))
	if want := full * each; len(s.messages) != want || !s.until.Equal(at(full-1)) {
		t.Errorf("%d messages until %v, want %d until %v", len(s.messages), s.until, want, at(full-1))
	}
	s.join(at(full), at(full+500), stretch(full, full+500, each))
	s.join(at(-5), at(-1), stretch(-5, -1, each))
	if want := full * each; len(s.messages) != want || !s.from.Equal(at(0)) || !s.until.Equal(at(full-1)) {
		t.Errorf("when it is full: %d messages from %v until %v, want what there was", len(s.messages), s.from, s.until)
	}

	// Slots of that span ring, for what was enqueued in the first second; nothing rings for what is older than the window by more than shelfGap.
	slot := &watch{slot: &scheduler.Companion{SlotEnd: at(60_000 + 999), Spans: []scheduler.Span{{Shortest: time.Minute, Longest: time.Minute}}}}
	s.clear([]window{{at(0), at(999), []*watch{slot}}})
	if got, want := len(s.messages), full*each-20*each; got != want {
		t.Errorf("%d messages after a slot of 20 ms, want %d", got, want)
	}
	s.clear([]window{{at(11_000), at(12_000), nil}})
	if got, want := len(s.messages), full*each-980*each-20*each; got != want || !s.from.Equal(at(1000)) {
		t.Errorf("%d messages from %v, want %d from %v", got, s.from, want, at(1000))
	}
	s.join(at(full), at(full+500), stretch(full, full+500, each))
	if !s.until.Equal(at(full + 500)) {
		t.Errorf("it ends at %v, want %v: there is room again", s.until, at(full+500))
	}
}
