// SPDX-License-Identifier: Apache-2.0

//go:build unix

package directory

import (
	"os"
	"syscall"
)

// checkWritable reports whether this user may make files in a directory.
func checkWritable(dir string) error {
	const write, search = 2, 1
	if err := syscall.Access(dir, write|search); err != nil {
		return &os.PathError{Op: "access", Path: dir, Err: err}
	}
	return nil
}
