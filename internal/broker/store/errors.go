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
)
