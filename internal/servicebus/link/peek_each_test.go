// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"testing"
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
