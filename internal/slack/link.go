// SPDX-License-Identifier: Apache-2.0

package slack

import "time"

// Deliveries that only the meter needs are all measured while they are few, then one of SampleEvery,
// which counts for all of these.
const (
	SampleEvery = 16
	sampleAfter = 100 // in a second
)

// A Link measures the settlements of one receiving link. It is not safe for concurrent use. nil
// measures none.
type Link struct {
	meter  *Meter
	place  string
	entity *Entity // from the first settlement on: only then does the place exist for sure

	measured, passed int
	since            time.Time // when measured was last set to 0
}

// Link returns the measurement of a link to a queue or subscription.
func (m *Meter) Link(place string) *Link {
	if m == nil {
		return nil
	}
	return &Link{meter: m, place: place}
}

// Weight is for how many deliveries the next one counts; 0 = it is not to be measured.
func (l *Link) Weight() uint64 {
	if l == nil {
		return 0
	}
	if l.measured++; l.measured <= sampleAfter {
		return 1
	}
	if l.passed++; l.passed%SampleEvery == 0 {
		return SampleEvery
	}
	return 0
}

// Settled counts a settlement with its weight. The instants are those of the broker's clock.
func (l *Link) Settled(enqueued, settled, deadline time.Time, weight uint64) {
	if l == nil {
		return
	}
	if l.entity == nil {
		l.entity = l.meter.Of(l.place)
	}
	l.entity.Settled(enqueued, settled, deadline, weight)
	if settled.Sub(l.since) > time.Second {
		l.measured, l.since = 0, settled
	}
}
