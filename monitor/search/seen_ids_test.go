// SPDX-License-Identifier: Apache-2.0

package search

import (
	"strconv"
	"sync"
	"testing"
)

// A nudge reads the dead letters in a goroutine of its own, while the work queue is read.
func TestSeenIDsAreSafeForConcurrentUse(t *testing.T) {
	var m SeenIDs
	const ids = 2000
	var views sync.WaitGroup
	for view := range int64(2) {
		views.Go(func() {
			for i := range int64(ids) {
				m.add(strconv.FormatInt(i, 10), Identity{Number: i + 1, Enqueued: view}, limit{})
				m.Only(strconv.FormatInt(ids-i, 10))
			}
		})
	}
	views.Wait()
	for i := range int64(ids) {
		if at, want := m.Last(strconv.FormatInt(i, 10)), (Identity{i + 1, 1}); at != want {
			t.Fatalf("message %d was seen last as %v, want %v", i, at, want)
		}
	}
	m.Clear()
	if at := m.Last("1"); at != (Identity{}) {
		t.Errorf("after Clear it was seen as %v", at)
	}
}
