// SPDX-License-Identifier: Apache-2.0

package nudge

import (
	"testing"
	"time"

	"overdue/internal/servicebus/link"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// Reads and nudges, a second apart, from noon on. Each step says what the read before the nudge
// finds, and what the nudge gets; 0: nothing. The last step has the read only.
func TestAQueueIsQuietWhileTheNextNudgeFindsWhatTheLastOneLeft(t *testing.T) {
	type step struct {
		found, got int64
		changed    bool // the message was delivered and abandoned
		unread     bool // there is no read before the nudge
		live       bool // what was found cannot have expired by the end of the nudge
	}
	for _, c := range []struct {
		what  string
		steps []step
		since int // the nudge from which on nobody received
		upTo  int // the nudge at which that ends; -1: nothing is known
	}{
		{"one nudge shows nothing", []step{{got: 1}}, 0, -1},
		{"what it got stays", []step{{got: 1}, {found: 1}}, 0, 0},
		{"it stays for longer", []step{{got: 1}, {found: 1, got: 1}, {found: 1}}, 0, 1},
		{"each nudge expires the oldest ones", []step{{got: 5}, {found: 5, got: 7}, {found: 7, got: 9}, {found: 9}}, 0, 2},
		{"a nudge expires all", []step{{got: 3}, {found: 3}, {}}, 0, 2},
		{"new ones come to an empty queue", []step{{got: 3}, {found: 3}, {found: 9}}, 0, 1},
		{"and may be received unnoticed before they are seen", []step{{got: 3}, {found: 3}, {found: 9, got: 9}, {found: 9}}, 2, 2},
		{"an old one comes back to an empty queue", []step{{got: 3}, {found: 3}, {found: 4}}, 0, 0},
		{"somebody takes what the nudge got", []step{{got: 1}, {found: 2, got: 2}, {found: 2}}, 1, 1},
		{"somebody locks it", []step{{got: 1}, {found: 1, got: 2, live: true}, {found: 2}}, 1, 1},
		{"the next nudge gets it again", []step{{got: 1}, {unread: true, got: 1}, {unread: true}}, 0, 1},
		{"the next nudge gets another one", []step{{got: 1}, {unread: true, got: 2, live: true}, {unread: true}}, 0, -1},
		{"the next nudge gets it after a delivery", []step{{got: 1}, {unread: true, got: 1, changed: true, live: true}, {unread: true}}, 0, -1},
		{"somebody locks it and it expires", []step{{got: 1}, {found: 1, got: 2}, {found: 1}}, 0, 0},
		{"somebody gives it back", []step{{got: 1}, {found: 1, changed: true}}, 0, -1},
		{"an older one comes back", []step{{got: 2}, {found: 2, got: 1, live: true}, {found: 1}}, 1, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			var q Quiet
			at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
			deliveries := uint32(0)
			message := func(number int64) *link.Message {
				if number == 0 {
					return nil
				}
				// Number 9 comes later than all nudges.
				return &link.Message{SequenceNumber: number, EnqueuedTime: noon.Add(time.Duration(number-8) * time.Minute), DeliveryCount: deliveries}
			}
			for i, s := range c.steps {
				if s.changed {
					deliveries++
				}
				if i > 0 && q.Open() && !s.unread {
					q.see(availableOf(message(s.found)), at(i))
				}
				if i == 0 || i < len(c.steps)-1 {
					q.After(message(s.got), at(i), at(i), !s.live)
				}
			}
			for i := range c.steps {
				want := c.upTo >= 0 && c.since <= i
				if got := q.Proves(&link.Message{SequenceNumber: 10}, at(i), at(c.upTo)); got != want {
					t.Errorf("nobody received from instant %d until nudge %d: %v, want %v", i, c.upTo, got, want)
				}
				if q.Proves(&link.Message{SequenceNumber: 10}, at(i), at(max(c.upTo, 0)).Add(1)) {
					t.Errorf("nobody received from instant %d until after nudge %d, want it unknown", i, max(c.upTo, 0))
				}
			}
		})
	}
}

// Messages before the one that a nudge gets are not available: consumers hold them.
func TestWhatIsOlderThanTheFirstAvailableMessageIsHeld(t *testing.T) {
	var q Quiet
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	for i, number := range []int64{5, 5, 3, 3} { // number 3 comes back
		m := &link.Message{SequenceNumber: number}
		if q.Open() {
			q.see(availableOf(&link.Message{SequenceNumber: max(number, q.next.Number)}), at(i))
		}
		q.After(m, at(i), at(i), false)
	}
	for _, c := range []struct {
		number int64
		read   int
		held   bool
	}{{4, 1, true}, {5, 1, false}, {2, 3, true}, {4, 3, false}, {9, 3, false}} {
		if got := q.Held(c.number, at(c.read)); got != c.held {
			t.Errorf("message %d, seen at instant %d, is held: %v, want %v", c.number, c.read, got, c.held)
		}
		if c.held && q.Proves(&link.Message{SequenceNumber: c.number}, at(c.read), at(c.read)) {
			t.Errorf("message %d, seen at instant %d, is proven to be available although it is held", c.number, c.read)
		}
	}
	if q.Held(1, at(0)) {
		t.Error("a message is held that was seen right before the first nudge, want it unknown")
	}
}

func TestAReceiveThatIsNotKnownEndsTheQuiet(t *testing.T) {
	var q Quiet
	m := &link.Message{SequenceNumber: 1}
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	for i := range 5 {
		if i == 2 {
			q.Break()
		}
		if q.Open() {
			q.see(availableOf(m), at(i))
		}
		q.After(m, at(i), at(i), false)
	}
	if !q.Proves(m, at(0), at(1)) || q.Proves(m, at(0), at(2)) || q.Proves(m, at(1), at(2)) || !q.Proves(m, at(2), at(4)) {
		t.Errorf("the spans %v, want one up to the second nudge, and one from the third on", q.spans)
	}
}

// A deferred message is received by its number, whatever stands first.
func TestADeferredMessageIsNotAvailable(t *testing.T) {
	var q Quiet
	m := &link.Message{SequenceNumber: 1}
	for i := range 2 {
		q.After(m, noon.Add(time.Duration(i)*time.Second), noon.Add(time.Duration(i)*time.Second), false)
	}
	deferred := &link.Message{SequenceNumber: 1, State: link.Deferred}
	if !q.Proves(m, noon, noon) || q.Proves(deferred, noon, noon) {
		t.Errorf("proven to have expired: %v, and if it is deferred: %v, want only the first", q.Proves(m, noon, noon), q.Proves(deferred, noon, noon))
	}
}

func TestQuietRemembersABoundedNumberOfSpans(t *testing.T) {
	var q Quiet
	for i := range 100 {
		q.After(&link.Message{SequenceNumber: int64(i + 1)}, noon, noon, false)
	}
	if len(q.spans) > maxQuietSpans {
		t.Errorf("%d spans are remembered, want %d at most", len(q.spans), maxQuietSpans)
	}
}
