// SPDX-License-Identifier: Apache-2.0

package relay

import "overdue/internal/amqp"

// releaseUnsentLocked releases the complete deliveries of upstream, h, that wait here when their
// receiver goes. The client has seen nothing of them, and upstream would keep them locked.
// Without the relay they would not have left upstream, whose window to the client was closed. of
// is the link that goes; nil: all links go.
//
// A delivery that the client has in part, or may have, is not released: only the client knows its
// outcome.
func (h *half) releaseUnsentLocked(of *link) {
	type delivery struct {
		id            uint32
		more, settled bool
		begun         bool // a part of it has gone on
	}
	var unfinished map[*link]delivery
	for i := h.queue.head; i < len(h.queue.entries); i++ {
		e := &h.queue.entries[i]
		l := e.link
		if l == nil || e.p != nil || e.local || of != nil && l != of || l.sender != upstream || l.reply != nil {
			continue
		}
		d, known := unfinished[l]
		if !known {
			d = delivery{more: l.pass.more, begun: l.pass.more}
		}
		if !d.more {
			d = delivery{id: e.transfer.DeliveryID}
		}
		d.settled = d.settled || e.transfer.Settled
		d.more = e.transfer.More && !e.transfer.Aborted
		if unfinished == nil {
			unfinished = make(map[*link]delivery)
		}
		unfinished[l] = d
		if !d.more && !d.begun && !e.transfer.Aborted {
			l.settleLocked(d.id, d.settled, amqp.Released{})
		}
	}
}
