// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"overdue/alert"
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
	errDamaged    = errors.New("damaged")
)

// A file is the history on disk. The keys of both buckets begin with a time, so the oldest entries
// come first.
type file struct {
	db    *bbolt.DB
	bytes int64 // of all entries; only writes change it
}

func openFile(directory string) (f *file, aside string, err error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, "", fmt.Errorf("history: %w", err)
	}
	path := filepath.Join(directory, fileName)
	f, err = tryOpen(path)
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return nil, "", fmt.Errorf("history: %s is in use by another process; give each a history.directory of its own", path)
	case errors.Is(err, bbolterrors.ErrInvalid), errors.Is(err, bbolterrors.ErrChecksum), errors.Is(err, bbolterrors.ErrVersionMismatch),
		errors.Is(err, bbolterrors.ErrInvalidMapping), errors.Is(err, errDamaged):
		aside = filepath.Join(directory, asideName)
		if err := os.Rename(path, aside); err != nil {
			return nil, "", fmt.Errorf("history: move the damaged file aside: %w", err)
		}
		f, err = tryOpen(path)
	}
	if err != nil {
		return nil, aside, fmt.Errorf("history: open %s: %w", path, err)
	}
	return f, aside, nil
}

func tryOpen(path string) (*file, error) {
	f := &file{}
	err := guard(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTime, FreelistType: bbolt.FreelistMapType, NoStatistics: true})
		if err != nil {
			return err
		}
		return f.db.Update(f.prepare)
	})
	if err != nil && f.db != nil {
		_ = f.db.Close() // it is of no use, whatever this says
	}
	return f, err
}

// prepare reads the whole file once, so that damage is found before anything depends on it.
func (f *file) prepare(tx *bbolt.Tx) error {
	info, err := os.Stat(tx.DB().Path())
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("%w: its end is missing", errDamaged)
	}
	for err := range tx.Check() {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	for _, name := range [][]byte{missedBucket, minutesBucket} {
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
	return nil
}

// guard calls do and makes an error of what a damaged file can do to it: the library panics where
// pages are not what they should be, and where they are missing the memory that maps them faults.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	return do()
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

// write adds events and counts, and removes what is older than since or too much, all or nothing.
func (f *file) write(events []alert.Event, counts map[point]uint64, since time.Time, maxSize int64) error {
	total := f.bytes
	err := guard(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			missed, minutes := tx.Bucket(missedBucket), tx.Bucket(minutesBucket)
			for i := range events {
				v, err := json.Marshal(&events[i])
				if err != nil {
					return err
				}
				// The id of an event is the same each time it is notified, so it is kept once.
				n, err := put(missed, keyOf(events[i].Data.Deadline.Unix(), events[i].ID), v)
				if err != nil {
					return err
				}
				total += n
			}
			for p, n := range counts {
				k := keyOf(p.minute, strings.Join([]string{p.kind, p.name, p.result}, "\x00"))
				if old := minutes.Get(k); len(old) == timeLength {
					n += binary.BigEndian.Uint64(old)
				}
				added, err := put(minutes, k, binary.BigEndian.AppendUint64(nil, n))
				if err != nil {
					return err
				}
				total += added
			}
			return prune(missed, minutes, since, &total, maxSize)
		})
	})
	if err != nil {
		return fmt.Errorf("history: write %s: %w", f.db.Path(), err)
	}
	f.bytes = total
	return nil
}

func put(b *bbolt.Bucket, k, v []byte) (added int64, err error) {
	added = size(k, v)
	if old := b.Get(k); old != nil {
		added -= size(k, old)
	}
	return added, b.Put(k, v)
}

// prune removes the oldest entries of both buckets while they are too old or too many.
func prune(missed, minutes *bbolt.Bucket, since time.Time, total *int64, maxSize int64) error {
	first := keyOf(since.Unix(), "")
	for {
		b := missed
		k, v := missed.Cursor().First()
		if mk, mv := minutes.Cursor().First(); k == nil || mk != nil && bytes.Compare(mk, k) < 0 {
			b, k, v = minutes, mk, mv
		}
		if k == nil || bytes.Compare(k, first) >= 0 && *total <= maxSize {
			return nil
		}
		*total -= size(k, v)
		if err := b.Delete(k); err != nil {
			return err
		}
	}
}
