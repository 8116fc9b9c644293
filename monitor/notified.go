// SPDX-License-Identifier: Apache-2.0

package monitor

import "sync"

// maxNotified bounds the remembered events. The record only avoids repetitions: an event that
// was dropped from it may be notified twice.
const maxNotified = 1 << 16

// notifiedEvents records the events of which this process has notified, or is notifying.
type notifiedEvents struct {
	mu    sync.Mutex
	ids   map[string]*notification
	order []string // a ring, the oldest at next
	next  int
}

// notification is the state of the notification of one event.
type notification struct {
	done  chan struct{} // closed when taken and err are final; they MUST NOT be read before
	taken []string      // names of the sinks that have taken it
	err   error         // why the others have not
}

// alreadyNotified stands for every notification that has succeeded.
var alreadyNotified = func() *notification {
	t := &notification{done: make(chan struct{})}
	close(t.done)
	return t
}()

// begin returns the notification of id, and whether it is new. The caller that gets a new one
// must notify, and call end.
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

// end records the outcome of a notification. A failed one is dropped, so that the next begin
// returns a new one.
func (t *notifiedEvents) end(id string, begun *notification, taken []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids[id] == begun { // or it was dropped already
		t.ids[id] = alreadyNotified
		if err != nil {
			delete(t.ids, id)
		}
	}
	begun.taken, begun.err = taken, err
	close(begun.done)
}

// note records that id needs no notification any more.
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

// isFinal reports whether the notification of id has succeeded.
func (t *notifiedEvents) isFinal(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[id] == alreadyNotified
}
