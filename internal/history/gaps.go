// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"overdue/internal/notifications"
)

// Reasons of gaps.
const (
	reasonBegin   = "the history begins then"
	reasonFormer  = "an earlier version wrote it, and kept no gaps"
	reasonDamaged = "the file was damaged and is moved aside"
	reasonSize    = "removed, because the history is full (history.maxSize)"
	reasonKeep    = "removed, because it is older than history.keep"
	reasonStopped = "no process wrote it"
	reasonDropped = "dropped, because the file could not be written"
	reasonProxy   = "this process has no monitor; ask one that has"
	reasonWaits   = "the file cannot be written, and what happened waits in memory"
)

// resume notes from when on a new file has everything, or since when nobody has written an old one.
func (f *file) resume(tx *bbolt.Tx, now time.Time, reason string) error {
	state := tx.Bucket(stateBucket)
	switch written := state.Get(writtenKey); {
	case len(written) == timeLength:
		g := notifications.Gap{From: timeOf(written), To: now, Reason: reasonStopped}
		if !g.From.Before(now) {
			return nil // or the clock was set back
		}
		k := gapKey(g)
		f.bytes += size(k, []byte(g.Reason))
		return tx.Bucket(gapsBucket).Put(k, []byte(g.Reason))
	case state.Get(beginKey) != nil:
		return nil // nothing was written since it was made
	case !f.clock.IsZero():
		reason = reasonFormer
	}
	return state.Put(beginKey, keyOf(now.Unix(), reason))
}

// gapKey has the end of a gap, then its beginning.
func gapKey(g notifications.Gap) []byte {
	return keyOf(g.To.Unix()+1, string(keyOf(g.From.Unix(), "")))
}

func timeOf(k []byte) time.Time {
	return time.Unix(int64(binary.BigEndian.Uint64(k)), 0).UTC()
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
			from = h.file.opened
		}
		gaps = append(gaps, notifications.Gap{From: from, To: now, Reason: reasonWaits})
	}
	h.mu.Unlock()
	err := h.view(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(stateBucket).Get(beginKey); len(v) > timeLength && timeOf(v).After(gaps[0].To) {
			gaps[0] = notifications.Gap{To: timeOf(v), Reason: string(v[timeLength:])}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	begin := gaps[0].To
	err = h.each(gapsBucket, begin, func(k, v []byte) (bool, error) {
		if len(k) == 2*timeLength {
			gaps = append(gaps, notifications.Gap{From: timeOf(k[timeLength:]), To: timeOf(k), Reason: string(v)})
		}
		return true, nil
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
