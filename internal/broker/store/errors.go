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
	// ErrDamaged says that something in the directory cannot be read.
	ErrDamaged = errors.New("store: the directory is damaged")
	// ErrNoRoom says that the disk is full. What waits is written as soon as there is room.
	ErrNoRoom = errors.New("store: no room on the disk")
	// ErrFailed says that the disk has refused to write, so nothing can be written until the
	// directory is opened again.
	ErrFailed = errors.New("store: writing has failed")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("store: closed")
)
