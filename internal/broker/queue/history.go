// SPDX-License-Identifier: Apache-2.0

package queue

// A history remembers which messages were sent, to detect duplicates. It is a map for lookups and a
// queue of the same ids for the clock. An id is forgotten when its time is over, at the cost of one
// comparison per operation.
type history struct {
	cfg     *settings
	quota   *Quota
	changes *changes

	seen    map[string]instant // when the first was sent
	line    []remembered       // in order of arrival, from head on
	head    int
	last    instant // no time in line is later; its end may be far earlier, when the clock was set back
	size    int64   // bytes that count towards the quota
	trimmed instant // what is older was reported to the log as ended; unset: nothing was
}

type remembered struct {
	key string
	at  instant
}

// historyOverhead is the cost of one id in addition to its bytes.
const historyOverhead = 112

func historyCost(key string) int64 { return historyOverhead + int64(len(key)) }

// addAll remembers ms and marks those that were sent before, or twice among them. It is nil when
// there are none; need is what the others cost in the history, added how many they are.
func (h *history) addAll(ms []Message, now instant) (marks []bool, need int64, added int) {
	if !h.cfg.RequiresDuplicateDetection {
		return nil, 0, 0
	}
	for i := range ms {
		key := h.key(&ms[i])
		if key == "" {
			continue // no name, no twin
		}
		if h.add(key, now) {
			need += historyCost(key)
			added++
			continue
		}
		if marks == nil {
			marks = make([]bool, len(ms))
		}
		marks[i] = true
	}
	return marks, need, added
}

// key is what two messages have in common that are duplicates. In a partitioned queue the partition
// key is part of it, because each partition only knows its own.
func (h *history) key(m *Message) string {
	if m.MessageID == "" || !h.cfg.Partitioned {
		return m.MessageID
	}
	return m.partitionKey() + "\x00" + m.MessageID
}

// add remembers key, unless it is known: then the message is a duplicate. The time counts from the
// first message, so a duplicate does not extend it.
func (h *history) add(key string, now instant) (added bool) {
	if sentAt, known := h.seen[key]; known && now < h.end(sentAt) {
		return false
	}
	h.put(key, now)
	return true
}

func (h *history) put(key string, at instant) {
	if h.seen == nil {
		h.seen = make(map[string]instant)
	}
	if h.len() == 0 {
		h.last = at
	}
	h.last = max(h.last, at)
	h.seen[key] = at
	h.line = append(h.line, remembered{key, at})
	h.size += historyCost(key)
}

// restore is for Queue.Restore. The log has the keys in order of time.
func (h *history) restore(key string, at instant) {
	h.put(key, at)
	h.quota.add(historyCost(key))
}

// report reports the n that were added last.
func (h *history) report(n int) { h.changes.noteSent(h.line[len(h.line)-n:]) }

// undo forgets the n that were added last.
func (h *history) undo(n int) {
	for range n {
		h.forget(h.line[len(h.line)-1])
		h.line[len(h.line)-1] = remembered{}
		h.line = h.line[:len(h.line)-1]
	}
}

// prune forgets what is older than the window.
func (h *history) prune(now instant) {
	before := h.size
	for h.head < len(h.line) && h.end(h.line[h.head].at) <= now {
		h.forget(h.line[h.head])
		h.line[h.head] = remembered{}
		h.head++
	}
	switch {
	case h.head == len(h.line) && h.head > 0:
		h.seen, h.line, h.head = nil, nil, 0 // a map does not shrink by itself
	case h.head > 1024 && h.head > len(h.line)/2:
		h.line = append(make([]remembered, 0, len(h.line)-h.head), h.line[h.head:]...)
		h.head = 0
	}
	if h.size < before {
		h.quota.add(h.size - before)
		h.trim(now)
	}
}

// trimsPerWindow is how often within a window it is reported what has ended. A range of ids costs
// the log as much as a single one.
const trimsPerWindow = 8

// trim reports what has ended, unless most of that was reported before.
func (h *history) trim(now instant) {
	window := instant(0).add(h.cfg.DuplicateDetectionHistoryTimeWindow)
	ended := now - window
	if h.changes.log == nil || h.len() > 0 && h.trimmed != unset && ended < h.trimmed+window/trimsPerWindow {
		return
	}
	h.trimmed = ended
	h.changes.noteExpired(ended + 1)
}

// forget drops one place in the line. After the clock was set back the id may have been added once
// more behind it.
func (h *history) forget(r remembered) {
	if h.seen[r.key] == r.at {
		delete(h.seen, r.key)
	}
	h.size -= historyCost(r.key)
}

// len is how many ids are remembered.
func (h *history) len() int { return len(h.line) - h.head }

// end is when an id is forgotten that was sent at that time.
func (h *history) end(sentAt instant) instant {
	return sentAt.add(h.cfg.DuplicateDetectionHistoryTimeWindow)
}

// next is when all of it can be forgotten. The timer waits for that alone: before, every send
// prunes.
func (h *history) next() instant {
	if h.len() == 0 {
		return never
	}
	return h.end(h.last)
}
