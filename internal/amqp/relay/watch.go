// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
	"overdue/internal/servicebus/rights"
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
	if h.pending.Len() >= h.s.c.cfg.MaxPending {
		h.s.failLocked(amqp.Errorf(amqp.ErrCondResourceLimitExceeded, "More than %d deliveries are pending.", h.s.c.cfg.MaxPending))
		return
	}
	h.pending.Add(out, k)
}

// goneOnLocked handles the end of a delivery that was sent settled.
func (k *pendingDelivery) goneOnLocked() { k.half.s.c.callSettledLocked(k, nil, discardAnswer) }

// abandonLocked handles a delivery whose sender no longer waits.
func (k *pendingDelivery) abandonLocked() {
	k.answered = true
	if !k.asked && !k.awaits {
		k.goneOnLocked()
	}
}

// outcomeLocked handles the receiver's outcome of a pending delivery. decides says that the handler
// decides what its sender gets, which is the outcome unchanged otherwise; over says that it is
// pending no more.
func (k *pendingDelivery) outcomeLocked(d *amqp.Disposition) (decides, over bool) {
	c := k.half.s.c
	if _, partial := d.State.(*amqp.Received); partial {
		return false, false
	}
	if k.responds {
		_, accepted := d.State.(amqp.Accepted)
		if accepted || k.asked {
			return false, true
		}
		c.forgetRequestLocked(k)
	}
	if !k.asked {
		k.asked, k.outcome = true, *d
		c.callSettledLocked(k, d.State, k)
		return true, false
	}
	k.outcome.Settled = k.outcome.Settled || d.Settled
	return true, false
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
		transport.Remove(&h.pending, k.out, k)
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
func (h *half) decidingLocked(of *link) (deciding bool) {
	if h.side.at == client {
		h.pending.All(func(at **pendingDelivery) bool {
			k := *at
			deciding = deciding || k.asked && !k.responds && (of == nil || k.link == of)
			return false
		})
	}
	return deciding
}

// A Link describes a link of a client to [Config.Watch] and the other callbacks.
type Link struct {
	// Class is the purpose of the link and its entity. It is zero for a link that is in no
	// table; Unlisted has the reason. Such a link goes upstream where the tokens of clients do,
	// unless Config.Refuse refuses it.
	Class    rights.Class
	Unlisted *amqp.Error
	// Receiver: the client receives. Of such links only those from a management node are watched.
	Receiver bool
	// Name is the name of the link, unique per client and direction. Only the connection ties
	// together the two links of a management node.
	Name string
	// Conn is a number that all links of one client connection share, and no other.
	Conn uint64
}

// A Delivery is one complete message on its way over a watched link: to
// upstream when the client sends, to the client when it receives.
type Delivery struct {
	// Payload is the encoded message. The watcher may change or replace it until
	// the delivery may go on: in Deliver, or until it calls Resume for a QueuedDelivery.
	Payload []byte
	Format  uint32 // the message format, amqp.BatchMessageFormat for a batch
	Settled bool   // its sender expects no outcome
	// State is the sender's delivery state: a *amqp.TransactionalState when it is part of a
	// transaction.
	State amqp.DeliveryState
	Tag   []byte
	// MaxSize is the maximum size of the payload at its receiver, also after the watcher has
	// changed it. 0 = no bound.
	MaxSize uint64
}

// A Watcher sees the deliveries of one link, each complete and in order. Calls
// for one link come one at a time, from the goroutines that read, and must not
// block: all links of the connection wait meanwhile.
type Watcher interface {
	// Deliver is called for each delivery, and may change its payload. It returns a
	// DeliveryHandler when the delivery or its disposition has to wait for more than the other
	// end; nil lets both pass.
	//
	// With an error the delivery goes no further. The sender gets the outcome rejected with that
	// error. A request to a management node gets a response with the error, if the client waits
	// for a response.
	Deliver(d *Delivery) (DeliveryHandler, *amqp.Error)

	// Detached is called once, when the link is gone. Its pending deliveries have been dropped:
	// Resume and Answer have no effect from then on.
	Detached()
}

// A DeliveryHandler decides what the sender of one delivery gets as its outcome, and when.
type DeliveryHandler interface {
	// Settled is called with the outcome of the other end. answerer passes it to the sender:
	// unchanged for nil, otherwise as rejected with the error. For a delivery that was sent
	// settled the outcome is nil, and answerer has no effect. Settled is not called for a
	// delivery that Before refused, nor after the link was detached.
	//
	// The outcome of a request to a management node is that of its response, if there is a link for
	// responses. It is accepted for a status of 2xx, otherwise rejected with the response's condition.
	// Then answerer lets the response pass, or replaces it by one with the error.
	Settled(outcome amqp.DeliveryState, answerer Answerer)
}

// A QueuedDelivery is a DeliveryHandler that may make the delivery itself wait.
type QueuedDelivery interface {
	DeliveryHandler
	// Before is called before the delivery goes on. It returns false when the delivery may go on
	// at once. Otherwise the delivery waits, and with it all that follow in its session, until
	// Resume is called, once and from any goroutine. With an error it goes no further, and the
	// sender gets rejected with that error.
	Before(Resumer) (wait bool)
}

// A Resumer lets a delivery go on, see QueuedDelivery. It is an interface because a function would
// have to be allocated for every delivery.
type Resumer interface{ Resume(refusal *amqp.Error) }

// An Answerer gives one sender its outcome. It is an interface for the same reason.
type Answerer interface {
	// Answer is called once, from any goroutine; see DeliveryHandler.
	Answer(*amqp.Error)
}

// An AnswerFunc is an Answerer.
type AnswerFunc func(*amqp.Error)

// Answer calls f.
func (f AnswerFunc) Answer(e *amqp.Error) { f(e) }

// discardAnswer is for deliveries whose sender waits for no outcome.
var discardAnswer Answerer = AnswerFunc(func(*amqp.Error) {})
