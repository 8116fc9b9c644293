// SPDX-License-Identifier: Apache-2.0

package history

import (
	"time"

	"go.etcd.io/bbolt"

	"overdue/internal/notifications"
)

// Reasons of gaps.
const (
	reasonBegin   = "the history begins then"
	reasonDamaged = "the file was damaged and is moved aside"
	reasonSize    = "removed, because the history is full (history.maxSize)"
	reasonKeep    = "removed, because it is older than history.keep"
	reasonStopped = "no process wrote it"
	reasonDropped = "dropped, because the file could not be written"
	reasonProxy   = "this process has no monitor; ask one that has"
	reasonWaits   = "the file cannot be written, and what happened waits in memory"
)

// resume notes from when on a new file has everything, or since when nobody has written an old one.
func (s *store) resume(tx *bbolt.Tx, now time.Time, reason string) error {
	state := tx.Bucket(stateBucket)
	written := state.Get(writtenKey)
	switch {
	case len(written) != timeLength && state.Get(beginKey) == nil:
		return state.Put(beginKey, append(encodeTime(now.Unix()), reason...))
	case len(written) != timeLength || !timeOf(written).Before(now):
		return nil // nothing was written since it was made, or the clock was set back
	}
	g := notifications.Gap{From: timeOf(written), To: now, Reason: reasonStopped}
	k := gapKey(g)
	s.bytes += size(k, []byte(g.Reason))
	return tx.Bucket(recordsBucket).Put(k, []byte(g.Reason))
}

// gapKey has the end of a gap, then its beginning.
func gapKey(g notifications.Gap) []byte {
	return keyOf(g.To.Unix()+1, kindGap, string(encodeTime(g.From.Unix())))
}

// Gaps returns the spans since a time of which the history may lack something, the earliest first.
func (h *History) Gaps(since time.Time) ([]notifications.Gap, error) {
	if h == nil {
		return nil, nil
	}
	now := time.Now().UTC()
	gaps := []notifications.Gap{{To: now.Add(-h.cfg.Keep), Reason: reasonKeep}}
	h.mu.Lock()
	if !h.lost.To.IsZero() {
		gaps = append(gaps, h.lost)
	}
	if h.failed {
		from := h.written
		if from.IsZero() {
			from = h.store.opened
		}
		gaps = append(gaps, notifications.Gap{From: from, To: now, Reason: reasonWaits})
	}
	h.mu.Unlock()
	err := h.store.view(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(stateBucket).Get(beginKey); len(v) > timeLength && timeOf(v).After(gaps[0].To) {
			gaps[0] = notifications.Gap{To: timeOf(v), Reason: string(v[timeLength:])}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	begin := gaps[0].To
	err = h.store.each(kindGap, begin, func(at time.Time, from string, v []byte) bool {
		if len(from) == timeLength {
			gaps = append(gaps, notifications.Gap{From: timeOf([]byte(from)), To: at, Reason: string(v)})
		}
		return true
	})
	return notifications.Since(gaps, since), err
}

func (h *History) lose(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loseLocked(at)
}

// loseLocked notes that something is dropped that happened at an instant.
func (h *History) loseLocked(at time.Time) {
	if h.lost.To.IsZero() {
		h.lost = notifications.Gap{From: at, To: at, Reason: reasonDropped}
	}
	if at.Before(h.lost.From) {
		h.lost.From = at
	}
	if at.After(h.lost.To) {
		h.lost.To = at
	}
}
