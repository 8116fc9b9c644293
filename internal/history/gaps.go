// SPDX-License-Identifier: Apache-2.0

package history

import (
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// Reasons of gaps.
const (
	reasonBegin   = "the history begins then"
	reasonDamaged = "the file was damaged and is moved aside"
	reasonSize    = "removed, because the history is full (history.maxSize)"
	reasonKeep    = "removed, because it is older than history.keep"
	reasonStopped = "no process wrote it"
	reasonDropped = "dropped, because the file could not be written, or not fast enough"
	reasonProxy   = "this process has no monitor; ask one that has"
	reasonWaits   = "the file cannot be written, and what happened waits in memory"
	reasonNoFile  = "this process keeps no history"
	reasonSeveral = "several gaps"
)

const (
	// maxGaps bounds the gaps of one answer. The earliest beyond it are one gap.
	maxGaps   = 20
	gapFormat = "2006-01-02 15:04:05Z"
)

// A Gap is a span of which a history may lack something.
type Gap struct {
	From   time.Time `json:"from"` // zero = ever
	To     time.Time `json:"to"`
	Reason string    `json:"reason"`
}

// String is a gap in words.
func (g Gap) String() string {
	to := g.To.UTC().Format(gapFormat) + ": " + g.Reason
	if g.From.IsZero() {
		return "until " + to
	}
	return g.From.UTC().Format(gapFormat) + " to " + to
}

// include extends the gap of what was dropped by an instant.
func (g *Gap) include(at time.Time) {
	if g.To.IsZero() {
		*g = Gap{at, at, reasonDropped}
	}
	if at.Before(g.From) {
		g.From = at
	}
	if at.After(g.To) {
		g.To = at
	}
}

// gapKey has the end of a gap, then its beginning.
func gapKey(g Gap) []byte {
	return keyOf(g.To.Unix()+1, kindGap, string(encodeTime(g.From.Unix())))
}

// Gaps returns the spans since a time of which the history may lack something, the earliest first.
// One that cannot be read is a gap itself.
func (h *History) Gaps(since time.Time) []Gap {
	now := time.Now().UTC()
	var gaps []Gap
	if h.file == nil {
		gaps = []Gap{{To: h.began, Reason: reasonNoFile}}
	} else if read, err := h.file.gaps(now.Add(-h.cfg.Keep)); err != nil {
		gaps = []Gap{{To: now, Reason: err.Error()}}
	} else {
		gaps = read
	}
	h.mu.Lock()
	if !h.lost.To.IsZero() {
		gaps = append(gaps, h.lost)
	}
	if h.failed {
		from := h.written
		if from.IsZero() {
			from = h.began.UTC()
		}
		gaps = append(gaps, Gap{from, now, reasonWaits})
	}
	h.mu.Unlock()
	gaps = slices.DeleteFunc(gaps, func(g Gap) bool { return !g.To.After(since) })
	slices.SortStableFunc(gaps, func(a, b Gap) int { return a.To.Compare(b.To) })
	if over := len(gaps) - maxGaps; over > 0 {
		gaps[over] = Gap{gaps[0].From, gaps[over].To, reasonSeveral}
		gaps = gaps[over:]
	}
	return gaps
}

// missedGaps are those of missed deadlines, of which the history of a proxy has none of its own.
func (h *History) missedGaps(since time.Time, scope string) []Gap {
	gaps := h.Gaps(since)
	if h.cfg.NoMonitor && scope != ScopeFleet {
		gaps = append(gaps, Gap{To: time.Now(), Reason: reasonProxy})
	}
	return gaps
}

// gaps returns those that the file knows. kept is since when records are not too old.
func (s *store) gaps(kept time.Time) ([]Gap, error) {
	first := Gap{To: kept, Reason: reasonKeep}
	if err := s.db.View(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(stateBucket).Get(beginKey); timeOf(v).After(kept) {
			first = Gap{To: timeOf(v), Reason: string(v[timeLength:])}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	gaps := []Gap{first}
	err := s.each(kindGap, first.To, func(at time.Time, from string, v []byte) bool {
		gaps = append(gaps, Gap{timeOf([]byte(from)), at, string(v)})
		return true
	})
	return gaps, err
}
