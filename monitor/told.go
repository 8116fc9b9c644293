// SPDX-License-Identifier: Apache-2.0

package monitor

import "sync"

// maxTold bounds the events remembered. The memory only spares repeats; what is
// forgotten may be told twice.
const maxTold = 1 << 16

// toldEvents remembers which events have been told, or are being told.
type toldEvents struct {
	mu    sync.Mutex
	ids   map[string]*telling
	order []string // oldest first, from next on in a ring
	next  int
}

// telling is how the telling of one event goes.
type telling struct {
	done  chan struct{} // closed when the rest is final, which MUST NOT be read before
	taken []string      // the sinks that have taken it
	err   error         // why the others have not
}

// told is the telling of all events that have been told.
var told = func() *telling {
	t := &telling{done: make(chan struct{})}
	close(t.done)
	return t
}()

// begin returns the telling of id, and whether it is new: then the caller has to tell, and to
// say how that ended.
func (t *toldEvents) begin(id string) (_ *telling, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if begun, ok := t.ids[id]; ok {
		return begun, false
	}
	if t.ids == nil {
		t.ids = map[string]*telling{}
	}
	begun := &telling{done: make(chan struct{})}
	t.ids[id] = begun
	if len(t.order) < maxTold {
		t.order = append(t.order, id)
		return begun, true
	}
	delete(t.ids, t.order[t.next])
	t.order[t.next] = id
	t.next = (t.next + 1) % maxTold
	return begun, true
}

// end says how the telling of id ended. One that failed is forgotten, so that the next is new.
func (t *toldEvents) end(id string, begun *telling, taken []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids[id] == begun { // or it is forgotten already
		t.ids[id] = told
		if err != nil {
			delete(t.ids, id)
		}
	}
	begun.taken, begun.err = taken, err
	close(begun.done)
}

// note remembers id as told.
func (t *toldEvents) note(id string) {
	if begun, first := t.begin(id); first {
		t.end(id, begun, nil, nil)
	}
}

func (t *toldEvents) has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.ids[id]
	return ok
}

// over reports whether id has been told for good.
func (t *toldEvents) over(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[id] == told
}
