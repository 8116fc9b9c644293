// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/internal/testing/testseed"
)

// The range cache agrees with a read of the queue, after any earlier windows of any length, with
// open ends and failed reads: each waiting message that may become due in some time is seen or
// noted, and none is noted twice.
func TestTheRangeCacheAgreesWithTheQueue(t *testing.T) {
	seed := testseed.Of(t)
	for round := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, round))
		m := queueModel{waiting: map[Identity]bool{}}
		var s RangeCache
		for range 400 {
			m.pass(rng)
			// Of all lengths, near now and long ago, some of which touch, overlap, or have gaps
			// between them.
			length := []int64{20, 500, 999, 1000, 1001, 5000}[rng.IntN(6)]
			from := m.now - length - rng.Int64N(20_000) + rng.Int64N(3)
			in := TimeRange{From: from, Until: from + length}
			fails := rng.IntN(10) == 0
			final := m.now - SettledAge.Milliseconds()
			s.SetWhole(rng.IntN(2) == 0)
			// All lives, some of which the queue shortens, or a part of them.
			due := Due{TimeRange: TimeRange{From: from, Until: from + rng.Int64N(60_000)}}
			if rng.IntN(2) == 0 {
				due.Most = time.Duration(rng.Int64N(60_000)) * time.Millisecond
			}
			mayBeDue := func(at Identity) bool {
				life := lifeOf(at.Number)
				return life == 0 || due.Holds(at.Enqueued+life) || due.Most > 0 && life > due.Most.Milliseconds()
			}
			seen, noted := map[Identity]bool{}, map[Identity]bool{}
			err := s.Waiting(t.Context(), in, final, func(_ context.Context, of TimeRange, see func(*link.Message) bool) (bool, error) {
				if of.Empty() || of.From < in.From || of.Until > in.Until {
					t.Fatalf("read %v for %v", of, in)
				}
				m.read(of, func(msg *link.Message) { see(msg) })
				if fails {
					return false, errors.New("the line broke")
				}
				return false, nil
			}, func(msg *link.Message) { seen[IdentityOf(msg)] = true }, due, func(msg *CachedMessage) {
				at := msg.Identity
				if noted[at] || seen[at] || !in.Holds(at.Enqueued) || !mayBeDue(at) {
					t.Fatalf("%v was noted for %v: twice, or it is not of it", at, in)
				}
				noted[at] = true
			})
			for at := range m.waiting {
				if err == nil && in.Holds(at.Enqueued) && mayBeDue(at) && !seen[at] && !noted[at] {
					t.Fatalf("round %d: message %v waits in %v and was neither seen nor noted; kept %v, now %d", round, at, in, s.known, m.now)
				}
			}
			for i := 1; i < len(s.known); i++ {
				if s.known[i-1].Empty() || s.known[i].From < s.known[i-1].Until {
					t.Fatalf("ranges that overlap or are out of order: %v", s.known)
				}
			}
			if rng.IntN(20) == 0 {
				s.forget(m.now - rng.Int64N(15_000))
			}
			if rng.IntN(20) == 0 { // what has been handled is received
				s.Clear(from, due, func(msg *CachedMessage) bool {
					delete(m.waiting, msg.Identity)
					return true
				})
			}
			n := 0
			for _, group := range s.messages.groups {
				n += len(group)
			}
			if n != s.messages.n {
				t.Fatalf("the cache has %d messages and counts %d", n, s.messages.n)
			}
		}
	}
}

// queueModel is the model of a queue: its waiting messages. Messages come late, and
// go at any time.
type queueModel struct {
	now     int64 // Unix milliseconds
	number  int64
	waiting map[Identity]bool
}

// pass lets some time go by.
func (m *queueModel) pass(rng *rand.Rand) {
	if m.now == 0 {
		m.now = noon.UnixMilli()
	}
	m.now += rng.Int64N(400)
	for range rng.IntN(20) {
		m.number++
		m.waiting[Identity{Number: m.number, Enqueued: m.now - rng.Int64N(SettledAge.Milliseconds()-1)}] = true
	}
	for at := range m.waiting {
		if rng.IntN(300) == 0 || at.Enqueued < m.now-25_000 {
			delete(m.waiting, at)
		}
	}
}

func (m *queueModel) read(of TimeRange, see func(*link.Message)) {
	for at := range m.waiting {
		if of.Holds(at.Enqueued) {
			see(&link.Message{SequenceNumber: at.Number, EnqueuedTime: at.EnqueuedTime(), TimeToLive: time.Duration(lifeOf(at.Number)) * time.Millisecond})
		}
	}
}

func (s *RangeCache) has(in TimeRange) bool {
	all, _ := s.HasAll(in)
	return all
}

// lifeOf is the time to live that a message states, in milliseconds; 0: none.
func lifeOf(number int64) int64 { return number % 11 * 5000 }

// Messages beyond the bound are read again: the range cache must never claim a time range of which
// it lacks a message.
func TestAFullRangeCacheDropsItsEnd(t *testing.T) {
	begin := noon.UnixMilli()
	fill := func(from, until int64, each int) (all []CachedMessage) {
		for ms := from; ms < until; ms++ {
			for range each {
				all = append(all, CachedMessage{Identity: Identity{int64(len(all)), begin + ms}, life: 60_000})
			}
		}
		return all
	}
	read := noon
	of := func(from, until int64) cachedRange {
		read = read.Add(2 * joinedAfter)
		return cachedRange{TimeRange{From: begin + from, Until: begin + until}, read}
	}
	var s RangeCache
	const each = 100
	full := int64(maxCachedMessages / each) // milliseconds, and 44 messages of the next one
	s.add(of(0, 1000), fill(0, 1000, each))
	if s.has(of(1000, 1001).TimeRange) {
		t.Error("it has what was not read, although it has room")
	}
	s.add(of(1000, full+500), fill(1000, full+500, each))
	if !s.has(of(full, full+1).TimeRange) {
		t.Error("something waits for it to have more than it has room for")
	}
	if want := int(full) * each; s.messages.n != want || len(s.missing(of(0, full).TimeRange)) > 0 {
		t.Errorf("%d messages in %v, want %d in %v", s.messages.n, s.known, want, of(0, full).TimeRange)
	}
	s.add(of(-5, 0), fill(-5, 0, each))
	if want := int(full) * each; s.messages.n != want || s.contains(begin-5) {
		t.Errorf("when it is full: %d messages in %v, want what there was", s.messages.n, s.known)
	}
	// Slots of that life become due, for what was enqueued in the first 20 ms; nothing becomes
	// due for what is older than the window by more than cacheGap.
	s.Clear(begin, Due{TimeRange: TimeRange{begin + 60_000, begin + 60_021}}, func(m *CachedMessage) bool { return m.Enqueued < begin+20 })
	if got, want := s.messages.n, int(full)*each-20*each; got != want {
		t.Errorf("%d messages after a slot of 20 ms, want %d", got, want)
	}
	s.Clear(begin+11_000, Due{}, func(*CachedMessage) bool { return false })
	if got, want := s.messages.n, int(full-1000)*each; got != want || len(s.missing(of(1000, full).TimeRange)) > 0 {
		t.Errorf("%d messages in %v, want %d from %v", got, s.known, want, of(1000, full).TimeRange)
	}
	_, drops := s.HasAll()
	s.Clear(begin+11_000, Due{TimeRange: TimeRange{begin, begin + 100_000}}, func(m *CachedMessage) bool { return m.Enqueued < begin+full/2+500 })
	if _, now := s.HasAll(); s.has(of(full+9, full+10).TimeRange) || now == drops {
		t.Errorf("it is half empty and has what was not read, or %d drops are still %d", drops, now)
	}
	s.add(of(full, full+500), fill(full, full+500, each))
	if !s.has(of(1000, full+500).TimeRange) {
		t.Errorf("it knows %v, want %v: there is room again", s.known, of(1000, full+500).TimeRange)
	}
}

// A read that is long holds nothing up, and claims no more than it has kept.
func TestAReadOfTooManyMessagesClaimsWhatItKept(t *testing.T) {
	begin := noon.UnixMilli()
	in := TimeRange{begin, begin + 10_000}
	var s RangeCache
	s.SetWhole(true)
	read := func(_ context.Context, of TimeRange, see func(*link.Message) bool) (bool, error) {
		for i := range int64(maxCachedWhole + 5000) {
			more := see(&link.Message{SequenceNumber: i + 1, EnqueuedTime: time.UnixMilli(begin + i/40), TimeToLive: time.Minute})
			if held := !s.has(in); held != (i < longRead-1) {
				t.Fatalf("after %d messages of one read others wait for it: %v", i+1, held)
			}
			if more != (i < maxCachedWhole) {
				t.Fatalf("after %d messages more are wanted: %v", i+1, more)
			}
		}
		return false, nil
	}
	if err := s.Waiting(t.Context(), in, begin+20_000, read, func(*link.Message) {}, Due{}, func(*CachedMessage) {}); err != nil {
		t.Fatal(err)
	}
	most := begin + maxCachedWhole/40
	if left := s.missing(in); len(left) != 1 || left[0].From > most || s.messages.n > maxCachedWhole {
		t.Errorf("it has %d messages and lacks %v, want some from %d on", s.messages.n, left, most)
	}
}

// Nobody waits for what is being read in a long read. When it has ended, what the cache lacks is
// waited for again, also while the cache is more than half full.
func TestALongReadIsNotWaitedForWhileItRuns(t *testing.T) {
	var s RangeCache
	s.SetWhole(true)
	in, next := TimeRange{From: 0, Until: 100_000}, TimeRange{From: 100_000, Until: 101_000}
	for _, fails := range []error{errors.New("the line broke"), nil} {
		err := s.Waiting(t.Context(), in, in.Until, func(_ context.Context, _ TimeRange, see func(*link.Message) bool) (bool, error) {
			for i := range int64(maxCachedWhole - 1) {
				see(&link.Message{SequenceNumber: i + 1, EnqueuedTime: time.UnixMilli(i / 2), TimeToLive: time.Hour})
				if all, _ := s.HasAll(next); all != (i >= longRead-1) {
					t.Fatalf("after %d messages of a read the cache has all = %v", i+1, all)
				}
			}
			return false, fails
		}, func(*link.Message) {}, Due{}, func(*CachedMessage) {})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
		if s.has(next) {
			t.Errorf("after a long read that ended with %v the cache claims what nobody has read", fails)
		}
	}
	if !s.has(in) {
		t.Error("the cache lacks what was read")
	}
}

// How much is kept may change during a read. What was not read any more is not claimed.
func TestAReadThatEndsEarlyClaimsWhatItRead(t *testing.T) {
	begin := noon.UnixMilli()
	in := TimeRange{begin, begin + 10_000}
	var s RangeCache
	s.SetWhole(true)
	read := func(_ context.Context, _ TimeRange, see func(*link.Message) bool) (bool, error) {
		for i := int64(0); see(&link.Message{SequenceNumber: i + 1, EnqueuedTime: time.UnixMilli(begin + i/40), TimeToLive: time.Minute}); i++ {
		}
		s.SetWhole(false)
		return false, nil
	}
	if err := s.Waiting(t.Context(), in, begin+20_000, read, func(*link.Message) {}, Due{}, func(*CachedMessage) {}); err != nil {
		t.Fatal(err)
	}
	most := begin + maxCachedWhole/40
	if left := s.missing(in); len(left) != 1 || left[0].From > most {
		t.Errorf("it lacks %v, want what follows %d", left, most)
	}
}

// Windows that have nothing to do with each other are remembered side by side, as many as there
// may be.
func TestTheRangeCacheDropsTheOldestOfManyRanges(t *testing.T) {
	var s RangeCache
	for i := range int64(maxCachedRanges + 10) {
		s.add(cachedRange{TimeRange{From: i * 10, Until: i*10 + 5}, noon}, []CachedMessage{{Identity: Identity{i, i * 10}}})
	}
	if len(s.known) != maxCachedRanges || s.messages.n != maxCachedRanges || s.contains(90) || !s.contains(100) {
		t.Errorf("%d stretches, %d messages, the first %v, want %d from 100 on", len(s.known), s.messages.n, s.known[0], maxCachedRanges)
	}
}

// Ranges that touch become one when both were read a while ago, and count as read by the later
// read.
func TestARangeThatIsCachedWasReadByThen(t *testing.T) {
	var s RangeCache
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	add := func(from, until int64, read time.Time) { s.add(cachedRange{TimeRange{from, until}, read}, nil) }
	covered := func(want bool, by time.Time, from, until int64) {
		t.Helper()
		if got := s.CoveredBy(by, TimeRange{from, until}); got != want {
			t.Errorf("%d to %d is covered by %v: %v, want %v; the ranges %v", from, until, by, got, want, s.known)
		}
	}
	add(0, 100, at(0))
	add(100, 200, at(1))
	covered(true, at(0), 0, 100)
	covered(false, at(0), 0, 101)
	covered(true, at(1), 20, 200)
	covered(false, at(1), 20, 201)
	add(300, 400, at(9))
	covered(true, at(1), 0, 200) // they are one now
	covered(false, at(0), 0, 100)
	covered(false, at(9), 100, 400) // there is a gap
	add(200, 300, at(9))
	covered(true, at(9), 0, 400)
}

func TestTheRangeCacheFindsWhatIsNamed(t *testing.T) {
	names := []string{"a", "b", "", "c", "a", "c"}
	messages := func(whole bool) (all []CachedMessage) {
		for i, name := range names {
			m := &link.Message{MessageID: name, SequenceNumber: int64(i + 1), EnqueuedTime: noon.Add(time.Duration(i) * time.Second), TimeToLive: time.Minute}
			all = append(all, cached(m, noon, whole))
		}
		return all
	}
	during := TimeRange{Millis(noon), Millis(noon.Add(time.Minute))}
	for _, c := range []struct {
		whole  bool
		wanted []string
		due    time.Duration // after that
		want   []int64
	}{
		{true, []string{"a", "x"}, 0, []int64{1, 5}},
		{true, []string{"c", "b"}, 0, []int64{2, 4, 6}},
		{true, []string{""}, 0, []int64{3}},
		{true, []string{"a", "c"}, 62 * time.Second, []int64{4, 5, 6}},
		{true, nil, 0, nil},
		{false, []string{"a", ""}, 0, nil},
	} {
		var s RangeCache
		s.add(cachedRange{during, noon}, messages(c.whole))
		wants := map[string][]*Want{}
		for _, name := range c.wanted {
			wants[name] = []*Want{{}}
		}
		var got []int64
		s.Named(wants, Due{TimeRange: TimeRange{Millis(noon.Add(c.due)), Millis(noon.Add(time.Hour))}}, func(m *CachedMessage) { got = append(got, m.Number) })
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("whole %v, %q, due after %v: %v, want %v", c.whole, c.wanted, c.due, got, c.want)
		}
	}
}
