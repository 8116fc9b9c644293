// SPDX-License-Identifier: Apache-2.0

package queue

import "pgregory.net/rapid"

// checkSessions adds what is in the sessions to waiting and locks of counts, and reports the size
// of the states.
func (q *Queue) checkSessions(t *rapid.T, counts []int) (size int64) {
	t.Helper()
	ss := q.sessions
	if ss == nil {
		return 0
	}
	listed := func(l *sessionList) map[*session]bool {
		in := make(map[*session]bool)
		var last *session
		for s := l.first; s != nil; last, s = s, s.links[l.slot].next {
			if in[s] = true; s.links[l.slot].prev != last {
				t.Fatalf("list %d is broken at session %q", l.slot, s.id)
			}
		}
		if l.last != last {
			t.Fatalf("list %d ends with %p, want %p", l.slot, l.last, last)
		}
		return in
	}
	all, available := listed(&ss.all), listed(&ss.available)
	messages, locks, receiving := 0, 0, 0
	for id, s := range ss.byID {
		if s.id != id || !all[s] {
			t.Fatalf("session %q is called %q, in the list %v", id, s.id, all[s])
		}
		if s.byNumber.len() == 0 && s.lock == nil && s.state == nil {
			t.Fatalf("session %q has nothing left and is still there", id)
		}
		if want := s.lock == nil && s.waiting.len() > 0; s.available != want || available[s] != want {
			t.Fatalf("session %q is available %v, in the list %v, want %v", id, s.available, available[s], want)
		}
		if s.touched {
			t.Fatalf("session %q is still to be looked at", id)
		}
		messages += s.byNumber.len()
		counts[0] += s.waiting.len()
		size += s.stateSize()
		if s.lock != nil {
			locks++
			counts[2] += s.lock.locked.len()
			receiving += len(s.lock.consumers.line)
			if ss.locks[s.lock.pos] != s.lock || s.lock.over {
				t.Fatalf("lock of session %q is over %v, or not where it thinks", id, s.lock.over)
			}
		}
	}
	if len(all) != len(ss.byID) || locks != len(ss.locks) || messages != q.entries.byNumber.len() || receiving != ss.receiving {
		t.Fatalf("sessions, locks, messages, receiving = %d, %d, %d, %d, want %d, %d, %d, %d",
			len(all), locks, messages, receiving, len(ss.byID), len(ss.locks), q.entries.byNumber.len(), ss.receiving)
	}
	if len(ss.waiters) > 0 && len(available) > 0 {
		t.Fatalf("%d wait for a session though %d are available", len(ss.waiters), len(available))
	}
	return size
}
