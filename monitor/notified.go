// SPDX-License-Identifier: Apache-2.0

package monitor

import "sync"

// maxNotified bounds the events remembered. The memory only spares repeats; what is
// forgotten may be notified twice.
const maxNotified = 1 << 16

// notifiedEvents remembers which events have been notified, or are being notified.
type notifiedEvents struct {
	mu    sync.Mutex
	ids   map[string]*notification
	order []string // oldest first, from next on in a ring
	next  int
}

// notification is how the notification of one event goes.
type notification struct {
	done  chan struct{} // closed when the rest is final, which MUST NOT be read before
	taken []string      // the sinks that have taken it
	err   error         // why the others have not
}

// alreadyNotified is the notification of all events that have been notified.
var alreadyNotified = func() *notification {
	t := &notification{done: make(chan struct{})}
	close(t.done)
	return t
}()

// begin returns the notification of id, and whether it is new: then the caller has to tell, and to
// say how that ended.
func (t *notifiedEvents) begin(id string) (_ *notification, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if begun, ok := t.ids[id]; ok {
		return begun, false
	}
	if t.ids == nil {
		t.ids = map[string]*notification{}
	}
	begun := &notification{done: make(chan struct{})}
	t.ids[id] = begun
	if len(t.order) < maxNotified {
		t.order = append(t.order, id)
		return begun, true
	}
	delete(t.ids, t.order[t.next])
	t.order[t.next] = id
	t.next = (t.next + 1) % maxNotified
	return begun, true
}

// end says how the notification of id ended. One that failed is forgotten, so that the next is new.
func (t *notifiedEvents) end(id string, begun *notification, taken []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids[id] == begun { // or it is forgotten already
		t.ids[id] = alreadyNotified
		if err != nil {
			delete(t.ids, id)
		}
	}
	begun.taken, begun.err = taken, err
	close(begun.done)
}

// note remembers id as told.
func (t *notifiedEvents) note(id string) {
	if begun, first := t.begin(id); first {
		t.end(id, begun, nil, nil)
	}
}

func (t *notifiedEvents) has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.ids[id]
	return ok
}

// isFinal reports whether id has been notified for good.
func (t *notifiedEvents) isFinal(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[id] == alreadyNotified
}
