// SPDX-License-Identifier: Apache-2.0

package queue

import "time"

// DeleteBatch removes up to limit messages that wait and were enqueued at before or earlier, the
// oldest first, and says how many. With a session id it only removes those of that session. It is a
// receive as far as expiry goes: what has expired is moved as Config.Expiry says, and not counted.
// Locked, deferred and scheduled messages stay. Errors: ErrClosed.
func (q *Queue) DeleteBatch(limit int, before time.Time, sessionID *string) (int, error) {
	now, err := q.enter()
	if err != nil {
		return 0, err
	}
	defer q.leave(now)
	q.dispatch.assign(now) // what catching up gave back may belong to a consumer
	for q.cfg.Expiry != LazyHead && !q.expiry.flushWave(now) {
	}
	until := instantOf(before)
	deleted := 0
	var others []*entry // of other sessions
	oldest := q.waiting.oldest(sessionID)
	for deleted < limit {
		e := oldest()
		if e == nil || e.enqueuedAt > until {
			break
		}
		switch {
		case q.expiry.expired(e, now):
			q.expiry.cleanUp(e, now)
		case sessionID != nil && e.sessionID != *sessionID:
			q.waiting.remove(e)
			others = append(others, e)
		default:
			q.waiting.remove(e)
			q.entries.drop(e)
			deleted++
		}
	}
	for _, e := range others {
		q.waiting.add(e)
	}
	return deleted, nil
}
