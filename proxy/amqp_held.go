// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
)

// A held is one delivery on its way through the relay that has to wait: for a place, for what holds, or for
// its companions, which go first. The relay calls Before and Settled and must not wait; run takes
// the steps of the send and waits. See beside for a delivery that goes on at once.
type held struct {
	*sendLink
	send        *sending
	complete    func() error // nil once it is done: what is in flight must not keep payloads in memory
	sentSettled bool         // the app does not want to hear of failures
	entered     bool         // it has a place among the sends in flight

	ready   chan func(*amqp.Error) // of Before, one
	settled chan settlement        // of Settled, one

	// Of run alone:
	gone   bool // the delivery has gone on
	reply  relay.Reply
	theirs bool // the outcome is not accepted, so the broker's own word stands
	late   bool // the outcome was not waited for any longer
}

// A settlement is an outcome and the means to let the app know.
type settlement struct {
	outcome amqp.DeliveryState
	reply   relay.Reply
}

// Before is called by the relay when the delivery could go on.
func (h *held) Before(ready func(*amqp.Error)) bool {
	h.ready <- ready
	return true
}

// Settled is called by the relay when the broker has come to an outcome.
func (h *held) Settled(outcome amqp.DeliveryState, reply relay.Reply) {
	h.settled <- settlement{outcome, reply}
}

// run takes the delivery through the steps of a send. An outcome that comes when it is waited for
// no longer passes to the app as it is.
func (h *held) run() {
	h.finish(h.steps())
	if h.entered {
		h.p.leave()
	}
	if h.late {
		select {
		case s := <-h.settled:
			s.reply.Answer(nil)
		case <-h.ctx.Done():
		}
	}
}

// finish counts the send and tells the app how it went.
func (h *held) finish(err error) {
	if h.sentSettled && err != nil && h.ctx.Err() == nil {
		h.logFailed(err, true)
		h.send.promises, err = nil, nil // it goes on, or has gone on, unwatched
	} else if err != nil {
		h.logFailed(err, false)
	}
	h.send.count(err)
	var said *amqp.Error
	if err != nil && !h.theirs {
		said = refusal(err, h.entity)
	}
	switch {
	case h.reply != nil:
		h.reply.Answer(said)
	case !h.gone:
		select {
		case ready := <-h.ready:
			ready(said)
		case <-h.ctx.Done():
		}
	}
}

// steps waits for what holds and for a place, where there was none, and carries the send.
func (h *held) steps() error {
	if !h.entered {
		if err := h.send.learn(h.ctx); err != nil {
			return err
		}
		if err := h.p.enter(h.ctx); err != nil {
			return err
		}
		h.entered = true
		complete := h.complete
		h.complete = nil
		if err := h.send.prepare(h.sentSettled, complete); err != nil {
			return err
		}
	}
	return h.send.carry(h.ctx, h.transmit)
}

// transmit lets the delivery go on and waits for its outcome.
func (h *held) transmit(ctx context.Context) error {
	select {
	case ready := <-h.ready:
		h.gone = true
		ready(nil)
	case <-ctx.Done():
		return errConnection
	}
	var late <-chan time.Time
	if h.patience > 0 {
		timer := time.NewTimer(h.patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-late:
		h.late = true
		return errTimeout
	case s := <-h.settled:
		h.reply = s.reply
		err := outcomeError(s.outcome)
		h.theirs = err != nil
		return err
	case <-ctx.Done():
		return errConnection
	}
}
