// SPDX-License-Identifier: Apache-2.0

package relay

import "overdue/internal/amqp"

// An entry is a frame on its way from one peer to the other.
type entry struct {
	link     *link             // nil for an end and for a disposition
	p        amqp.Performative // nil for a transfer
	transfer amqp.Transfer
	payload  []byte
	borrowed bool             // payload and delivery tag are the reader's
	counted  bool             // the sender's window is kept closed for it
	local    bool             // a delivery of the relay's own
	pending  *pendingDelivery // of a watched delivery
}

// waitingList is a first-in, first-out queue that keeps its memory while it is in use.
type waitingList struct {
	entries []entry
	head    int
}

func (q *waitingList) len() int { return len(q.entries) - q.head }

func (q *waitingList) front() *entry { return &q.entries[q.head] }

func (q *waitingList) push(e entry) {
	if q.head > 64 && q.head > len(q.entries)/2 {
		n := copy(q.entries, q.entries[q.head:])
		clear(q.entries[n:])
		q.entries, q.head = q.entries[:n], 0
	}
	q.entries = append(q.entries, e)
}

func (q *waitingList) pop() {
	q.entries[q.head] = entry{}
	if q.head++; q.head == len(q.entries) {
		q.entries, q.head = q.entries[:0], 0
		if cap(q.entries) > 64 {
			q.entries = nil
		}
	}
}

// passLocked sends e to the other peer, at once or after the entries before it.
func (h *half) passLocked(e *entry) {
	if h.queue.len() == 0 && h.emitLocked(e) {
		return
	}
	if e.borrowed {
		kept := make([]byte, len(e.payload)+len(e.transfer.DeliveryTag))
		n := copy(kept, e.payload)
		copy(kept[n:], e.transfer.DeliveryTag)
		e.payload = kept[:n:n]
		if e.transfer.DeliveryTag != nil {
			e.transfer.DeliveryTag = kept[n:]
		}
		e.borrowed = false
	}
	if e.counted {
		h.queued++
	}
	h.queue.push(*e)
	h.side.buffered += uint64(len(e.payload))
}

// unbufferLocked counts n bytes that no longer wait; n is negative if a watcher has made a payload
// longer.
func (s *side) unbufferLocked(n int) {
	was := s.buffered
	s.buffered -= uint64(n)
	if most := s.c.cfg.MaxBuffered; was > most && s.buffered <= most {
		s.c.room.Broadcast()
	}
}

// pumpLocked sends entries in order, as far as they can go on.
func (h *half) pumpLocked() {
	for h.queue.len() > 0 {
		e := h.queue.front()
		before := len(e.payload)
		done := h.emitLocked(e)
		if h.queue.len() == 0 {
			break // it was dropped
		}
		if !done {
			h.side.unbufferLocked(before - len(e.payload))
			break
		}
		h.side.unbufferLocked(before)
		if e.counted {
			h.queued--
		}
		h.queue.pop()
	}
	h.topUpLocked()
}

// dropQueueLocked drops the entries that wait.
func (h *half) dropQueueLocked() {
	for h.queue.len() > 0 {
		h.side.unbufferLocked(len(h.queue.front().payload))
		h.queue.pop()
	}
	h.queued = 0
}

// emitLocked sends e to the other peer. It reports false if the other peer cannot take all of it
// now; e then has the rest.
func (h *half) emitLocked(e *entry) bool {
	o := h.other()
	if o.sentEnd {
		return true
	}
	switch p := e.p.(type) {
	case nil:
		return h.emitTransferLocked(e)
	case *amqp.Attach:
		return h.emitAttachLocked(e, p)
	case *amqp.Detach:
		if o.decidingLocked(e.link) {
			return false
		}
		h.emitDetachLocked(e.link, p)
	case *amqp.Flow:
		h.emitFlowLocked(e.link, p)
	case *amqp.Disposition:
		h.emitSettledLocked(p)
	case *amqp.End:
		if o.decidingLocked(nil) {
			return false
		}
		o.putEndLocked(p.Error)
	}
	return true
}
