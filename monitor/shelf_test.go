// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/internal/testing/testseed"
	"overdue/scheduler"
)

// What a shelf says of a window is what a read of the queue says, whatever windows were asked for before, how long they were, how much of
// them may still be filled, and whether reads failed: each message that waits there is seen, or noted, and none is noted twice.
func TestAShelfKnowsWhatTheQueueHas(t *testing.T) {
	seed := testseed.Of(t)
	for round := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, round))
		m := shelfModel{waiting: map[seat]bool{}}
		var s shelf
		for range 400 {
			m.pass(rng)
			// Of all lengths, near now and long ago, some of which touch, overlap, or have gaps between them.
			length := []int64{20, 500, 999, 1000, 1001, 5000}[rng.IntN(6)]
			from := m.now - length - rng.Int64N(20_000) + rng.Int64N(3)
			in := stretch{from, from + length}
			fails := rng.IntN(10) == 0
			seen, noted := map[seat]bool{}, map[seat]bool{}
			err := s.waiting(t.Context(), in, m.now-shelfAge.Milliseconds(), func(_ context.Context, of stretch, see func(*link.Message)) (bool, error) {
				if of.empty() || of.from < in.from || of.until > in.until {
					t.Fatalf("read %v for %v", of, in)
				}
				m.read(of, see)
				if fails {
					return false, errors.New("the line broke")
				}
				return false, nil
			}, func(msg *link.Message) { seen[seatOf(msg)] = true }, func(msg shelved) {
				at := seat{msg.number, msg.enqueued}
				if noted[at] || seen[at] || !in.holds(at.enqueued) {
					t.Fatalf("%v was noted for %v: twice, or it is not of it", at, in)
				}
				noted[at] = true
			})
			for at := range m.waiting {
				if err == nil && in.holds(at.enqueued) && !seen[at] && !noted[at] {
					t.Fatalf("round %d: message %v waits in %v and was neither seen nor noted; kept %v, now %d", round, at, in, s.kept, m.now)
				}
			}
			for i := 1; i < len(s.kept); i++ {
				if s.kept[i-1].empty() || s.kept[i].from <= s.kept[i-1].until {
					t.Fatalf("stretches that touch, overlap or are out of order: %v", s.kept)
				}
			}
			if rng.IntN(20) == 0 {
				s.forget(m.now - rng.Int64N(15_000))
			}
		}
	}
}

// shelfModel is a queue as it is: what waits there. Messages come up to shelfAge late, and go at any time.
type shelfModel struct {
	now     int64 // Unix milliseconds
	number  int64
	waiting map[seat]bool
}

// pass lets some time go by.
func (m *shelfModel) pass(rng *rand.Rand) {
	if m.now == 0 {
		m.now = noon.UnixMilli()
	}
	m.now += rng.Int64N(400)
	for range rng.IntN(20) {
		m.number++
		m.waiting[seat{m.number, m.now - rng.Int64N(shelfAge.Milliseconds()-1)}] = true
	}
	for at := range m.waiting {
		if rng.IntN(300) == 0 || at.enqueued < m.now-25_000 {
			delete(m.waiting, at)
		}
	}
}

func (m *shelfModel) read(of stretch, see func(*link.Message)) {
	for at := range m.waiting {
		if of.holds(at.enqueued) {
			see(&link.Message{SequenceNumber: at.number, EnqueuedTime: at.at()})
		}
	}
}

// What there is no room for is read again: the shelf must never claim a stretch of which it lacks something.
func TestAShelfEndsWhereItIsFull(t *testing.T) {
	begin := noon.UnixMilli()
	fill := func(from, until int64, each int) (all []shelved) {
		for ms := from; ms < until; ms++ {
			for range each {
				all = append(all, shelved{int64(len(all)), begin + ms, 60_000})
			}
		}
		return all
	}
	of := func(from, until int64) stretch { return stretch{begin + from, begin + until} }
	var s shelf
	const each = 100
	full := int64(maxShelved / each) // milliseconds, and 44 messages of the next one
	s.add(of(0, 1000), fill(0, 1000, each))
	s.add(of(1000, full+500), fill(1000, full+500, each))
	if want := int(full) * each; len(s.messages) != want || len(s.kept) != 1 || s.kept[0] != of(0, full) {
		t.Errorf("%d messages in %v, want %d in %v", len(s.messages), s.kept, want, of(0, full))
	}
	s.add(of(-5, 0), fill(-5, 0, each))
	if want := int(full) * each; len(s.messages) != want || s.knows(begin-5) {
		t.Errorf("when it is full: %d messages in %v, want what there was", len(s.messages), s.kept)
	}
	// Slots of that life ring, for what was enqueued in the first 20 ms; nothing rings for what is older than the window by more than shelfGap.
	slot := &watch{slot: &scheduler.Companion{SlotEnd: time.UnixMilli(begin + 60_019), Lives: []time.Duration{time.Minute}}}
	s.clear([]window{{time.UnixMilli(begin), time.UnixMilli(begin + 999), []*watch{slot}}}, Settings{})
	if got, want := len(s.messages), int(full)*each-20*each; got != want {
		t.Errorf("%d messages after a slot of 20 ms, want %d", got, want)
	}
	s.clear([]window{{time.UnixMilli(begin + 11_000), time.UnixMilli(begin + 12_000), nil}}, Settings{})
	if got, want := len(s.messages), int(full-1000)*each; got != want || s.kept[0] != of(1000, full) {
		t.Errorf("%d messages in %v, want %d from %v", got, s.kept, want, of(1000, full))
	}
	s.add(of(full, full+500), fill(full, full+500, each))
	if len(s.kept) != 1 || s.kept[0] != of(1000, full+500) {
		t.Errorf("it knows %v, want %v: there is room again", s.kept, of(1000, full+500))
	}
}

// Windows that have nothing to do with each other are remembered side by side, as many as there may be.
func TestAShelfForgetsTheOldestOfManyStretches(t *testing.T) {
	var s shelf
	for i := range int64(maxStretches + 10) {
		s.add(stretch{i * 10, i*10 + 5}, []shelved{{i, i * 10, 0}})
	}
	if len(s.kept) != maxStretches || len(s.messages) != maxStretches || s.knows(90) || !s.knows(100) {
		t.Errorf("%d stretches, %d messages, the first %v, want %d from 100 on", len(s.kept), len(s.messages), s.kept[0], maxStretches)
	}
}
