// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"overdue/internal/boltcheck"
	"overdue/scheduler"
)

const (
	fileName = "overdue.journal"
	// formatPrefix begins the name of every bucket; a namespace follows. It changes when an older
	// program could not read what a newer one has written.
	formatPrefix = "companions-1 "
)

// A file is that of a journal: a bucket for each namespace, in it the companions in the order in
// which they are due.
//
//	key:   when it is due (unix milliseconds, 8 bytes big endian), message-id
//	value: CRC-32C of key and body (4 bytes), body
type file struct {
	path    string
	bucket  []byte
	maxSize int64

	mu     sync.Mutex
	db     boltcheck.DB
	noRoom error  // why db is not open, which passes
	holds  Status // Companions, Bytes and Elsewhere
}

// entry is one companion in the file.
type entry struct {
	key []byte
	c   scheduler.Companion
}

// openFile opens the file of a journal. Each error is a sentence that names the file.
func openFile(cfg Config) (*file, error) {
	f := &file{
		path:    filepath.Join(cfg.Directory, fileName),
		maxSize: cfg.MaxSize,
		bucket:  []byte(formatPrefix + strings.ToLower(cfg.Namespace)),
	}
	if cfg.MustExist {
		if _, err := os.Stat(f.path); err != nil {
			return nil, f.explain(err)
		}
	}
	if err := f.open(); err != nil && !hasNoRoom(err) {
		return nil, err
	}
	return f, nil
}

// hasNoRoom reports whether err says that a disk takes no more, which passes. Everything else that
// keeps a file from being opened is for an operator to mend.
func hasNoRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// open opens the file and reads all of it once: damage is found before anything depends on the
// file. It is never called twice at a time.
func (f *file) open() error {
	before, statErr := os.Stat(f.path)
	db, err := boltcheck.Open(f.path, answerTimeout)
	var holds Status
	if err == nil {
		if err = db.View(func(tx *bbolt.Tx) error { return f.read(tx, &holds) }); err != nil {
			_ = db.Close() // it is of no use, whatever this says
		}
	}
	if hasNoRoom(err) && (statErr != nil || before.Size() == 0) {
		_ = os.Remove(f.path) // its first pages may be there in part, and would count as damage
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noRoom = f.explain(err); err == nil {
		f.db, f.holds = db, holds
	}
	return f.noRoom
}

// read counts and checks the entries.
func (f *file) read(tx *bbolt.Tx, holds *Status) error {
	return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if !strings.HasPrefix(string(name), formatPrefix) {
			return fmt.Errorf("it has a part %q that this version does not know; a newer version may have written it", name)
		}
		return b.ForEach(func(k, v []byte) error {
			if _, err := parseEntry(k, v); err != nil {
				return err
			}
			holds.Bytes += entrySize(k, v)
			if string(name) == string(f.bucket) {
				holds.Companions++
			} else {
				holds.Elsewhere++
			}
			return nil
		})
	})
}

// status is what the file holds. noRoom is why it is not open.
func (f *file) status() (holds Status, noRoom error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holds, f.noRoom
}

// update changes the bucket, and syncs. change says what the file holds more, or less.
func (f *file) update(change func(b *bbolt.Bucket, more *Status) error) error {
	if _, err := f.status(); err != nil {
		return err
	}
	var more Status
	err := f.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(f.bucket)
		if err != nil {
			return err
		}
		return change(b, &more)
	})
	if err != nil {
		return f.explain(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds.Companions += more.Companions
	f.holds.Bytes += more.Bytes
	return nil
}

// put puts the companions of requests on disk that there is room for, and syncs. It returns how many
// those are. A request of which one is not there has its error.
func (f *file) put(requests []*request) (kept int) {
	holds, _ := f.status()
	room := f.maxSize - holds.Bytes
	err := f.update(func(b *bbolt.Bucket, more *Status) error {
		for _, r := range requests {
			for i := range r.companions {
				k, v, err := encodeEntry(&r.companions[i])
				n := entrySize(k, v)
				switch {
				case err != nil:
					r.err = err
				case b.Get(k) != nil: // it is there already
				case more.Bytes+n > room:
					r.err = f.explain(fmt.Errorf("%w: at most %d bytes of companions are allowed (journal.maxSize)", errFull, f.maxSize))
				default:
					if err := b.Put(k, v); err != nil {
						return err
					}
					more.Companions++
					more.Bytes += n
				}
			}
		}
		kept = more.Companions
		return nil
	})
	if err == nil {
		return kept
	}
	for _, r := range requests {
		r.err = err
	}
	return 0
}

// first is what is due first, at most n companions.
func (f *file) first(n int) (entries []entry, err error) {
	if holds, _ := f.status(); holds.Companions == 0 {
		return nil, nil
	}
	err = f.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(f.bucket).Cursor()
		for k, v := c.First(); k != nil && len(entries) < n; k, v = c.Next() {
			e, err := parseEntry(k, v)
			if err != nil {
				return err
			}
			entries = append(entries, e)
		}
		return nil
	})
	return entries, f.explain(err)
}

// remove takes companions out that the monitor queue has accepted.
func (f *file) remove(entries []entry) error {
	return f.update(func(b *bbolt.Bucket, more *Status) error {
		for _, e := range entries {
			more.Companions--
			more.Bytes -= entrySize(e.key, b.Get(e.key))
			if err := b.Delete(e.key); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *file) close() error {
	if _, err := f.status(); err != nil {
		return nil // there is nothing to close
	}
	return f.explain(f.db.Close())
}

// explain makes a sentence of what went wrong with the file, if anything did.
func (f *file) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, boltcheck.ErrInUse):
		return fmt.Errorf("the journal %s is in use by another process; give each its own directory", f.path)
	case errors.Is(err, boltcheck.ErrDamaged):
		return fmt.Errorf("the journal %s cannot be read: %w; it is left as it is, move it away to begin with an empty one", f.path, err)
	}
	return fmt.Errorf("the journal %s: %w", f.path, err)
}

// encodeEntry is the companion as it is in the file. It fails with scheduler.ErrEncode for one that
// could not be read again.
func encodeEntry(c *scheduler.Companion) (key, value []byte, err error) {
	body, id, err := c.Marshal()
	if err != nil {
		return nil, nil, err
	}
	if _, err := scheduler.ParseCompanion(body); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", scheduler.ErrEncode, err)
	}
	key = append(binary.BigEndian.AppendUint64(nil, uint64(c.Due.UnixMilli())), id...)
	value = binary.BigEndian.AppendUint32(nil, checksum(key, body))
	return key, append(value, body...), nil
}

// parseEntry is the reverse of encodeEntry. It copies what it keeps: the file's memory is the
// transaction's.
func parseEntry(key, value []byte) (entry, error) {
	if len(key) < 8 || len(value) < 4 || binary.BigEndian.Uint32(value) != checksum(key, value[4:]) {
		return entry{}, fmt.Errorf("%w: the companion %q is not what was written", boltcheck.ErrDamaged, key)
	}
	c, err := scheduler.ParseCompanion(value[4:])
	if err != nil {
		return entry{}, fmt.Errorf("%w: %w", boltcheck.ErrDamaged, err)
	}
	c.Due = time.UnixMilli(int64(binary.BigEndian.Uint64(key))).UTC()
	return entry{slices.Clone(key), c}, nil
}

func checksum(key, body []byte) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
}

func entrySize(key, value []byte) int64 { return int64(len(key) + len(value)) }
