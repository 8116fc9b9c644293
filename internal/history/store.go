// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"overdue/alert"
	"overdue/internal/boltcheck"
	"overdue/internal/notifications"
	"overdue/internal/slack"
)

const (
	fileName   = "history.db"
	asideName  = "history.damaged.db" // one only, so that damage cannot fill the disk
	lockTime   = 200 * time.Millisecond
	timeLength = 8
	headLength = timeLength + 1 // of a key
	// overhead is what a record takes besides its key and value, about.
	overhead = 32
	// maxRemoved bounds the records that one transaction removes, and so the time that it takes.
	maxRemoved = 10_000
)

var (
	recordsBucket = []byte("records v2")
	stateBucket   = []byte("state v2")
	clockKey      = []byte("clock")
	writtenKey    = []byte("written") // the machine's clock at the last write
	beginKey      = []byte("begin")   // the file has nothing before: time, reason
)

// A kind of records. The key of a record has its time, its kind, and what tells it from others.
type kind byte

const (
	kindMissed kind = 'm' // a missed deadline and the sinks that took it, by the deadline
	kindCount  kind = 'c' // what was counted, by its minute
	kindGap    kind = 'g' // why something is missing, by the end of the span
)

func keyOf(seconds int64, k kind, parts ...string) []byte {
	key := append(encodeTime(seconds), byte(k))
	return append(key, strings.Join(parts, "\x00")...)
}

// encodeTime makes instants ascend as their bytes do.
func encodeTime(seconds int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(max(0, seconds)))
}

func timeOf(k []byte) time.Time {
	return time.Unix(int64(binary.BigEndian.Uint64(k)), 0).UTC()
}

func size(k, v []byte) int64 { return int64(len(k)+len(v)) + overhead }

// A store is the history on disk: records in one bucket, the oldest first.
type store struct {
	db     boltcheck.DB
	bytes  int64     // of all records; only writes change it
	clock  time.Time // as it was last written; zero = never
	opened time.Time // by the machine's clock
}

// openStore opens the file of a directory. now is the machine's clock.
func openStore(directory string, now time.Time) (s *store, aside string, err error) {
	path := filepath.Join(directory, fileName)
	s, err = tryOpen(path, now, reasonBegin)
	switch {
	case errors.Is(err, boltcheck.ErrInUse):
		return nil, "", fmt.Errorf("history: %s is in use by another process; give each a history.directory of its own", path)
	case errors.Is(err, boltcheck.ErrDamaged):
		aside = filepath.Join(directory, asideName)
		if err := os.Rename(path, aside); err != nil {
			return nil, "", fmt.Errorf("history: move the damaged file aside: %w", err)
		}
		s, err = tryOpen(path, now, reasonDamaged)
	}
	if err != nil {
		return nil, aside, fmt.Errorf("history: open %s: %w", path, err)
	}
	return s, aside, nil
}

// tryOpen opens the file at path. If it makes one, reason says why it begins now.
func tryOpen(path string, now time.Time, reason string) (*store, error) {
	db, err := boltcheck.Open(path, lockTime)
	if err != nil {
		return nil, err
	}
	s := &store{db: db, opened: now}
	if err := db.Update(func(tx *bbolt.Tx) error { return s.prepare(tx, now, reason) }); err != nil {
		_ = db.Close() // it is of no use, whatever this says
		return nil, err
	}
	return s, nil
}

// prepare makes what the file lacks, and adds up what it has.
func (s *store) prepare(tx *bbolt.Tx, now time.Time, reason string) error {
	state, err := tx.CreateBucketIfNotExists(stateBucket)
	if err != nil {
		return err
	}
	records, err := tx.CreateBucketIfNotExists(recordsBucket)
	if err != nil {
		return err
	}
	if v := state.Get(clockKey); len(v) == timeLength {
		s.clock = timeOf(v)
	}
	err = records.ForEach(func(k, v []byte) error {
		if len(k) < headLength {
			return fmt.Errorf("%w: a key has %d bytes", boltcheck.ErrDamaged, len(k))
		}
		s.bytes += size(k, v)
		return nil
	})
	if err != nil {
		return err
	}
	return s.resume(tx, now, reason)
}

func (s *store) close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("history: close the file: %w", err)
	}
	return nil
}

// A batch is what is written at once.
type batch struct {
	missed map[string]notifications.Notification // by key
	counts map[point]slack.Counts
	gap    notifications.Gap // what was dropped; the zero value is none
	added  []alert.Event     // of missed, by put: those that the file did not have
}

func (b *batch) empty() bool { return len(b.missed)+len(b.counts) == 0 && b.gap.To.IsZero() }

// write adds a batch, all or nothing. Its size is bounded by what may wait in memory.
func (s *store) write(b *batch, clock, now time.Time) error {
	total := s.bytes
	err := s.update(func(tx *bbolt.Tx) error {
		added, err := b.put(tx.Bucket(recordsBucket))
		total += added
		state := tx.Bucket(stateBucket)
		return errors.Join(err, state.Put(clockKey, encodeTime(clock.Unix())), state.Put(writtenKey, encodeTime(now.Unix())))
	})
	if err == nil {
		s.bytes, s.clock = total, clock
	}
	return err
}

// put writes what a batch has, and returns how many bytes that adds.
func (b *batch) put(records *bbolt.Bucket) (added int64, err error) {
	put := func(k, v []byte) {
		added += size(k, v)
		if old := records.Get(k); old != nil {
			added -= size(k, old)
		}
		err = errors.Join(err, records.Put(k, v))
	}
	for k, n := range b.missed {
		old := records.Get([]byte(k))
		if old == nil {
			b.added = append(b.added, n.Event)
		}
		v, err := json.Marshal(merge(decode(old), n))
		if err != nil {
			return 0, err
		}
		put([]byte(k), v)
	}
	for p, c := range b.counts {
		k := keyOf(p.minute, kindCount, p.kind, p.name, p.result)
		if was, err := slack.Parse(records.Get(k)); err == nil { // otherwise its bytes have gone bad
			c = p.add(was, c)
		}
		put(k, c.Append(nil))
	}
	if g := b.gap; !g.To.IsZero() {
		put(gapKey(g), []byte(g.Reason))
	}
	return added, err
}

// decode reads the record of a missed deadline. Bytes on a disk go bad: what cannot be read is one
// without an id.
func decode(v []byte) (n notifications.Notification) {
	if json.Unmarshal(v, &n) != nil {
		return notifications.Notification{}
	}
	return n
}

// merge returns n with the deliveries of an earlier record of its event.
func merge(earlier, n notifications.Notification) notifications.Notification {
	by := slices.Clone(n.TakenBy)
	for _, d := range earlier.TakenBy {
		if !slices.ContainsFunc(by, func(other notifications.Delivery) bool { return other.Sink == d.Sink }) {
			by = append(by, d)
		}
	}
	slices.SortFunc(by, func(a, b notifications.Delivery) int { return cmp.Compare(a.Sink, b.Sink) })
	n.TakenBy = by
	return n
}

// prune removes what is older than since, and what exceeds maxSize: first what is later than
// latest, then the oldest. It takes several transactions, until ctx ends. Each has a bounded number
// of records, which a read has collected before: a cursor of bbolt does not return from a bucket
// whose pages its own transaction has emptied.
func (s *store) prune(ctx context.Context, since, latest time.Time, maxSize int64) error {
	for ctx.Err() == nil {
		var keys [][]byte
		var removed int64
		var begin time.Time
		err := s.view(func(tx *bbolt.Tx) error {
			keys, removed, begin = outside(tx.Bucket(recordsBucket).Cursor(), since, latest, s.bytes-maxSize)
			return nil
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		err = s.update(func(tx *bbolt.Tx) error {
			for _, k := range keys {
				if err := tx.Bucket(recordsBucket).Delete(k); err != nil {
					return err
				}
			}
			if begin.IsZero() {
				return nil
			}
			return tx.Bucket(stateBucket).Put(beginKey, append(encodeTime(begin.Unix()), reasonSize...))
		})
		if err != nil {
			return err
		}
		s.bytes -= removed
	}
	return nil
}

// outside returns the next records to remove, of which excess bytes are too many. If some of them
// are not too old, the history begins at begin then.
func outside(c *bbolt.Cursor, since, latest time.Time, excess int64) (keys [][]byte, removed int64, begin time.Time) {
	first, end := encodeTime(since.Unix()), encodeTime(latest.Unix())
	take := func(k, v []byte) {
		keys = append(keys, bytes.Clone(k))
		removed += size(k, v)
	}
	for k, v := c.Last(); k != nil && bytes.Compare(k, end) >= 0 && removed < excess && len(keys) < maxRemoved; k, v = c.Prev() {
		take(k, v)
	}
	for k, v := c.First(); k != nil && bytes.Compare(k, end) < 0 && len(keys) < maxRemoved; k, v = c.Next() {
		if bytes.Compare(k, first) >= 0 {
			if removed >= excess {
				break
			}
			begin = timeOf(k).Add(time.Second)
		}
		take(k, v)
	}
	return keys, removed, begin
}

// each calls do with the records of a kind since a time, the latest first, until it has enough. at
// is the time of a record, and rest what its key has beyond that and its kind.
func (s *store) each(of kind, since time.Time, do func(at time.Time, rest string, v []byte) (more bool)) error {
	first := encodeTime(since.Unix())
	return s.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(recordsBucket).Cursor()
		for k, v := c.Last(); k != nil && bytes.Compare(k, first) >= 0; k, v = c.Prev() {
			if kind(k[timeLength]) == of && !do(timeOf(k), string(k[headLength:]), v) {
				return nil
			}
		}
		return nil
	})
}

func (s *store) view(read func(*bbolt.Tx) error) error {
	if err := s.db.View(read); err != nil {
		return fmt.Errorf("history: read %s: %w", s.db.Path(), err)
	}
	return nil
}

func (s *store) update(write func(*bbolt.Tx) error) error {
	if err := s.db.Update(write); err != nil {
		return fmt.Errorf("history: write %s: %w", s.db.Path(), err)
	}
	return nil
}
