// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"overdue/internal/broker/store"
)

// Backup writes a copy of a directory into a file, as a tar, and returns its size. A process that
// has the directory goes on meanwhile, and the copy has everything that it had acknowledged before.
// The file is there once all of it is on its disk.
func Backup(ctx context.Context, dir, file string) (size int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // for its user alone
	if err != nil {
		return 0, fmt.Errorf("no file can be made beside %s: %w", file, err)
	}
	counted := &countingWriter{w: f}
	err = WriteBackup(ctx, dir, counted)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(f.Name()))
	}
	return counted.n, syncDirectory(filepath.Dir(file))
}

// WriteBackup is Backup for a copy that goes elsewhere. After an error, what was written is no
// copy.
func WriteBackup(ctx context.Context, dir string, w io.Writer) error {
	err := store.Backup(dir, w)
	switch {
	case errors.Is(err, store.ErrLocked):
		return askForBackup(ctx, dir, w)
	case err != nil:
		return Explain(dir, err)
	}
	return nil
}

// syncDirectory makes a rename outlast a loss of power.
func syncDirectory(dir string) error {
	if runtime.GOOS == "windows" { // which syncs no directories
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
