// SPDX-License-Identifier: Apache-2.0

package bubble

import (
	"slices"
	"time"

	"overdue/alert"

	"github.com/google/go-cmp/cmp"
)

// count adds up the counters of that name whose labels match, over all processes. match gets the
// values of the labels, in the order of their names.
func (s *Scene) count(name string, match func(labels []string) bool) (n float64) {
	s.Helper()
	for _, registry := range s.Registries {
		families, err := registry.Gather()
		s.Must(err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				if f.GetName() == name && match(labels) {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// Operations counts the operations of that name that the processes have asked of the broker so far;
// "" for all.
func (s *Scene) Operations(name string) float64 {
	s.Helper()
	return s.count("overdue_broker_operations_total", func(l []string) bool { return name == "" || l[0] == name })
}

// Verdicts counts the verdicts of one kind about an entity.
func (s *Scene) Verdicts(entity, verdict string) float64 {
	s.Helper()
	return s.count("overdue_deadlines_total", func(l []string) bool { return l[0] == entity && l[1] == verdict })
}

// Adopted counts the messages that adopt passes gave a companion.
func (s *Scene) Adopted() float64 {
	s.Helper()
	return s.count("overdue_adopted_total", func([]string) bool { return true })
}

// AdoptPassed waits until only the note of the next adopt pass of each entity is left.
func (s *Scene) AdoptPassed(within time.Duration) {
	s.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		c := s.CompanionsKept()
		if c.Leased == 0 && int(c.Waiting) == len(s.Adopt) && c.Dead == 0 {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("there are %+v companions after %v, want %d adopt notes", c, within, len(s.Adopt))
		}
	}
}

// WantEvents wants these and no other events, as "type subject" without the prefix of all types, in
// any order. Each must come after the deadline that it is about, and within a second.
func (s *Scene) WantEvents(want ...string) {
	s.Helper()
	var got []string
	for _, e := range s.Hook.Events() {
		name := e.Type[len("overdue.deadline."):] + " " + e.Subject
		if sub := e.Data.Subscription; sub != "" {
			name += " of " + sub
		}
		got = append(got, name)
		kind := "received"
		if e.Type == alert.TypeIncomplete {
			kind = "completed"
		}
		if e.Data.DeadlineKind != kind || e.Data.LagMs < 0 || e.Data.LagMs > 1000 || e.Data.SequenceNumber == 0 || e.Data.EnqueuedTime.IsZero() {
			s.Errorf("%s: %+v; want a deadline to be %s and a lag of 0 to 1000 ms", name, e.Data, kind)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("notified of (-want +got):\n%s", diff)
	}
}
