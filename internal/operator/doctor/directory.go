// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"overdue/internal/broker/directory"
)

// lowSpace is how much room the disk of the embedded broker's directory should have. Writes that
// are put together take some files of 64 MiB before they give others back.
const lowSpace = 256 << 20

// directoryFindings examine the directory of the embedded broker, "" for none.
func directoryFindings(dir string) []Finding {
	if dir == "" {
		return nil
	}
	n := &notes{subject: "broker directory"}
	s := directory.Examine(dir)
	switch {
	case s.Err != nil:
		n.add(Error, "directory", s.Err.Error()+".", "")
		return n.all
	case !s.Made:
		n.add(OK, "directory", fmt.Sprintf("%s is not there yet; a start makes it.", dir), "")
	case !s.Written:
		n.add(OK, "directory", fmt.Sprintf("%s is empty.", dir), "")
	case s.Held:
		n.add(OK, "directory", fmt.Sprintf("%s is in use by a process, and this version can read it.", dir), "")
	default:
		n.add(OK, "directory", fmt.Sprintf("%s is in use by no process, and this version can read it.", dir), "")
	}
	free := fmt.Sprintf("Its disk has %d MiB of room.", s.Free>>20)
	if s.Free < lowSpace {
		n.add(Warning, "space", free+" On a full disk, the broker refuses what is sent and settled.", "make room there, or move the directory to a larger disk while no process has it")
	} else {
		n.add(OK, "space", free, "")
	}
	return n.all
}
