// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"testing"
	"time"
)

// A message that is found in the window of a reference without a name is taken for the reference's
// message, so the window is as short as is sure. It is that of a slot where the broker expires the
// message itself and enqueues it at once. Otherwise it is that of every send.
func TestTheWindowOfAMessageWithoutANameIsAsShortAsIsSure(t *testing.T) {
	const uncertainty = 5 * time.Millisecond
	scheduled := noon.Truncate(time.Millisecond).Add(time.Hour)
	stampedBy := noon.Add(uncertainty + 50*time.Millisecond) // in two slots
	for _, tt := range []struct {
		name     string
		id       string
		findable bool
		at       time.Time
		delay    time.Duration
		until    time.Time
	}{
		{"found by its time to live", "", true, time.Time{}, 0, stampedBy},
		{"at the end of a transaction", "", true, time.Time{}, time.Second, stampedBy.Add(time.Second)},
		{"not found by it", "", false, time.Time{}, 0, noon.Add(uncertainty + sendWindow)},
		{"scheduled", "", true, scheduled, 0, scheduled.Add(activationWindow)},
		{"with a name", "m", true, time.Time{}, 0, noon.Add(uncertainty + sendWindow)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &message{ID: "m", TTL: time.Minute, ScheduledEnqueueTime: tt.at, Delay: tt.delay}
			s := &send{settings: Settings{Monitored: true, Findable: tt.findable}, ms: []*message{m}, now: measured(uncertainty)}
			pr, ok, err := promiseOf(m, s.settings, s.now)
			if err != nil || !ok {
				t.Fatalf("promiseOf = %v, %v, want a promise", ok, err)
			}
			s.promises = []promise{pr}
			m.ID = tt.id // there was no room for it
			s.nameMessages()
			got := s.promises[0].ref
			if got.MessageID != tt.id {
				t.Errorf("the reference names %q, want %q", got.MessageID, tt.id)
			}
			if !got.Until.Equal(tt.until) {
				t.Errorf("its window ends %v after the send, want %v", got.Until.Sub(noon), tt.until.Sub(noon))
			}
		})
	}
}
