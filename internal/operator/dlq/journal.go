// SPDX-License-Identifier: Apache-2.0

package dlq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// A step is how far the copy of a dead letter has come.
type step byte

const (
	sending step = 1 // it is about to be sent, or was
	sent    step = 2 // the broker has it, and the dead letter may be taken off
)

// A Journal has on disk which dead letters are being copied. A run that is stopped between a copy
// and the completion of its dead letter does not copy it again. One process at a time has it open.
type Journal struct {
	db   *bbolt.DB
	path string
}

// entry is what a journal has of a dead letter: how far, and with which batch.
type entry struct {
	step  step
	batch uint64
}

var letters = []byte("letters") // number → step, batch

// ErrTaken says that another process has the journal open.
var ErrTaken = errors.New("another process's")

// OpenJournal opens or makes the journal at path.
func OpenJournal(path string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the journal: %w", err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("the journal %s is %w, which resubmits the same dead letters; let that one end first", path, ErrTaken)
	}
	if err != nil {
		return nil, fmt.Errorf("open the journal %s: %w", path, err)
	}
	j := &Journal{db, path}
	if err := db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(letters)
		return err
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the journal %s: %w", path, err), db.Close())
	}
	return j, nil
}

// Close closes the journal, and removes it if it is empty.
func (j *Journal) Close() error {
	left, err := j.entries()
	err = errors.Join(err, j.db.Close())
	if err == nil && len(left) == 0 {
		err = os.Remove(j.path)
	}
	return err
}

// entries are all of them, by number.
func (j *Journal) entries() (map[int64]entry, error) {
	all := map[int64]entry{}
	err := j.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(letters).ForEach(func(k, v []byte) error {
			if len(k) != 8 || len(v) != 9 || (step(v[0]) != sending && step(v[0]) != sent) {
				return errors.New("it holds what this version has not written; move the file away if you know what has been sent")
			}
			all[int64(binary.BigEndian.Uint64(k))] = entry{step(v[0]), binary.BigEndian.Uint64(v[1:])}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the journal %s: %w", j.path, err)
	}
	return all, nil
}

// begin notes that the numbers are about to be sent as one batch, and returns that batch. It is on
// disk then.
func (j *Journal) begin(numbers []int64) (batch uint64, err error) {
	err = j.update(func(b *bbolt.Bucket) (err error) {
		if batch, err = b.NextSequence(); err != nil {
			return err
		}
		return put(b, numbers, entry{sending, batch})
	})
	return batch, err
}

// sent notes that the broker has the batch.
func (j *Journal) sent(numbers []int64, batch uint64) error {
	return j.update(func(b *bbolt.Bucket) error { return put(b, numbers, entry{sent, batch}) })
}

// forget drops dead letters that were taken off, or whose copies were never sent.
func (j *Journal) forget(numbers []int64) error {
	if len(numbers) == 0 {
		return nil
	}
	return j.update(func(b *bbolt.Bucket) error {
		for _, n := range numbers {
			if err := b.Delete(key(n)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (j *Journal) update(f func(*bbolt.Bucket) error) error {
	if err := j.db.Update(func(tx *bbolt.Tx) error { return f(tx.Bucket(letters)) }); err != nil {
		return fmt.Errorf("write the journal %s: %w", j.path, err)
	}
	return nil
}

func put(b *bbolt.Bucket, numbers []int64, e entry) error {
	value := binary.BigEndian.AppendUint64([]byte{byte(e.step)}, e.batch)
	for _, n := range numbers {
		if err := b.Put(key(n), value); err != nil {
			return err
		}
	}
	return nil
}

func key(number int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(number)) }
