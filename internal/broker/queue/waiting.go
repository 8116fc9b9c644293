// SPDX-License-Identifier: Apache-2.0

package queue

// waiting is the messages that wait for a consumer: active and unlocked.
type waiting struct {
	cfg      *settings
	entries  *entries
	sessions *Sessions
	line     lazyHeap // by order of arrival; in a session queue each session has its own
	expiry   lazyHeap // those that can expire, by expiresAt
}

// add makes e available for consumers.
func (w *waiting) add(e *entry) {
	e.waiting = true
	if w.sessions != nil {
		w.sessions.wait(e)
	} else {
		w.line.add(e, arrival(e.seq))
	}
	if w.expires(e) {
		w.expiry.add(e, int64(e.expiresAt))
	}
}

// remove is the opposite of add.
func (w *waiting) remove(e *entry) {
	e.waiting = false
	if w.sessions != nil {
		w.sessions.unwait(e)
	} else {
		w.line.leave()
	}
	if w.expires(e) {
		w.expiry.leave()
	}
}

func (w *waiting) expires(e *entry) bool { return e.expiresAt != never && !w.cfg.frozen }

// move makes e, which waits, the last but for those to come.
func (w *waiting) move(e *entry, key int64) {
	line := &w.line
	if w.sessions != nil {
		line = &w.sessions.byID[e.sessionID].waiting
	}
	line.move(e, key)
}

// oldest yields the first of those who wait, as often as it is called; the caller makes it
// wait no more. In a session queue with a session id it yields those of that session alone.
func (w *waiting) oldest(sessionID *string) func() *entry {
	if w.sessions != nil && sessionID == nil {
		var from int64
		return func() (found *entry) {
			w.entries.byNumber.ascend(from, func(e *entry) bool {
				if e.waiting {
					found, from = e, e.seq+1
				}
				return found == nil
			})
			return found
		}
	}
	line := &w.line
	if w.sessions != nil {
		s := w.sessions.byID[*sessionID]
		if s == nil {
			return func() *entry { return nil }
		}
		line = &s.waiting
	}
	return line.min
}
