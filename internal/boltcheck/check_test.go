// SPDX-License-Identifier: Apache-2.0

package boltcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

// database makes a file with buckets in buckets, long values and free pages.
func database(t *testing.T, rng *rand.Rand, o *bbolt.Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bolt.db")
	o.NoSync = true
	db, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 1 + rng.IntN(6) {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(fmt.Sprint("bucket-", rng.IntN(3))))
			for range rng.IntN(3) {
				if err == nil {
					b, err = b.CreateBucketIfNotExists([]byte(fmt.Sprint("inner-", rng.IntN(3))))
				}
			}
			for range rng.IntN(300) {
				if err == nil {
					err = b.Put([]byte(fmt.Sprint("key-", rng.IntN(1000))), make([]byte, rng.IntN(20)*rng.IntN(600)))
				}
				if err == nil {
					err = b.Delete([]byte(fmt.Sprint("key-", rng.IntN(1000))))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatBboltWritesIsNotDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 0))
	for i := range 30 {
		o := &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: i%5 == 0, PageSize: 1 << (10 + i%4)}
		if i%5 == 1 {
			o.FreelistType = bbolt.FreelistArrayType
		}
		if err := File(database(t, rng, o)); err != nil {
			t.Errorf("file %d: %v", i, err)
		}
	}
}

func TestAnEmptyFileAndNoneAreErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := File(path); !errors.Is(err, ErrDamaged) {
		t.Errorf("an empty file: %v, want ErrDamaged", err)
	}
	if err := File(path + "-missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v, want ErrNotExist", err)
	}
}

// Damage that is not found is harmless: bbolt reads all of the file, and writes to it.
func TestDamageIsFoundOrHarmless(t *testing.T) {
	racetest.Skip(t, "one goroutine has nothing to race with")
	rng := rand.New(rand.NewPCG(testseed.Of(t), 0))
	found := map[string]int{}
	for range 100 {
		path := database(t, rng, &bbolt.Options{})
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		size := os.Getpagesize()
		page := func() []byte { return b[rng.IntN(len(b)/size)*size:][:size] }
		for range 1 + rng.IntN(3) {
			switch rng.IntN(5) {
			case 0:
				clear(page())
			case 1:
				copy(page(), page())
			case 2: // the head of a page, or of an element
				page()[rng.IntN(64)] = byte(rng.Uint32())
			case 3:
				page()[rng.IntN(size)] ^= 1 << rng.IntN(8)
			case 4: // says that it is that page
				p := page()
				id := append([]byte{}, p[:8]...)
				copy(p, page())
				copy(p, id)
			}
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := File(path); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("File = %v, want ErrDamaged", err)
			}
			found[strings.Fields(err.Error())[1]]++
			continue
		}
		found["nothing"]++
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: true})
		if err != nil {
			t.Fatalf("bbolt opens no file that is not damaged: %v", err)
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("another"))
			if err != nil {
				return err
			}
			for i := range 200 {
				if err := b.Put([]byte(fmt.Sprint(i)), make([]byte, 300)); err != nil {
					return err
				}
			}
			return walk(tx.Cursor().Bucket())
		})
		if err != nil {
			t.Errorf("bbolt writes to no file that is not damaged: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("found: %v", found)
	if found["nothing"] > 80 || found["nothing"] == 0 {
		t.Errorf("damage was found in all but %d of 100 files, want most but not all", found["nothing"])
	}
}

func walk(b *bbolt.Bucket) error {
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return walk(b.Bucket(k))
		}
		return nil
	})
}

func FuzzFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "bolt.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 1024})
	if err != nil {
		f.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		if err != nil {
			return err
		}
		return b.Put([]byte("k"), []byte("v"))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:min(len(b), 16<<10)])
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "fuzzed.db")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := File(path); err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("File = %v, want nil or ErrDamaged", err)
		}
	})
}
