// SPDX-License-Identifier: Apache-2.0

package queue

// A session can stand in two lists at once; slot says which of its two pairs of links a list uses.
const (
	slotAll       = iota // sessions.all
	slotAvailable        // sessions.available
	sessionLists
)

// sessionLink is the neighbours of a session in one list.
type sessionLink struct{ prev, next *session }

// A sessionList is a doubly linked list through its sessions: adding at the end and taking out
// anywhere cost the same however long it is, and nothing is allocated.
type sessionList struct {
	slot        int
	first, last *session
}

func (l *sessionList) push(s *session) {
	s.links[l.slot] = sessionLink{prev: l.last}
	if l.last == nil {
		l.first = s
	} else {
		l.last.links[l.slot].next = s
	}
	l.last = s
}

// remove takes out s, which must be in this list.
func (l *sessionList) remove(s *session) {
	at := s.links[l.slot]
	s.links[l.slot] = sessionLink{}
	if at.prev == nil {
		l.first = at.next
	} else {
		at.prev.links[l.slot].next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		at.next.links[l.slot].prev = at.prev
	}
}
