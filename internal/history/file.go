// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

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
	// overhead is what an entry takes besides its key and value, about.
	overhead = 32
)

var (
	missedBucket  = []byte("missed v1")
	minutesBucket = []byte("minutes v1")
	slackBucket   = []byte("slack v1")
	takenBucket   = []byte("taken v1")
	gapsBucket    = []byte("gaps v1") // by their ends
	buckets       = [][]byte{missedBucket, minutesBucket, slackBucket, takenBucket, gapsBucket}

	stateBucket = []byte("state v1")
	clockKey    = []byte("clock")
	writtenKey  = []byte("written") // the machine's clock at the last write
	beginKey    = []byte("begin")   // the file has nothing before: time, reason
	errDamaged  = errors.New("damaged")
)

// A file is the history on disk. The keys of all buckets begin with a time, so the oldest entries
// come first.
type file struct {
	db    *bbolt.DB
	bytes int64     // of all entries; only writes change it
	clock time.Time // as it was last written; zero = never

	opened time.Time // by the machine's clock
}

// openFile opens the file of a directory. now is the machine's clock.
func openFile(directory string, now time.Time) (f *file, aside string, err error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, "", fmt.Errorf("history: %w", err)
	}
	path := filepath.Join(directory, fileName)
	f, err = tryOpen(path, now, reasonBegin)
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, "", fmt.Errorf("history: %s is in use by another process; give each a history.directory of its own", path)
	case errors.Is(err, bbolterrors.ErrInvalid), errors.Is(err, bbolterrors.ErrChecksum), errors.Is(err, bbolterrors.ErrVersionMismatch),
		errors.Is(err, bbolterrors.ErrInvalidMapping), errors.Is(err, errDamaged), errors.Is(err, boltcheck.ErrDamaged):
		aside = filepath.Join(directory, asideName)
		if err := os.Rename(path, aside); err != nil {
			return nil, "", fmt.Errorf("history: move the damaged file aside: %w", err)
		}
		f, err = tryOpen(path, now, reasonDamaged)
	}
	if err != nil {
		return nil, aside, fmt.Errorf("history: open %s: %w", path, err)
	}
	return f, aside, nil
}

// tryOpen opens the file at path. If it makes one, reason says why it begins now.
func tryOpen(path string, now time.Time, reason string) (*file, error) {
	f := &file{opened: now}
	err := boltcheck.Guard(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTime, FreelistType: bbolt.FreelistMapType, NoStatistics: true})
		if err != nil {
			return err
		}
		if err := boltcheck.File(path); err != nil {
			return err
		}
		return f.db.Update(func(tx *bbolt.Tx) error { return f.prepare(tx, now, reason) })
	})
	if err != nil && f.db != nil {
		_ = f.db.Close() // it is of no use, whatever this says
	}
	return f, err
}

// prepare makes what the file lacks, and adds up what it has.
func (f *file) prepare(tx *bbolt.Tx, now time.Time, reason string) error {
	state, err := tx.CreateBucketIfNotExists(stateBucket)
	if err != nil {
		return err
	}
	if v := state.Get(clockKey); len(v) == timeLength {
		f.clock = time.Unix(int64(binary.BigEndian.Uint64(v)), 0)
	}
	for _, name := range buckets {
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		err = b.ForEach(func(k, v []byte) error {
			if len(k) < timeLength {
				return fmt.Errorf("%w: a key has %d bytes", errDamaged, len(k))
			}
			f.bytes += size(k, v)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return f.resume(tx, now, reason)
}

func (f *file) close() error {
	if err := f.db.Close(); err != nil {
		return fmt.Errorf("history: close the file: %w", err)
	}
	return nil
}

func size(k, v []byte) int64 { return int64(len(k)+len(v)) + overhead }

func keyOf(seconds int64, rest string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(max(0, seconds))), rest...)
}

// A batch is what is written at once.
type batch struct {
	events []alert.Event
	counts map[point]uint64
	slack  map[slackPoint]slack.Counts
	taken  []delivery
	gap    notifications.Gap // what was dropped; the zero value is none
}

func (b *batch) empty() bool {
	return len(b.events)+len(b.counts)+len(b.slack)+len(b.taken) == 0 && b.gap.To.IsZero()
}

// write adds a batch, all or nothing. Its size is bounded by what may wait in memory.
func (f *file) write(b batch, clock, now time.Time) error {
	total := f.bytes
	err := boltcheck.Guard(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			added, err := b.put(tx)
			if err != nil {
				return err
			}
			total += added
			state := tx.Bucket(stateBucket)
			return errors.Join(state.Put(clockKey, keyOf(clock.Unix(), "")), state.Put(writtenKey, keyOf(now.Unix(), "")))
		})
	})
	if err != nil {
		return fmt.Errorf("history: write %s: %w", f.db.Path(), err)
	}
	f.bytes, f.clock = total, clock
	return nil
}

// put writes what a batch has, and returns how many bytes that adds.
func (b *batch) put(tx *bbolt.Tx) (added int64, err error) {
	put := func(bucket *bbolt.Bucket, k, v []byte) {
		n := size(k, v)
		if old := bucket.Get(k); old != nil {
			n -= size(k, old)
		}
		added += n
		err = errors.Join(err, bucket.Put(k, v))
	}
	missed, minutes, slacks := tx.Bucket(missedBucket), tx.Bucket(minutesBucket), tx.Bucket(slackBucket)
	for i := range b.events {
		v, err := json.Marshal(&b.events[i])
		if err != nil {
			return 0, err
		}
		// The id of an event is the same each time it is notified, so it is kept once.
		put(missed, keyOf(b.events[i].Data.Deadline.Unix(), b.events[i].ID), v)
	}
	for p, n := range b.counts {
		k := keyOf(p.minute, strings.Join([]string{p.kind, p.name, p.result}, "\x00"))
		if old := minutes.Get(k); len(old) == timeLength {
			if was := binary.BigEndian.Uint64(old); p.kind == kindOutstanding {
				n = max(n, was)
			} else {
				n += was
			}
		}
		put(minutes, k, binary.BigEndian.AppendUint64(nil, n))
	}
	taken := tx.Bucket(takenBucket)
	for i := range b.taken {
		d := &b.taken[i]
		put(taken, keyOf(d.deadline, d.event+"\x00"+d.sink), binary.BigEndian.AppendUint64(nil, uint64(d.at.UnixNano())))
	}
	for p, c := range b.slack {
		k := keyOf(p.minute, p.entity)
		if old := slacks.Get(k); old != nil {
			if was, err := slack.Parse(old); err == nil { // otherwise its bytes have gone bad
				was.Merge(c)
				c = was
			}
		}
		put(slacks, k, c.Append(nil))
	}
	if g := b.gap; !g.To.IsZero() {
		put(tx.Bucket(gapsBucket), gapKey(g), []byte(g.Reason))
	}
	return added, err
}
