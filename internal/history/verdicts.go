// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"encoding/binary"
	"maps"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"overdue/internal/operations"
)

const (
	kindDeadlines = "deadlines"
	// maxTotals bounds the entities and verdicts with a number of their own. The others are counted
	// together, under otherEntities.
	maxTotals     = 4000
	otherEntities = "other"
)

// Verdicts are numbers of deadlines, by entity and then by verdict.
type Verdicts = map[string]map[string]uint64

// totals are the deadlines that were counted, by entity and verdict.
type totals struct {
	since time.Time // of ever
	ever  map[series]uint64
	day   time.Time // of today
	today map[series]uint64
}

func newTotals(since time.Time) totals {
	return totals{
		since: since,
		ever:  map[series]uint64{},
		today: map[series]uint64{},
	}
}

// dayOf is 00:00 UTC of an instant.
func dayOf(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// isTotalled reports whether a series is among the totals. Canaries are not.
func (s series) isTotalled() bool { return s.kind == kindDeadlines && s.result != operations.Canary }

// nameOf returns the series that a number is added to.
func (t *totals) nameOf(s series) series {
	if _, known := t.ever[s]; !known && len(t.ever) >= maxTotals {
		s.name = otherEntities
	}
	return s
}

// add adds what a batch has.
func (t *totals) add(b *batch) {
	maps.Copy(t.ever, b.totals)
	for s, c := range b.counts {
		if s.isTotalled() {
			t.addToday(b.minute, t.nameOf(s), c[0])
		}
	}
}

// addToday adds what was counted in a minute to its day.
func (t *totals) addToday(minute time.Time, s series, n uint64) {
	if day := dayOf(minute); !day.Equal(t.day) {
		t.day, t.today = day, map[series]uint64{}
	}
	t.today[s] += n
}

// Counts returns the deadlines of this process by entity and verdict: those since 00:00 UTC of now,
// and those since the history begins. Without a file it begins with the process.
func (h *History) Counts(now time.Time) (today, ever Verdicts, since time.Time) {
	today, ever = Verdicts{}, Verdicts{}
	sampled, _ := h.sample() // the write says it if the metrics cannot be read
	h.mu.Lock()
	defer h.mu.Unlock()
	for s, n := range h.totals.ever {
		addVerdicts(ever, s, n)
	}
	if dayOf(now).Equal(h.totals.day) {
		for s, n := range h.totals.today {
			addVerdicts(today, s, n)
		}
	}
	for s, all := range sampled {
		if !s.isTotalled() {
			continue
		}
		if n := all.Since(h.last[s])[0]; n > 0 {
			s = h.totals.nameOf(s)
			addVerdicts(ever, s, n)
			addVerdicts(today, s, n)
		}
	}
	return today, ever, h.totals.since
}

func addVerdicts(to Verdicts, s series, n uint64) {
	if to[s.name] == nil {
		to[s.name] = map[string]uint64{}
	}
	to[s.name][s.result] += n
}

// totalKey names a series in the bucket of totals, and seriesOfTotal reads that name.
func totalKey(s series) []byte { return []byte(s.name + "\x00" + s.result) }

func seriesOfTotal(k []byte) series {
	name, result, _ := strings.Cut(string(k), "\x00")
	return series{kindDeadlines, name, result}
}

// putTotals writes the totals with what a batch adds to them.
func putTotals(bucket *bbolt.Bucket, b *batch) (err error) {
	for s, n := range b.totals {
		err = cmp.Or(err, bucket.Put(totalKey(s), binary.AppendUvarint(nil, n)))
	}
	return err
}

// readTotals reads the totals of a file. One that has none yet begins with the sum of its records.
func (s *store) readTotals(tx *bbolt.Tx, now time.Time) error {
	t := newTotals(now)
	bucket := tx.Bucket(totalsBucket)
	isNew := bucket == nil
	if isNew {
		var err error
		if bucket, err = tx.CreateBucket(totalsBucket); err != nil {
			return err
		}
	}
	err := bucket.ForEach(func(k, v []byte) error {
		if n, length := binary.Uvarint(v); length > 0 { // else its bytes have gone bad
			t.ever[seriesOfTotal(k)] = n
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The records of a day are its sum; of a file without totals, all of them are.
	today := dayOf(now)
	err = tx.Bucket(recordsBucket).ForEach(func(k, v []byte) error {
		minute := timeOf(k)
		if kind(k[timeLength]) != kindCount || !isNew && minute.Before(today) {
			return nil
		}
		of, c, ok := parseCount(string(k[headLength:]), v)
		if !ok || !of.isTotalled() {
			return nil
		}
		if minute.Before(t.since) {
			t.since = minute
		}
		if isNew {
			t.ever[t.nameOf(of)] += c[0]
		}
		if !minute.Before(today) {
			t.addToday(minute, t.nameOf(of), c[0])
		}
		return nil
	})
	if err != nil {
		return err
	}
	state := tx.Bucket(stateBucket)
	if isNew {
		err = cmp.Or(putTotals(bucket, &batch{totals: t.ever}), state.Put(totalsKey, encodeTime(t.since.Unix())))
	}
	t.since = timeOf(state.Get(totalsKey))
	s.totals = t
	return err
}
