// SPDX-License-Identifier: Apache-2.0

package search

import (
	"slices"
	"testing"
	"time"

	"overdue/internal/servicebus/link"
)

// Two reads of the beginning of a queue, one second apart.
func TestAQueueIsQuietWhileItsOldestMessagesStay(t *testing.T) {
	const ttl = 10 * time.Second
	see := func(q *Quiet, page []*link.Message, at time.Time) {
		o := Observation{Now: at, Nudges: []Nudge{{Ended: at}}, Life: func(m *link.Message) time.Duration { return m.TimeToLive }}
		if i := slices.IndexFunc(page, func(m *link.Message) bool {
			return m.State == link.Active && (m.TimeToLive == 0 || m.EnqueuedTime.Add(m.TimeToLive).After(at))
		}); i >= 0 {
			o.Nudges[0].First = page[i].SequenceNumber
		}
		q.see(page, at, &o)
	}
	page := func(change func(ms []*link.Message) []*link.Message) []*link.Message {
		ms := numbered(1, 2, 3, 4, 5)
		for _, m := range ms {
			m.TimeToLive = ttl
		}
		return change(ms)
	}
	same := func(ms []*link.Message) []*link.Message { return ms }
	first := noon.Add(time.Second)
	for _, c := range []struct {
		what   string
		before func([]*link.Message) []*link.Message
		after  func([]*link.Message) []*link.Message
		later  time.Duration // the second read
		quiet  bool
	}{
		{"all stay", same, same, time.Second, true},
		{"new ones come", same, func(ms []*link.Message) []*link.Message { return append(ms, numbered(6)...) }, time.Second, true},
		{"one is gone", same, func(ms []*link.Message) []*link.Message { return ms[1:] }, time.Second, false},
		{"one in the middle is gone", same, func(ms []*link.Message) []*link.Message { return append(ms[:2:2], ms[3:]...) }, time.Second, false},
		{"another message has its number", same, func(ms []*link.Message) []*link.Message {
			ms[0].EnqueuedTime = ms[0].EnqueuedTime.Add(time.Hour)
			return ms
		}, time.Second, false},
		{"one was delivered", same, func(ms []*link.Message) []*link.Message { ms[2].DeliveryCount++; return ms }, time.Second, false},
		{"one was deferred", same, func(ms []*link.Message) []*link.Message { ms[2].State = link.Deferred; return ms }, time.Second, false},
		{"one has expired", func(ms []*link.Message) []*link.Message { ms[0].TimeToLive = 2 * time.Second; return ms },
			func(ms []*link.Message) []*link.Message { return ms[1:] }, time.Second, true},
		{"one is gone that had been about to expire", func(ms []*link.Message) []*link.Message { ms[0].TimeToLive = 1400 * time.Millisecond; return ms },
			func(ms []*link.Message) []*link.Message { return ms[1:] }, time.Second, true},
		{"one is gone before it expired", func(ms []*link.Message) []*link.Message { ms[0].TimeToLive = 3 * time.Second; return ms },
			func(ms []*link.Message) []*link.Message { return ms[1:] }, time.Second, false},
		{"one without a time to live is gone", func(ms []*link.Message) []*link.Message { ms[0].TimeToLive = 0; return ms },
			func(ms []*link.Message) []*link.Message { return ms[1:] }, time.Hour, false},
		{"a deferred one is gone, which a consumer has by its number", func(ms []*link.Message) []*link.Message { ms[0].State = link.Deferred; return ms },
			func(ms []*link.Message) []*link.Message { return ms[1:] }, time.Second, true},
		{"all have expired", same, func([]*link.Message) []*link.Message { return nil }, time.Minute, false},
		{"only one is left", same, func(ms []*link.Message) []*link.Message { return ms[:1] }, time.Second, false},
		{"nothing was there", func([]*link.Message) []*link.Message { return nil }, same, time.Second, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			var q Quiet
			if q.From(first) {
				t.Error("a queue that was not read yet is quiet, want it unknown")
			}
			see(&q, page(c.before), first)
			see(&q, page(c.after), first.Add(c.later))
			if got := q.From(first); got != c.quiet {
				t.Errorf("quiet = %t, want %t", got, c.quiet)
			}
			if q.From(first.Add(-time.Millisecond)) {
				t.Error("it is quiet since before the first read, want it unknown")
			}
		})
	}
}

func TestAQueueIsQuietAgainFromTheNextReadOn(t *testing.T) {
	var q Quiet
	forever := func(*link.Message) time.Duration { return 0 }
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	for i, page := range [][]*link.Message{numbered(1, 2, 3, 4), numbered(1, 2, 3, 4), numbered(2, 3, 4), numbered(2, 3, 4), numbered(2, 3, 4, 5)} {
		q.see(page, at(i), &Observation{Now: at(i), Nudges: []Nudge{{at(i), page[0].SequenceNumber}}, Life: forever})
	}
	if q.From(at(1)) || !q.From(at(2)) {
		t.Errorf("quiet from the second read on: %t, from the third on: %t, want false and true", q.From(at(1)), q.From(at(2)))
	}
}

// A consumer that has locked the oldest messages settles them when it likes.
func TestAQueueWhoseOldestMessageIsLockedIsNotQuiet(t *testing.T) {
	forever := func(*link.Message) time.Duration { return 0 }
	page := numbered(1, 2, 3, 4, 5)
	for _, c := range []struct {
		what  string
		first int64
		age   time.Duration // of the nudge
		quiet bool
	}{
		{"the nudge got the oldest message", 1, 0, true},
		{"the nudge got the second message", 2, 0, false},
		{"the nudge got nothing", 0, 0, false},
		{"the nudge was long ago", 1, nudgeHolds + 1, false},
	} {
		var q Quiet
		for i := range 3 {
			at := noon.Add(time.Duration(i) * time.Second)
			q.see(page, at, &Observation{Now: at, Nudges: []Nudge{{at.Add(-c.age), c.first}, {at, 0}}, Life: forever})
		}
		if got := q.From(noon); got != c.quiet {
			t.Errorf("%s: quiet = %t, want %t", c.what, got, c.quiet)
		}
	}
}
