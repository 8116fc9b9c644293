// SPDX-License-Identifier: Apache-2.0

package relay

import "overdue/internal/amqp"

// releaseUnsentLocked gives back the deliveries of upstream, h, that wait here whole when their
// receiver goes: the client has seen nothing of them, and upstream would keep them locked for it.
// Without the relay they would not have left upstream, whose window to the client was closed. of
// is the link that goes, nil: all of them go.
//
// What the client has a part of stays with it, and so does what it may have got: only it knows
// what became of that.
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
