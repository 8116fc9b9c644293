// SPDX-License-Identifier: Apache-2.0

package boltcheck

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

// manyPages makes a file with a bucket of many pages, and deletes keys of it in one transaction.
func manyPages(t *testing.T, keys int, remove func(b *bbolt.Bucket, key func(int) []byte) error) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "bolt.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 1024, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		for i := range keys {
			err = errors.Join(err, b.Put(key(i), make([]byte, 100)))
		}
		return err
	})
	if err == nil {
		err = db.Update(func(tx *bbolt.Tx) error { return remove(tx.Bucket([]byte("b")), key) })
	}
	if err == nil {
		err = db.View(func(tx *bbolt.Tx) error { // it returns, whatever was deleted
			c := tx.Bucket([]byte("b")).Cursor()
			for k, _ := c.Last(); k != nil; k, _ = c.Prev() {
			}
			return nil
		})
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// A transaction that deletes by keys leaves no page empty, whatever it deletes.
func TestNoPageStaysEmptyWhenKeysAreDeleted(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	rng := rand.New(rand.NewPCG(testseed.Of(t), 0))
	for i := range 60 {
		const keys = 2_000
		path := manyPages(t, keys, func(b *bbolt.Bucket, key func(int) []byte) error {
			order := rng.Perm(keys)
			first, last := 0, keys // all of them at first, then ranges
			if i >= 4 {
				first = rng.IntN(keys)
				last = first + rng.IntN(keys-first+1)
			}
			for _, k := range order {
				if i%2 == 0 {
					k = keys - 1 - k
				}
				if k < first || k >= last {
					continue
				}
				if err := b.Delete(key(k)); err != nil {
					return err
				}
			}
			return nil
		})
		if err := File(path); err != nil {
			t.Errorf("file %d: %v", i, err)
		}
	}
}

// bbolt would look for the last key of such a file for ever.
func TestATreeOfEmptyPagesIsDamage(t *testing.T) {
	path := manyPages(t, 2_000, func(*bbolt.Bucket, func(int) []byte) error { return nil })
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	emptied := 0
	for page := b[2*1024:]; len(page) >= 1024; page = page[1024:] {
		if order.Uint16(page[8:]) == leafFlag && order.Uint16(page[10:]) > 1 {
			clear(page[10:12])
			emptied++
		}
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := File(path); emptied < 100 || !errors.Is(err, ErrDamaged) {
		t.Errorf("with %d empty pages File = %v, want ErrDamaged", emptied, err)
	}
}
