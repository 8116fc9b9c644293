// SPDX-License-Identifier: Apache-2.0

package queue

// Peek appends to dst up to max messages from sequence number from upwards, from included:
// everything that exists, waiting, locked, deferred, scheduled, or expired and not moved yet. It
// changes nothing; above all it is no receive that would move the expired. A closed queue has no
// messages.
func (q *Queue) Peek(dst []View, from int64, max int) []View {
	if max <= 0 {
		return dst
	}
	now, err := q.enter()
	if err != nil {
		return dst
	}
	defer q.leave(now)
	// What catching up gave back may belong to a consumer or be dead by now.
	q.dispatch.assign(now)
	return q.entries.peek(dst, &q.entries.byNumber, from, max)
}
