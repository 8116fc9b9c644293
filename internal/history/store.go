// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
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
	"overdue/internal/slack"
)

const (
	fileName   = "history.db"
	asideName  = "history.damaged.db" // one only, so that damage cannot fill the disk
	lockTime   = 200 * time.Millisecond
	timeLength = 8
	headLength = timeLength + 1 // of a key
	// overhead is what a record takes besides its key and value, about, in bytes.
	overhead = 32
	// maxRemoved bounds the records that one transaction removes, and so the time that it takes.
	maxRemoved = 10_000
	// future is how far ahead of now an entry may lie. One beyond that was written while the clock was
	// wrong, and is the first to go when the file is full.
	future = 24 * time.Hour
)

var (
	recordsBucket = []byte("records v2")
	stateBucket   = []byte("state v2")
	totalsBucket  = []byte("totals")
	unknownBucket = []byte("unknown")
	clockKey      = []byte("clock")
	writtenKey    = []byte("written") // the machine's clock at the last write
	beginKey      = []byte("begin")   // the file has nothing before: time, reason
	totalsKey     = []byte("totals")  // since when the totals count
	seenKey       = []byte("seen")    // see [History.Saw]
)

// A kind of records. The key of a record has its time, its kind, and what tells it from others.
type kind byte

const (
	kindMissed kind = 'm' // a missed deadline and the sinks that took it, by the deadline
	kindBlind  kind = 'b' // likewise a blind time, by its end
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

// timeOf reads what begins with a time; zero where nothing does.
func timeOf(k []byte) time.Time {
	if len(k) < timeLength {
		return time.Time{}
	}
	return time.Unix(int64(binary.BigEndian.Uint64(k)), 0).UTC()
}

func size(k, v []byte) int64 { return int64(len(k)+len(v)) + overhead }

// A store is the history on disk: records in one bucket, the oldest first.
type store struct {
	db    boltcheck.DB
	bytes int64     // of all records; only writes change it
	clock time.Time // as it was last written; zero = never

	// As they were when it was opened:
	totals  totals
	unknown []Unknown // the oldest first
	seen    time.Time // see [History.LastSeen]
}

// openStore opens the file of a directory. now is the machine's clock.
func openStore(directory string, now time.Time) (s *store, aside string, err error) {
	path := filepath.Join(directory, fileName)
	s, err = tryOpen(path, now, reasonBegin)
	if errors.Is(err, boltcheck.ErrDamaged) {
		aside = filepath.Join(directory, asideName)
		if err = os.Rename(path, aside); err == nil {
			s, err = tryOpen(path, now, reasonDamaged)
		}
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
	s := &store{db: db}
	if err := db.Update(func(tx *bbolt.Tx) error { return s.prepare(tx, now, reason) }); err != nil {
		_ = db.Close() // it is of no use, whatever this says
		return nil, err
	}
	return s, nil
}

// prepare makes what the file lacks, and adds up what it has. It notes from when on a new file has
// everything, or since when nobody has written an old one.
func (s *store) prepare(tx *bbolt.Tx, now time.Time, reason string) error {
	state, err := tx.CreateBucketIfNotExists(stateBucket)
	if err != nil {
		return err
	}
	records, err := tx.CreateBucketIfNotExists(recordsBucket)
	if err != nil {
		return err
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
	if err := s.readTotals(tx, now); err != nil {
		return err
	}
	if s.unknown, err = readUnknown(tx); err != nil {
		return err
	}
	s.clock, s.seen = timeOf(state.Get(clockKey)), timeOf(state.Get(seenKey))
	written := timeOf(state.Get(writtenKey))
	switch {
	case written.IsZero() && state.Get(beginKey) == nil:
		return state.Put(beginKey, append(encodeTime(now.Unix()), reason...))
	case written.IsZero() || !written.Before(now):
		return nil // nothing was written since it was made, or the clock was set back
	}
	return s.put(records, gapKey(Gap{From: written, To: now}), []byte(reasonStopped))
}

func (s *store) close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("history: close the file: %w", err)
	}
	return nil
}

// A batch is what is written at once.
type batch struct {
	entries []*entry
	missed  []Notification           // of entries, as they were
	sampled map[series]slack.Buckets // what was counted by then
	minute  time.Time
	counts  map[series]slack.Buckets // in that minute
	totals  map[series]uint64        // those that it changes, as they are then
	unknown []Unknown
	judged  uint64        // how many unknown verdicts there were by then
	seen    time.Time     // see [History.Saw]
	gap     Gap           // what was dropped; the zero value is none
	added   []alert.Event // of missed, by write: those that the file did not have
}

func (b *batch) empty() bool {
	return len(b.missed)+len(b.counts)+len(b.unknown) == 0 && b.gap.To.IsZero()
}

// write adds a batch, all or nothing. Its size is bounded by what may wait in memory.
func (s *store) write(b *batch, clock, now time.Time) error {
	before := s.bytes
	err := s.db.Update(func(tx *bbolt.Tx) error {
		state := tx.Bucket(stateBucket)
		return errors.Join(
			s.putAll(tx.Bucket(recordsBucket), b),
			putTotals(tx.Bucket(totalsBucket), b),
			putUnknown(tx.Bucket(unknownBucket), b.unknown),
			state.Put(clockKey, encodeTime(clock.Unix())),
			state.Put(writtenKey, encodeTime(now.Unix())),
			state.Put(seenKey, encodeTime(b.seen.Unix())),
		)
	})
	if err != nil {
		s.bytes = before
		return fmt.Errorf("history: write %s: %w", s.db.Path(), err)
	}
	s.clock = clock
	return nil
}

func (s *store) put(records *bbolt.Bucket, k, v []byte) error {
	s.bytes += size(k, v)
	if old := records.Get(k); old != nil {
		s.bytes -= size(k, old)
	}
	return records.Put(k, v)
}

// putAll writes what a batch has.
func (s *store) putAll(records *bbolt.Bucket, b *batch) (err error) {
	for _, n := range b.missed {
		at, of := placeOf(&n.Event)
		k := keyOf(at.Unix(), of, n.Event.ID)
		old := records.Get(k)
		if old == nil && of == kindMissed {
			b.added = append(b.added, n.Event)
		}
		n.addDeliveries(decode(old).TakenBy)
		v, encodeErr := json.Marshal(n)
		err = errors.Join(err, encodeErr, s.put(records, k, v))
	}
	for of, c := range b.counts {
		k := keyOf(b.minute.Unix(), kindCount, of.kind, of.name, of.result)
		if was, parseErr := slack.Parse(records.Get(k)); parseErr == nil { // otherwise its bytes have gone bad
			c = of.add(was, c)
		}
		err = errors.Join(err, s.put(records, k, c.Append(nil)))
	}
	if !b.gap.To.IsZero() {
		err = errors.Join(err, s.put(records, gapKey(b.gap), []byte(reasonDropped)))
	}
	return err
}

// decode reads the record of a missed deadline. Bytes on a disk go bad: what cannot be read is one
// without an id.
func decode(v []byte) (n Notification) {
	if json.Unmarshal(v, &n) != nil {
		return Notification{}
	}
	return n
}

// addDeliveries adds those of sinks that are not known to have taken the event.
func (n *Notification) addDeliveries(others []Delivery) {
	for _, d := range others {
		if !slices.ContainsFunc(n.TakenBy, func(known Delivery) bool { return known.Sink == d.Sink }) {
			n.TakenBy = append(n.TakenBy, d)
		}
	}
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
		err := s.db.View(func(tx *bbolt.Tx) error {
			keys, removed, begin = outside(tx.Bucket(recordsBucket).Cursor(), since, latest, s.bytes-maxSize)
			return nil
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		err = s.db.Update(func(tx *bbolt.Tx) (err error) {
			for _, k := range keys {
				err = errors.Join(err, tx.Bucket(recordsBucket).Delete(k))
			}
			if !begin.IsZero() {
				err = errors.Join(err, tx.Bucket(stateBucket).Put(beginKey, append(encodeTime(begin.Unix()), reasonSize...)))
			}
			return err
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
	return s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(recordsBucket).Cursor()
		for k, v := c.Last(); k != nil && bytes.Compare(k, first) >= 0; k, v = c.Prev() {
			if kind(k[timeLength]) == of && !do(timeOf(k), string(k[headLength:]), v) {
				return nil
			}
		}
		return nil
	})
}
