// SPDX-License-Identifier: Apache-2.0

package nudge

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/monitor/judge"
	"overdue/monitor/search"
	"overdue/scheduler"
)

// slotScene is a scene with a slot in hand, over messages that were sent at the instant sent.
type slotScene struct {
	*scene
	cache      search.RangeCache
	prefetcher search.Prefetcher
	slots      Slots
	slot       scheduler.Companion
	fetched    int
}

// playSlot sends some messages and has a nudge wanted for the end of their slot. Then it is a second
// after that.
func playSlot(t *testing.T, messages int, act func(s *slotScene)) {
	t.Helper()
	play(t, func(base *scene) {
		s := &slotScene{scene: base}
		s.cache.SetWhole(true)
		s.prefetcher = search.Prefetcher{
			Links: s.Links, Path: orders, Operations: s.Operations, Seen: &search.SeenIDs{}, Cache: &s.cache,
			Final:   func() int64 { return search.Millis(time.Now().Add(-search.SettledAge)) },
			Fetched: func() { s.fetched++; s.Retry() }, Go: func(f func()) { go f() },
		}
		defer s.prefetcher.End()
		s.May = func(_ context.Context, until time.Time) bool { return s.slots.Unread(until, &s.cache) == nil }
		lives := make([]time.Duration, messages)
		for i := range lives {
			lives[i] = life
		}
		sent := s.send(lives...)
		s.slot = scheduler.Companion{Entity: orders, SlotEnd: sent.Add(life + time.Second), SlotLength: 2 * time.Second, Lives: []time.Duration{life}}
		s.slots.Add(sent.Add(life), &s.slot)
		s.Want(s.Context(), sent.Add(life+search.StampPrecision))
		time.Sleep(life + time.Second)
		synctest.Wait()
		act(s)
	})
}

func (s *slotScene) ranges() []search.TimeRange { return judge.RangesOf(judge.WindowsOf(&s.slot)) }

// expect fails unless so many messages are left on the work queue.
func (s *slotScene) expect(left int) {
	s.Helper()
	synctest.Wait()
	q, _ := s.ns.Broker.Queue(orders)
	if c := q.Counts(); c.Active != left {
		s.Fatalf("%+v, want %d active ones", c, left)
	}
}

// A nudge expires messages that nobody can read afterwards. So it comes behind the read, even if that
// is late.
func TestANudgeWaitsUntilItsSlotsWereRead(t *testing.T) {
	playSlot(t, 600, func(s *slotScene) {
		s.expect(600)
		for done := range s.ranges() {
			if err := <-s.prefetcher.Fetch(s.Context(), s.ranges()[done]); err != nil {
				s.Fatal(err)
			}
		}
		s.expect(0)
		cached := 0
		err := s.cache.Waiting(s.Context(), s.ranges()[0], search.Millis(time.Now()), func(context.Context, search.TimeRange, func(*link.Message) bool) (bool, error) {
			s.Error("a range that was fetched is read again")
			return false, nil
		}, func(*link.Message) {}, search.Due{TimeRange: search.TimeRange{Until: search.Millis(time.Now())}}, func(m *search.CachedMessage) {
			if m.Whole != nil {
				cached++
			}
		})
		if err != nil || cached != 600 {
			t.Errorf("the cache has %d messages, %v, want 600", cached, err)
		}
	})
}

func TestANudgeWaitsForNoSlotThatWasSearched(t *testing.T) {
	playSlot(t, 1, func(s *slotScene) {
		s.expect(1)
		s.slots.Remove(&s.slot)
		s.Retry()
		s.expect(0)
	})
}

// A slot that nobody reads must not stop the expiry for ever.
func TestASlotThatIsNotReadHoldsUpNudgesForAWhile(t *testing.T) {
	playSlot(t, 1, func(s *slotScene) {
		time.Sleep(readMost - time.Second)
		s.expect(1)
		time.Sleep(2 * time.Second)
		s.expect(0)
	})
}

// What is wanted when the worker stops is not read, and its caller does not wait for ever.
func TestAPrefetcherStopsWithTheWorker(t *testing.T) {
	playSlot(t, 1, func(s *slotScene) {
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		wanted := slices.Concat(s.ranges(), s.ranges())
		done := s.prefetcher.Fetch(ctx, wanted...)
		for range wanted {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("a fetch of a worker that stops: %v, want an error", err)
			}
		}
		if all, _ := s.cache.HasAll(s.ranges()...); all {
			t.Error("it was read")
		}
	})
}

// A cache that does not keep short ranges never has what was read ahead.
func TestAPrefetcherReadsAheadOnce(t *testing.T) {
	playSlot(t, 1, func(s *slotScene) {
		s.cache.SetWhole(false)
		if err := <-s.prefetcher.Fetch(s.Context(), s.ranges()...); err != nil {
			s.Fatal(err)
		}
		synctest.Wait() // for ever, if it goes on
		if s.fetched != 1 {
			t.Errorf("%d reads, want one", s.fetched)
		}
	})
}

// While a read fails, the prefetcher waits for the next one that is wanted: it must not try again by
// itself, which would take a processor.
func TestAPrefetcherDoesNotTryAgainByItself(t *testing.T) {
	playSlot(t, 1, func(s *slotScene) {
		s.prefetcher.Path = "missing"
		for range 2 {
			if err := <-s.prefetcher.Fetch(s.Context(), s.ranges()...); err == nil {
				s.Error("a read of a queue that does not exist works")
			}
		}
		synctest.Wait() // for ever, if it tries again
		if s.fetched != 2 {
			t.Errorf("%d reads, want 2", s.fetched)
		}
	})
}

// Behind what is wanted, the prefetcher reads on, as far as no message can come any more.
func TestAPrefetcherReadsAhead(t *testing.T) {
	playSlot(t, 1, func(s *slotScene) {
		end := search.Millis(time.Now().Add(-search.SettledAge))
		near, far := search.TimeRange{From: end - 5000, Until: end - 4000}, search.TimeRange{From: end - 1000, Until: end - 50}
		for _, in := range []search.TimeRange{near, far} {
			if err := <-s.prefetcher.Fetch(s.Context(), in); err != nil {
				s.Fatal(err)
			}
			synctest.Wait()
		}
		for in, missing := range map[search.TimeRange]bool{
			near: false, {From: near.Until, Until: near.Until + 100}: false, {From: near.Until, Until: near.Until + 300}: true,
			far: false, {From: far.Until, Until: end}: false, {From: far.Until, Until: end + 1}: true,
		} {
			if all, _ := s.cache.HasAll(in); all == missing {
				t.Errorf("from %d to %d ms of what is final: the cache has all %v, want %v", in.From-end, in.Until-end, all, !missing)
			}
		}
	})
}
