// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

// intake takes messages in: it refuses what does not belong together, finds duplicates, and numbers
// and stores the rest.
type intake struct {
	cfg         *settings
	entries     *entries
	numbers     *numbers
	sessions    *Sessions
	waiting     *waiting
	schedule    *schedule
	deadLetters *deadLetters
	history     history // of message-ids
}

// refusal is why the queue does not take these messages in one go. It is ErrSessionRequired when
// the queue requires sessions and a message has none. It is ErrDistinctKeys or ErrDistinctIDs when
// the queue is partitioned and they do not all belong together.
func (in *intake) refusal(ms []Message) error {
	apart := func(m Message) bool { return in.numbers.routing(&m) != in.numbers.routing(&ms[0]) }
	switch {
	case in.sessions != nil && slices.ContainsFunc(ms, func(m Message) bool { return !m.HasSession }):
		return ErrSessionRequired
	case !in.cfg.Partitioned || !slices.ContainsFunc(ms, apart):
		return nil
	case in.cfg.RequiresDuplicateDetection:
		return ErrDistinctIDs
	}
	return ErrDistinctKeys
}

// room finds out which of ms are duplicates, and asks take for the bytes that the others need; when
// it refuses, they were not here.
func (in *intake) room(ms []Message, now instant, take func(int64) bool) (duplicate []bool, ok bool) {
	duplicate, need, added := in.history.addAll(ms, now)
	for i := range ms {
		if duplicate == nil || !duplicate[i] {
			need += ms[i].size()
		}
	}
	if !take(need) {
		in.history.undo(added)
		return nil, false
	}
	in.history.report(added)
	return duplicate, true
}

// store stores those of ms that are no duplicates, under seqs, or under new numbers when that is
// nil. It returns the first of them.
func (in *intake) store(ms []Message, duplicate []bool, seqs []int64, now instant) (first int64) {
	first = in.numbers.last + 1
	for i := range ms {
		var seq int64
		if seqs != nil {
			seq = seqs[i]
		} else {
			seq = in.numbers.next(&ms[i])
		}
		if i == 0 {
			first = seq
		}
		if duplicate == nil || !duplicate[i] {
			e := newEntry(&ms[i], seq, in.cfg, now)
			if in.sessions != nil && e.marks&markSession == 0 {
				in.entries.admit(e)
				e.enqueue(now)
				in.deadLetters.add(e, ReasonNoSession, DescriptionNoSession)
				continue
			}
			in.insert(e, now)
		}
	}
	return first
}

// insert starts e on its way: to the schedule or to those who wait.
func (in *intake) insert(e *entry, now instant) {
	in.entries.admit(e)
	if e.scheduledAt > now {
		in.schedule.add(e)
		return
	}
	e.enqueue(now)
	in.waiting.add(e)
}
