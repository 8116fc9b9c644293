// SPDX-License-Identifier: Apache-2.0

package boltcheck

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// ErrInUse says that another process has a file open.
var ErrInUse = errors.New("it is in use by another process")

// A DB is a database in which damage is an error of ErrDamaged and never the end of the process.
type DB struct{ *bbolt.DB }

// Open opens the database at path, checks it, and makes it and its directory where there is none.
// The error is of ErrInUse if another process has not let go of it within lockTime, and of
// ErrDamaged if it is not what bbolt has written. Its name is durable as well.
func Open(path string, lockTime time.Duration) (DB, error) {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return DB{}, fmt.Errorf("the directory cannot be created: %w", err)
	}
	var db *bbolt.DB
	err := Guard(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:      lockTime,
			FreelistType: bbolt.FreelistMapType,
			NoStatistics: true,
		})
		if err != nil {
			return err
		}
		return errors.Join(File(path), syncDirectory(directory))
	})
	if err != nil && db != nil {
		_ = db.Close() // it is of no use, whatever this says
	}
	switch {
	case err == nil:
		return DB{db}, nil
	case errors.Is(err, bbolterrors.ErrTimeout):
		return DB{}, ErrInUse
	case errors.Is(err, bbolterrors.ErrInvalid), errors.Is(err, bbolterrors.ErrChecksum),
		errors.Is(err, bbolterrors.ErrVersionMismatch), errors.Is(err, bbolterrors.ErrInvalidMapping):
		return DB{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return DB{}, err
}

// View is that of bbolt.
func (db DB) View(read func(*bbolt.Tx) error) error {
	return Guard(func() error { return db.DB.View(read) })
}

// Update is that of bbolt.
func (db DB) Update(write func(*bbolt.Tx) error) error {
	return Guard(func() error { return db.DB.Update(write) })
}

// syncDirectory makes the names in a directory durable, where directories can be synced.
func syncDirectory(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
