// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"
	"sort"

	"overdue/internal/amqp"
)

// assembly is the part of a delivery that has arrived on a watched link.
type assembly struct {
	first   amqp.Transfer
	payload []byte
	limit   uint64 // bytes, as upstream's attach says; 0 = it has not come
	begun   bool
}

func (a *assembly) dropLocked() {
	a.payload, a.begun, a.first = nil, false, amqp.Transfer{}
}

// limit returns the maximum size of a delivery in bytes, given upstream's limit.
func (l *link) limit(allowed uint64) uint64 {
	most := l.s.c.cfg.MaxMessageSize
	if allowed != 0 {
		most = min(most, allowed)
	}
	l.watch.limit = most
	return most
}

// onWatchedLocked handles one frame of a delivery that must be complete before it goes on. The
// window opens again at once: the size limit bounds an assembly. Assemblies are not counted as
// buffered. The frames that complete them come behind those of others, so a relay that did not
// read would wait for itself.
func (l *link) onWatchedLocked(h *half, t *amqp.Transfer, payload []byte) {
	a := &l.watch
	if !a.begun {
		a.begun = true
		a.first = *t
		if !t.More && !t.Aborted { // usually the only frame
			kept := make([]byte, 0, len(payload)+len(t.DeliveryTag))
			a.first.DeliveryTag = append(kept[len(payload):len(payload)], t.DeliveryTag...)
			a.payload = kept[:0:len(payload)]
		} else {
			a.first.DeliveryTag = append([]byte(nil), t.DeliveryTag...)
		}
	}
	a.first.Settled = a.first.Settled || t.Settled
	a.first.HasSettled = a.first.HasSettled || t.HasSettled
	if t.State != nil {
		a.first.State = t.State
	}
	if t.Aborted {
		a.dropLocked()
		l.skipped++
		l.grantAgainLocked()
		return
	}
	limit := a.limit
	if limit == 0 {
		limit = h.s.c.cfg.MaxMessageSize // upstream has not answered
	}
	if l.sender == client && uint64(len(a.payload)+len(payload)) > limit {
		e := amqp.Errorf(amqp.ErrCondLinkMessageSizeExceeded, "The message has more than %d bytes, which is max-message-size.", limit)
		// The detach carries the error as well, but senders wait for the outcome.
		l.settleLocked(a.first.DeliveryID, a.first.Settled, &amqp.Rejected{Error: e})
		a.dropLocked()
		l.came.dropped = true
		l.breakLocked(e)
		return
	}
	a.payload = append(a.payload, payload...)
	if t.More || h.sentEnd {
		return
	}
	first, d := a.first, Delivery{
		Payload: a.payload, Format: a.first.MessageFormat, Settled: a.first.Settled, State: a.first.State, Tag: a.first.DeliveryTag,
		MaxSize: a.limit,
	}
	a.dropLocked()
	first.More = false
	if l.reply != nil {
		response := d
		l.responseLocked(h, first, &response)
	} else {
		l.deliverLocked(h, first, d)
	}
}

// deliverLocked calls the watcher with a delivery, without the lock, and then passes the delivery
// on unless the watcher decides otherwise.
func (l *link) deliverLocked(h *half, t amqp.Transfer, delivery Delivery) {
	c := h.s.c
	k := &pendingDelivery{half: h, link: l, in: t.DeliveryID, own: delivery}
	k.delivery = &k.own
	d := k.delivery
	came := d.Payload
	c.mu.Unlock()
	handler, refusal := l.watcher.Deliver(d)
	if w, ok := handler.(QueuedDelivery); ok && refusal == nil && w.Before(k) {
		k.waits = true
	}
	c.mu.Lock()
	k.handler = handler
	switch {
	case l.gone || h.sentEnd:
	case refusal != nil:
		l.skipLocked(t.DeliveryID, d, refusal)
	case handler == nil:
		h.passLocked(&entry{link: l, transfer: t, payload: d.Payload})
	case k.waits: // until Resume the watcher owns d, and the arrived size counts
		h.passLocked(&entry{link: l, transfer: t, payload: came, pending: k})
	default:
		h.passLocked(&entry{link: l, transfer: t, payload: d.Payload, pending: k})
	}
}

// skipLocked rejects a delivery that does not go on, or answers such a request.
func (l *link) skipLocked(id uint32, d *Delivery, e *amqp.Error) {
	l.skipped++
	var outcome amqp.DeliveryState = &amqp.Rejected{Error: e}
	if l.answerRefusedLocked(d, e) {
		outcome = amqp.Accepted{}
	}
	l.settleLocked(id, d.Settled, outcome)
	l.grantAgainLocked()
}

// settleLocked sends the sender an outcome of the relay's own.
func (l *link) settleLocked(id uint32, settled bool, outcome amqp.DeliveryState) {
	if settled {
		return // it expects no outcome
	}
	l.s.halves[l.sender].putDispositionLocked(&amqp.Disposition{
		Role: amqp.RoleReceiver, Settled: true, State: outcome,
	}, span{id, id})
}

// A pendingDelivery is a watched delivery on its way, until its sender has the outcome.
type pendingDelivery struct {
	half     *half // of its sender
	link     *link
	delivery *Delivery
	own      Delivery // storage for delivery, to save an allocation
	handler  DeliveryHandler
	in, out  uint32 // delivery-ids

	waits   bool        // before it may go on
	readied bool        // Resume was called
	refusal *amqp.Error // of Resume

	asked    bool             // the handler has been called with the outcome
	answered bool             // and has answered
	outcome  amqp.Disposition // of the receiver, once asked

	// For a request whose outcome is its response.
	to       returnAddress
	responds bool
	awaits   bool // the response has not come
}

// Resume is called by the handler when the delivery may go on.
func (k *pendingDelivery) Resume(refusal *amqp.Error) {
	c := k.half.s.c
	c.mu.Lock()
	defer c.unlock()
	if k.readied {
		return
	}
	k.readied, k.refusal = true, refusal
	if !k.half.s.over {
		k.half.pumpLocked()
		c.drainedLocked()
	}
	c.doneLocked()
}

// mayGoLocked reports whether the delivery may go on, and whether it was refused.
func (k *pendingDelivery) mayGoLocked() (ok bool, refusal *amqp.Error) {
	if k.waits && !k.readied {
		return false, nil
	}
	return true, k.refusal
}

// addPendingLocked notes that k has gone on as out.
func (h *half) addPendingLocked(k *pendingDelivery, out uint32) {
	k.out = out
	if k.link.requests != "" {
		h.s.c.awaitLocked(k)
	}
	if k.delivery.Settled {
		return
	}
	if len(h.pending.list) >= h.s.c.cfg.MaxPending {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "More than %d deliveries are pending.", h.s.c.cfg.MaxPending))
		return
	}
	h.pending.list = append(h.pending.list, k)
}

// goneOnLocked handles the end of a delivery that was sent settled.
func (h *half) goneOnLocked(k *pendingDelivery) {
	h.s.c.callSettledLocked(k, nil, discardAnswer)
}

// outcomeLocked handles the receiver's outcome of a pending delivery. It reports false if the
// sender gets it unchanged.
func (h *half) outcomeLocked(k *pendingDelivery, d *amqp.Disposition) bool {
	if _, partial := d.State.(*amqp.Received); partial {
		return false
	}
	if k.responds {
		_, accepted := d.State.(amqp.Accepted)
		if accepted || k.asked {
			h.pending.remove(k)
			return false
		}
		h.s.c.forgetRequestLocked(k)
	}
	if !k.asked {
		k.asked, k.outcome = true, *d
		h.s.c.callSettledLocked(k, d.State, k)
		return true
	}
	k.outcome.Settled = k.outcome.Settled || d.Settled
	return true
}

// Answer is called by the handler when the sender may get its outcome.
func (k *pendingDelivery) Answer(e *amqp.Error) {
	h := k.half
	c := h.s.c
	c.mu.Lock()
	defer c.unlock()
	if k.answered || h.s.over {
		return
	}
	k.answered = true
	if !k.link.gone {
		h.pending.remove(k)
		if e != nil {
			k.outcome.State = &amqp.Rejected{Error: e}
		}
		h.putOutcomeLocked(&k.outcome, span{k.out, k.out})
	}
	h.other().pumpLocked() // a detach or an end that waited for it
	c.doneLocked()
}

// decidingLocked reports whether handlers decide on outcomes that upstream has stated and a client
// waits for: of the link, or of all if it is nil. Upstream's detach and end come after them.
func (h *half) decidingLocked(of *link) bool {
	return h.side.at == client && slices.ContainsFunc(h.pending.list, func(k *pendingDelivery) bool {
		return k.asked && !k.responds && (of == nil || k.link == of)
	})
}

// pendingList holds the deliveries that have gone on and whose senders wait, in that order.
type pendingList struct{ list []*pendingDelivery }

// find returns the index of the first delivery that went on as id or later.
func (l *pendingList) find(id uint32) int {
	return sort.Search(len(l.list), func(i int) bool { return !before(l.list[i].out, id) })
}

func (l *pendingList) remove(k *pendingDelivery) {
	if i := l.find(k.out); i < len(l.list) && l.list[i] == k {
		l.list = append(l.list[:i], l.list[i+1:]...)
	}
}

// drop removes the deliveries of a link.
func (l *pendingList) drop(of *link) {
	kept := l.list[:0]
	for _, k := range l.list {
		if k.link != of {
			kept = append(kept, k)
		}
	}
	clear(l.list[len(kept):])
	l.list = kept
}

// settle removes deliveries whose sender no longer waits.
func (l *pendingList) settle(h *half, r span) {
	for i := l.find(r.first); i < len(l.list) && !before(r.last, l.list[i].out); {
		k := l.list[i]
		l.remove(k)
		k.answered = true
		if !k.asked && !k.awaits {
			h.goneOnLocked(k)
		}
	}
}
