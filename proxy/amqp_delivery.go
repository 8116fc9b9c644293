// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/traces"
)

// A delivery is the send of one AMQP delivery. The relay calls Before and Settled, which must not
// block, and the send calls the methods of endpoint. It holds a goroutine only before it begins,
// and only while it waits for its entity's settings or for a place. A goroutine for each delivery
// was half of the processor time of a monitored message.
type delivery struct {
	send
	link *sendLink

	queued bool        // the relay must hold it until transmit; constant once Deliver has returned
	late   *time.Timer // nil: no timeout while the link lives

	// Guarded by send.mu:
	goesOn   bool           // the relay may pass the delivery on
	refused  bool           // the send ended before the delivery went on
	refusal  *amqp.Error    // of a refused delivery
	waits    relay.Resumer  // from Before
	answerer relay.Answerer // from Settled
	theirs   bool           // the broker did not accept the message, so its outcome stands
}

// Deliver begins the send of one delivery. If that may block, a goroutine does it. There is at
// most one for each waiting AMQP session.
func (l *sendLink) Deliver(d *relay.Delivery) (relay.DeliveryHandler, *amqp.Error) {
	settings := l.p.cfg.Settings(l.entity)
	if settings.passes() {
		return nil, nil
	}
	ms, err := readPayload(d.Payload, d.Format)
	if err == nil && len(ms) == 0 {
		return nil, nil // an empty batch: the broker judges it
	}
	s := l.newDelivery(settings, ms)
	s.unreadable = err
	setDelay(ms, d, 0)
	_, part := d.State.(*amqp.TransactionalState)
	s.settled = d.Settled
	s.once = !part && !d.Settled
	s.complete = func() error {
		return s.fit(d, ms, func() []byte { return completed(d.Payload, d.Format, ms) })
	}
	return s.start()
}

func (l *sendLink) newDelivery(settings Settings, ms []*message) *delivery {
	d := &delivery{link: l}
	d.p, d.to, d.via, d.entity, d.settings, d.n, d.ms, d.began = l.p, d, endpointAMQP, l.entity, settings, len(ms), ms, time.Now()
	d.trace = d.traced()
	return d
}

// start begins the send at once if the settings are known and a place is free. Otherwise a
// goroutine begins it.
func (d *delivery) start() (relay.DeliveryHandler, *amqp.Error) {
	var entered bool
	var err error
	if !d.settings.Unknown {
		entered, err = d.p.sends.tryEnter()
	}
	if err == nil && !entered {
		d.queued = true
		go d.startLater() // ends when it has settings and a place, after SendTimeout, or with the link
		return d, nil
	}
	if err == nil {
		err = d.prepare()
		d.queued = d.order() == beginCompanionFirst
	}
	switch {
	case err != nil:
		d.step(refused, err)
	case len(d.promises) == 0:
		d.p.sends.leave()
		return &unmonitored{d.p, d.entity, d.n, d.began, d.trace}, nil
	case d.beginOnLink():
		return d, nil
	}
	if entered {
		d.p.sends.leave()
	}
	return nil, d.refusal
}

// beginOnLink reports false when the link is gone and the send has not begun.
func (d *delivery) beginOnLink() bool {
	if !d.link.sends.add(d) {
		d.step(connectionEnded, nil)
		return false
	}
	return d.begin()
}

// startLater waits for settings and a place, and begins the send.
func (d *delivery) startLater() {
	if err := d.wait(d.link.ctx); err != nil {
		d.step(refused, err)
		return
	}
	if err := d.prepare(); err != nil {
		d.step(refused, err)
	} else if d.beginOnLink() {
		return
	}
	d.p.sends.leave()
}

// Before is called by the relay when it is ready to pass the delivery on.
func (d *delivery) Before(r relay.Resumer) (wait bool) {
	if !d.queued {
		return false
	}
	d.mu.Lock()
	d.waits = r
	goesOn, refused, refusal := d.goesOn, d.refused, d.refusal
	d.mu.Unlock()
	if goesOn || refused { // already
		r.Resume(refusal)
	}
	return true
}

// transmit tells the relay to pass the delivery on.
func (d *delivery) transmit() {
	if d.link.timeout > 0 {
		d.late = time.AfterFunc(d.link.timeout, func() { d.step(timeout, nil) })
	}
	d.mu.Lock()
	d.goesOn = true
	waits := d.waits
	d.mu.Unlock()
	if waits != nil {
		waits.Resume(nil)
	}
}

// Settled is called by the relay with the broker's outcome. An outcome that comes after the
// timeout passes to the app unchanged.
func (d *delivery) Settled(outcome amqp.DeliveryState, answerer relay.Answerer) {
	if d.late != nil {
		d.late.Stop()
	}
	err := outcomeError(outcome)
	d.mu.Lock()
	d.answerer, d.theirs = answerer, err != nil
	d.mu.Unlock()
	if !d.step(brokerSettled, err) && d.link.ctx.Err() == nil {
		answerer.Answer(nil)
	}
}

func (d *delivery) schedulingContext() context.Context { return d.link.ctx }

// finished counts the send and gives the app its outcome. A message that was sent settled goes
// on, or has gone on, without a promise: its sender would never see a refusal, and the message
// would be lost.
func (d *delivery) finished(err error) {
	l := d.link
	l.sends.remove(d)
	unwatched := d.settled && err != nil && (l.ctx.Err() == nil)
	if err != nil {
		d.logFailed(err, unwatched)
	}
	if unwatched {
		err = nil
		d.p.metrics.sent(d.via, d.entity, d.n, 0, nil) // it went on without a promise
	} else {
		d.count(err)
	}
	d.mu.Lock()
	var said *amqp.Error
	if err != nil && !d.theirs {
		said = refusal(err, d.entity)
	}
	answerer, waits := d.answerer, d.waits
	d.refused = !d.goesOn
	if d.refused {
		d.refusal = said
	}
	refused := d.refused
	d.mu.Unlock()
	switch {
	case answerer != nil:
		answerer.Answer(said)
	case refused && waits != nil:
		waits.Resume(said)
	}
}

// fit completes a delivery within the maximum size of its link. If the delivery becomes too
// large, the proxy drops the added TTLs first, then the added ids: the monitor keeps deadlines
// without them. Slots cannot stand for messages without their TTLs: the broker does not expire
// these by itself.
func (s *send) fit(d *relay.Delivery, ms []*message, complete func() []byte) error {
	exceeds := func(out []byte) bool { return d.MaxSize > 0 && uint64(len(out)) > d.MaxSize }
	out := complete()
	if exceeds(out) {
		for _, m := range ms {
			m.Stamp = 0
		}
		s.slotted = false
		s.giveIDs()
		out = complete()
	}
	if exceeds(out) {
		if exceeds(d.Payload) {
			return fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, len(d.Payload), d.MaxSize)
		}
		if !s.now.Measured { // so nobody knows when they are enqueued, by which the monitor finds them
			return fmt.Errorf("%w: %d bytes with the ids that are added, at most %d", errTooLarge, len(out), d.MaxSize)
		}
		for _, m := range ms {
			m.GivenID = ""
		}
		out = d.Payload
	}
	d.Payload = out
	return nil
}

// setDelay sets by how much later than usual the broker may enqueue the messages.
func setDelay(ms []*message, d *relay.Delivery, delay time.Duration) {
	if _, part := d.State.(*amqp.TransactionalState); part {
		delay += transactionTime
	}
	for _, m := range ms {
		m.Delay = delay
	}
}

// logFailed logs the error of a send, which goes no further.
func (d *delivery) logFailed(err error, unwatched bool) {
	status, _, _ := answer(err, d.entity)
	log := d.p.cfg.Log.Debug
	if (status >= http.StatusInternalServerError || unwatched) && d.link.ctx.Err() == nil {
		log = d.p.cfg.Log.Warn
	}
	event := "send failed"
	if unwatched {
		event = "message is not monitored: it was sent settled, so a refusal would have lost it"
	}
	log(event, d.failure(err)...)
}

// unmonitored counts a delivery without a deadline in a monitored entity.
type unmonitored struct {
	p      *Proxy
	entity string
	n      int // messages
	began  time.Time
	trace  *traces.Send
}

func (u *unmonitored) Settled(outcome amqp.DeliveryState, answerer relay.Answerer) {
	err := outcomeError(outcome)
	took := time.Since(u.began)
	u.p.metrics.SentUpstream(endpointAMQP, false, took, u.trace.Context())
	u.p.metrics.Ended(endpointAMQP, false, took, u.trace.Context())
	u.p.metrics.sent(endpointAMQP, u.entity, u.n, 0, err)
	if err == nil {
		u.p.logAccepted(endpointAMQP, u.entity, u.n, "none", nil)
	} else {
		u.p.cfg.Log.Debug("send failed", zap.String("work_queue", u.entity), zap.String("endpoint", endpointAMQP), zap.Error(err))
	}
	answerer.Answer(nil)
	u.trace.Settled(u.began, fault(err, u.entity))
	u.trace.End(fault(err, u.entity))
}

// linkSends are the sends of one link, which end with the link.
type linkSends struct {
	mu    sync.Mutex
	all   map[*delivery]struct{}
	ended bool // the link has
}

// add adds d, or reports false when the link has ended.
func (l *linkSends) add(d *delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.all[d] = struct{}{}
	}
	return !l.ended
}

// remove removes d if it is there.
func (l *linkSends) remove(d *delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, d)
}

// end ends all sends of the link. No send begins after it.
func (l *linkSends) end() {
	l.mu.Lock()
	l.ended = true
	all := slices.Collect(maps.Keys(l.all))
	l.mu.Unlock()
	for _, d := range all {
		d.step(connectionEnded, nil)
	}
}
