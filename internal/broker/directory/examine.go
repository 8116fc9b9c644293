// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"overdue/internal/broker/store"
)

// A State is what can be seen of a directory from outside.
type State struct {
	Err     error  // why a broker could not start on it, a sentence; nil: it could, or one has
	Made    bool   // it is there; otherwise a start makes it
	Written bool   // by a broker
	Held    bool   // by a process
	Free    uint64 // bytes on its disk
}

// Examine looks at a directory and changes nothing.
func Examine(dir string) State {
	if err := checkPlace(dir); err != nil {
		return State{Err: Explain(dir, err)}
	}
	var s State
	place := dir
	_, err := os.Stat(dir)
	if s.Made = !errors.Is(err, fs.ErrNotExist); s.Made {
		err = store.Probe(dir)
		s.Held = errors.Is(err, store.ErrLocked)
		s.Written = err == nil || s.Held
	} else {
		place = filepath.Dir(dir)
	}
	switch {
	case s.Written:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, store.ErrNone):
		err = checkWritable(place)
		if err != nil {
			s.Err = Explain(dir, err)
		}
	default:
		s.Err = Explain(dir, err)
	}
	if s.Err == nil {
		if s.Free, err = store.FreeBytes(place); err != nil {
			s.Err = Explain(dir, err)
		}
	}
	return s
}
