// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rest"
	"overdue/internal/servicebus/rights"
)

const (
	doorAMQP = "amqp"

	// transactionTime is how long a transaction of Service Bus may be open. Its messages are
	// enqueued when it ends.
	transactionTime = 2 * time.Minute
)

// watch decides which links of the AMQP door are watched: those that send to an entity or schedule
// messages there, unless it is excluded, and those that would write to the monitor queue. All others
// pass untouched. What holds for the entity is asked at each send: it may be made anew behind the
// name while the link is there, and here, where it may not be known yet, nothing may wait.
func (p *Proxy) watch(l relay.Link) relay.Watcher {
	entity := l.Class.Entity()
	management := l.Class.Kind == rights.Requests
	switch at := l.Class.Address; {
	case l.Class.Kind == rights.SendNowhere:
		return &nowhereLink{at}
	case l.Class.Kind != rights.Send && !management:
		return nil
	case at.SubQueue != address.Main:
		return &deadLettersLink{at}
	case p.isMonitorQueue(entity):
		return &monitorQueueLink{p: p, at: at, entity: entity, management: management}
	case p.excluded(entity):
		return nil
	}
	ctx, detach := context.WithCancel(context.Background())
	at := sendLink{p: p, at: l.Class.Address, entity: entity, ctx: ctx, detach: detach, besides: &besides{}}
	if management {
		at.patience = requestTime
		return &managementLink{at}
	}
	return &at
}

// refuseLink refuses links that are in no table of rights, which could be sends that nobody watches, and
// keeps apps from receiving companions: the door has the sidecar's own rights, and what an app takes off
// the monitor queue is a deadline that nobody keeps.
func (p *Proxy) refuseLink(l relay.Link) *amqp.Error {
	at := l.Class.Address
	switch {
	case l.Class.Kind == rights.Refused:
		return l.Unlisted
	case l.Class.Kind != rights.Receive || at.SubQueue != address.Main || !p.isMonitorQueue(at.Entity()):
		return nil
	}
	return amqp.Errorf(amqp.ErrCondNotAllowed, "'%s' is the monitor queue, which gives no messages to apps.", at.Entity())
}

// isMonitorQueue reports whether an entity is the monitor queue.
func (p *Proxy) isMonitorQueue(entity string) bool {
	return p.cfg.MonitorQueue != "" && strings.EqualFold(entity, p.cfg.MonitorQueue)
}

// A sendLink watches the deliveries of one link to an entity that may be monitored.
type sendLink struct {
	p      *Proxy
	at     address.Address // of the link
	entity string
	ctx    context.Context // ends when the link is gone, and with it whatever waits for its deliveries
	detach context.CancelFunc
	// patience is how long the broker may take to come to an outcome. 0 = as long as the link lives.
	patience time.Duration

	besides *besides
}

// Detached is called by the relay when the link is gone.
func (l *sendLink) Detached() {
	l.detach()
	l.besides.abandon()
}

// Deliver takes the steps of a send with one delivery. What may block is done by a goroutine of its
// own, of which there are no more than MaxInFlight and one for each session that waits for a place or
// for what holds.
func (l *sendLink) Deliver(d *relay.Delivery) (relay.Held, *amqp.Error) {
	settings := l.p.cfg.Settings(l.entity)
	if settings.passes() {
		return nil, nil
	}
	ms, err := readPayload(d.Payload, d.Format)
	if err == nil && len(ms) == 0 {
		return nil, nil // an empty batch; the broker says what it thinks of that
	}
	s := l.p.newSending(doorAMQP, l.entity, settings, known(ms))
	s.unreadable = err
	setDelay(ms, d, 0)
	_, part := d.State.(*amqp.TransactionalState)
	s.once = !part && !d.Settled
	return l.hold(d, s, func() error { return s.fit(d, ms, func() []byte { return completed(d.Payload, d.Format, ms) }) })
}

// fit completes a delivery within the size that the link allows. Where it would be exceeded the TTLs
// are left out, and then the ids: the monitor keeps deadlines without them.
func (s *sending) fit(d *relay.Delivery, ms []*amqpMessage, complete func() []byte) error {
	exceeds := func(out []byte) bool { return d.MaxSize > 0 && uint64(len(out)) > d.MaxSize }
	out := complete()
	if exceeds(out) {
		for _, m := range ms {
			m.Stamp = 0
		}
		out = complete()
	}
	if exceeds(out) {
		if exceeds(d.Payload) {
			return fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, len(d.Payload), d.MaxSize)
		}
		if !s.mayGoUnnamed() {
			return fmt.Errorf("%w: %d bytes with the ids that are added, at most %d", errTooLarge, len(out), d.MaxSize)
		}
		for _, m := range ms {
			if m.unnamed {
				m.ID, m.unnamed = "", false
			}
		}
		out = d.Payload
	}
	d.Payload = out
	return nil
}

// setDelay notes how much later than other messages these may be enqueued.
func setDelay(ms []*amqpMessage, d *relay.Delivery, delay time.Duration) {
	if _, part := d.State.(*amqp.TransactionalState); part {
		delay += transactionTime
	}
	for _, m := range ms {
		m.Delay = delay
	}
}

// hold promises the messages where it is known what holds and a place is free, and otherwise leaves it to a
// goroutine, as whatever has to wait. complete puts on the delivery what the promise has stamped.
func (l *sendLink) hold(d *relay.Delivery, s *sending, complete func() error) (relay.Held, *amqp.Error) {
	var entered bool
	var err error
	if !s.settings.Unknown {
		entered, err = l.p.tryEnter()
	}
	if err == nil && entered {
		if err = s.prepare(d.Settled, complete); err != nil || len(s.promises) == 0 {
			l.p.leave()
		}
	}
	switch {
	case err != nil:
		return nil, l.refuse(d, s, err)
	case entered && len(s.promises) == 0:
		return &unmonitored{s}, nil
	case entered && !s.companionFirst:
		return l.goBeside(s, d.Settled), nil
	}
	h := &held{
		sendLink: l, send: s, complete: complete, sentSettled: d.Settled, entered: entered,
		ready: make(chan func(*amqp.Error), 1), settled: make(chan settlement, 1),
	}
	go h.run()
	return h, nil
}

// refuse is the answer to a delivery that does not go on. One that was sent settled goes on
// all the same, unwatched: its sender would not hear of a refusal, and the message would be lost.
func (l *sendLink) refuse(d *relay.Delivery, s *sending, err error) *amqp.Error {
	l.logFailed(err, d.Settled)
	if d.Settled {
		s.promises = nil
		s.count(nil)
		return nil
	}
	s.count(err)
	return refusal(err, l.entity)
}

// logFailed is where an error of a send ends.
func (l *sendLink) logFailed(err error, settled bool) {
	status, _, _ := answer(err, l.entity)
	log := l.p.cfg.Log.Debug
	if (status >= http.StatusInternalServerError || settled) && l.ctx.Err() == nil {
		log = l.p.cfg.Log.Warn
	}
	event := "send failed"
	if settled {
		event = "message is not watched: its sender does not want to hear of failures"
	}
	log(event, zap.String("work_queue", l.entity), zap.String("door", doorAMQP), zap.Error(err))
}

// unmonitored is a delivery without a deadline in an entity that is monitored. It is only counted.
type unmonitored struct{ send *sending }

func (u *unmonitored) Settled(outcome amqp.DeliveryState, reply relay.Reply) {
	u.send.count(outcomeError(outcome))
	reply.Answer(nil)
}

// A monitorQueueLink refuses what would come to the monitor queue through this door: who may send
// work may not write companions, which anybody could forge, nor cancel, settle or delete those of others.
type monitorQueueLink struct {
	p          *Proxy
	at         address.Address
	entity     string
	management bool
}

// Detached has nothing to do.
func (l *monitorQueueLink) Detached() {}

// Deliver refuses the delivery, unless it is a peek.
func (l *monitorQueueLink) Deliver(d *relay.Delivery) (relay.Held, *amqp.Error) {
	if l.management {
		if operation, _, _ := rights.Operation(l.at, d.Payload); operation == rights.PeekMessage {
			return nil, nil
		}
	}
	err := rest.BadRequest("%s is the monitor queue, which takes no messages of apps.", rest.Quoted(l.entity))
	l.p.metrics.sent(doorAMQP, l.entity, 1, 0, err)
	return nil, refusal(err, l.entity)
}

// A deadLettersLink takes the requests to the management node of a dead-letter queue, where nothing can be
// sent.
type deadLettersLink struct{ at address.Address }

// Detached has nothing to do.
func (l *deadLettersLink) Detached() {}

// Deliver refuses what is in no table of rights.
func (l *deadLettersLink) Deliver(d *relay.Delivery) (relay.Held, *amqp.Error) {
	_, _, err := rights.Operation(l.at, d.Payload)
	return nil, err
}

// A nowhereLink sends to what takes no messages. The namespace refuses such a link; what comes over it
// before that, or instead, goes no further.
type nowhereLink struct{ at address.Address }

// Detached has nothing to do.
func (l *nowhereLink) Detached() {}

// Deliver refuses the delivery.
func (l *nowhereLink) Deliver(*relay.Delivery) (relay.Held, *amqp.Error) {
	return nil, amqp.Errorf(amqp.ErrCondNotAllowed, "It is not possible to send to '%s'.", l.at)
}
