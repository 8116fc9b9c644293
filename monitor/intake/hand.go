// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"bytes"
	"sync"
)

// A hand is the companions that a worker has. A send that is tried again, since its answer was lost,
// leaves two copies of its companion on a monitor queue without duplicate detection. As long as one
// is in hand, the other one is of no use: each would have its messages checked, and what one of them
// has notified of is not known to a worker that gets the rest of the other one.
type hand struct {
	mu   sync.Mutex
	byID map[string]*Lease
}

// hasCopyOf reports whether another companion with the content of l is in hand. If none is, it takes
// l. The same companion, which comes back after its lock was lost, is no copy.
func (h *hand) hasCopyOf(l *Lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.byID[l.ID]; o != nil {
		return l.Number != 0 && (o.Number != l.Number || o.Queue != l.Queue) && bytes.Equal(o.Body, l.Body)
	}
	if h.byID == nil {
		h.byID = map[string]*Lease{}
	}
	h.byID[l.ID] = l
	return false
}

// remove forgets l, if it has it.
func (h *hand) remove(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID[l.ID] == l {
		delete(h.byID, l.ID)
	}
}
