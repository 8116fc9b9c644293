// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/servicebus/link"
	"overdue/internal/testing/pipenet"
)

func TestPeeksAtManyRangesTakeHardlyLongerThanOne(t *testing.T) {
	play(t, func(s *scene) {
		s.send(50, time.Hour)
		p := s.peeker("orders")
		if _, err := p.Peek(s.Context(), 1, 1); err != nil { // the token is there
			s.Fatal(err)
		}
		const roundTrip = 100 * time.Millisecond
		s.ns.Net.Delay(pipenet.ToListener, roundTrip)
		var ranges []link.PeekRange
		for i := range 60 { // the last ten find nothing; more than may wait at a time
			ranges = append(ranges, link.PeekRange{From: int64(i + 1), N: 2})
		}
		began := time.Now()
		pages, err := p.PeekEach(s.Context(), ranges)
		if err != nil {
			s.Fatal(err)
		}
		if took := time.Since(began); took > 5*roundTrip {
			s.Errorf("%d peeks took %v, want about two round trips of %v", len(ranges), took, roundTrip)
		}
		for i, page := range pages {
			want := max(0, min(2, 50-i))
			if len(page) != want || want > 0 && page[0].SequenceNumber != ranges[i].From {
				s.Errorf("page %d has %d messages: %+v; want %d from number %d on", i, len(page), page, want, ranges[i].From)
			}
		}
	})
}

func TestPeekerIsClosedWhenOneOfManyPeeksFails(t *testing.T) {
	play(t, func(s *scene) {
		s.send(1, time.Hour)
		p := s.peeker("orders")
		_, err := p.PeekEach(s.Context(), []link.PeekRange{{From: 1, N: 1}, {From: 1, N: -1}, {From: 1, N: 1}})
		if err == nil {
			s.Fatal("a peek at -1 messages succeeds")
		}
		if _, err := p.Peek(s.Context(), 1, 1); err == nil {
			s.Error("the peeker goes on after an error")
		}
		if page, err := s.peeker("orders").Peek(s.Context(), 1, 1); err != nil || len(page) != 1 {
			s.Errorf("a new peeker: %d messages, %v; want one", len(page), err)
		}
	})
}

func TestAPageIsRequestedBeforeTheLastOneIsRead(t *testing.T) {
	play(t, func(s *scene) {
		s.send(25, time.Hour)
		p := s.peeker("orders")
		page := func(from int64, more func(n int, last *link.Message) bool) (numbers []int64) {
			s.Helper()
			ms, err := p.PeekAhead(s.Context(), link.PeekRange{From: from, N: 10}, more)
			if err != nil {
				s.Fatal(err)
			}
			for _, m := range ms {
				numbers = append(numbers, m.SequenceNumber)
			}
			return numbers
		}
		upTo := func(from, to int64) (numbers []int64) {
			for ; from <= to; from++ {
				numbers = append(numbers, from)
			}
			return numbers
		}
		want := func(what string, got []int64, from, to, ahead int64) {
			s.Helper()
			if !slices.Equal(got, upTo(from, to)) {
				s.Errorf("%s has %v, want %d to %d", what, got, from, to)
			}
			if at := p.Ahead(); at.From != ahead {
				s.Errorf("after %s, page %+v was requested, want the one from %d on", what, at, ahead)
			}
		}
		all := func(int, *link.Message) bool { return true }
		want("the first page", page(1, func(n int, last *link.Message) bool {
			if n != 10 || last.SequenceNumber != 10 {
				s.Errorf("the first page has %d messages up to %d, want 10 up to 10", n, last.SequenceNumber)
			}
			return true
		}), 1, 10, 11)
		want("the second page", page(11, all), 11, 20, 21)
		want("a page that was not requested", page(3, func(int, *link.Message) bool { return false }), 3, 12, 0)
		want("the page after it", page(13, all), 13, 22, 23)
		if ms, err := p.Peek(s.Context(), 5, 1); err != nil || len(ms) != 1 || ms[0].SequenceNumber != 5 {
			s.Errorf("a peek at 5 while a page is on its way: %v, %v", ms, err)
		}
		want("that page", page(23, all), 23, 25, 26)
		synctest.Wait()
		s.send(1, time.Hour) // behind the page that was requested
		want("the end", page(26, all), 26, 25, 0)
	})
}
