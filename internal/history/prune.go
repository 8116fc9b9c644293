// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"overdue/internal/boltcheck"
)

// maxRemoved bounds the entries that one transaction removes, and so the time that it takes.
const maxRemoved = 10_000

// bounds of the history. What is older than since is removed. If there is more than maxSize, what
// is later than latest goes first, then the oldest.
type bounds struct {
	since, latest time.Time
	maxSize       int64
}

// An entry is one that is to be removed.
type entry struct {
	bucket, key []byte
	size        int64
}

// prune removes what lies outside of the bounds, in several transactions, until ctx ends. Each has
// a bounded number of entries, which a read has collected before: a cursor of bbolt does not return
// from a bucket whose pages its own transaction has emptied.
func (f *file) prune(ctx context.Context, b bounds) error {
	for ctx.Err() == nil {
		var entries []entry
		var begin int64
		err := boltcheck.Guard(func() error {
			return f.db.View(func(tx *bbolt.Tx) error {
				entries, begin = outside(tx, b, f.bytes-b.maxSize)
				return nil
			})
		})
		if err == nil && len(entries) > 0 {
			err = boltcheck.Guard(func() error {
				return f.db.Update(func(tx *bbolt.Tx) error { return remove(tx, entries, begin) })
			})
		}
		if err != nil {
			return fmt.Errorf("history: remove the oldest from %s: %w", f.db.Path(), err)
		}
		if len(entries) == 0 {
			return nil
		}
		for _, e := range entries {
			f.bytes -= e.size
		}
	}
	return nil
}

// outside returns the next entries to remove, of which excess bytes are too many. If some of them
// are not too old, the history begins at begin then, in seconds since 1970.
func outside(tx *bbolt.Tx, b bounds, excess int64) (entries []entry, begin int64) {
	since, latest := keyOf(b.since.Unix(), ""), keyOf(b.latest.Unix(), "")
	take := func(bucket, k, v []byte) {
		entries = append(entries, entry{bucket, slices.Clone(k), size(k, v)})
		excess -= size(k, v)
	}
	type head struct {
		cursor       *bbolt.Cursor
		bucket, k, v []byte
	}
	var heads []head
	for _, bucket := range buckets {
		c := tx.Bucket(bucket).Cursor()
		for k, v := c.Last(); k != nil && bytes.Compare(k, latest) >= 0 && excess > 0 && len(entries) < maxRemoved; k, v = c.Prev() {
			take(bucket, k, v)
		}
		k, v := c.First()
		heads = append(heads, head{c, bucket, k, v})
	}
	for len(entries) < maxRemoved {
		heads = slices.DeleteFunc(heads, func(h head) bool { return h.k == nil || bytes.Compare(h.k, latest) >= 0 })
		if len(heads) == 0 {
			break
		}
		oldest := &heads[0]
		for i := range heads {
			if bytes.Compare(heads[i].k, oldest.k) < 0 {
				oldest = &heads[i]
			}
		}
		if bytes.Compare(oldest.k, since) >= 0 {
			if excess <= 0 {
				break
			}
			begin = int64(binary.BigEndian.Uint64(oldest.k)) + 1
		}
		take(oldest.bucket, oldest.k, oldest.v)
		oldest.k, oldest.v = oldest.cursor.Next()
	}
	return entries, begin
}

func remove(tx *bbolt.Tx, entries []entry, begin int64) error {
	for _, e := range entries {
		if err := tx.Bucket(e.bucket).Delete(e.key); err != nil {
			return err
		}
	}
	if begin == 0 {
		return nil
	}
	return tx.Bucket(stateBucket).Put(beginKey, keyOf(begin, reasonSize))
}
