// SPDX-License-Identifier: Apache-2.0

package store

import "errors"

var (
	// ErrLocked says that another process, or another Store, has the directory.
	ErrLocked = errors.New("store: the directory is in use by another process")
	// ErrNewer says that a later version of Overdue has written the directory.
	ErrNewer = errors.New("store: the directory was written by a later version")
	// ErrForeign says that there are files in the directory that no Store has written.
	ErrForeign = errors.New("store: the directory has files of something else")
	// ErrNone says that no Store has written the directory, and it is to be read.
	ErrNone = errors.New("store: the directory is not one of a broker")
	// ErrCopying says that another Backup runs, or that the Store is closed.
	ErrCopying = errors.New("store: the directory is being copied already")
	// ErrDamaged says that something in the directory cannot be read.
	ErrDamaged = errors.New("store: the directory is damaged")
)
