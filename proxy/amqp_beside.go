// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"sync"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/scheduler"
)

// A beside is a delivery that goes on at once, its companions in flight beside it: what becomes of nearly
// all. It takes the steps of [sending.carry] when it is called and has no goroutine that waits, which
// would cost as much as everything else that is done for a message.
//
//	Settled (the broker's outcome) ─┐
//	                                ├─▶ finish ─▶ the app is told
//	Scheduled (the companions') ────┘
type beside struct {
	*sendLink
	send        *sending
	sentSettled bool // the app does not want to hear of failures

	before, after *beside // among those of the link; its own

	mu         sync.Mutex
	reply      relay.Reply // not nil once the broker has come to an outcome
	outcome    error
	scheduled  bool // the companions have come to theirs
	companions error
	over       bool
}

// goBeside begins the steps of a delivery that has its place and its promises.
func (l *sendLink) goBeside(s *sending, settled bool) *beside {
	b := &beside{sendLink: l, send: s, sentSettled: settled}
	if l.besides.add(b) {
		l.p.start(s.refs, b, b)
	} else {
		l.p.leave() // the link is gone, and the delivery with it
	}
	return b
}

// start hands companions over for b. to is told how they fared.
func (p *Proxy) start(refs []scheduler.Reference, b *beside, to interface{ Scheduled(error) }) {
	c := b.send.companion(refs)
	if p.cfg.Journal == nil {
		p.cfg.Scheduler.Start(c, to)
		return
	}
	wait := p.cfg.Journal.Begin(c)
	go func() { to.Scheduled(wait(b.ctx)) }() // ends when the monitor queue or the journal has them, or with the link
}

// Settled is called by the relay when the broker has come to an outcome.
func (b *beside) Settled(outcome amqp.DeliveryState, reply relay.Reply) {
	err := outcomeError(outcome)
	if err == nil {
		b.send.confirm()
	}
	b.mu.Lock()
	b.reply, b.outcome = reply, err
	ready := b.readyLocked()
	b.mu.Unlock()
	if ready {
		b.finish()
	}
}

// Scheduled is called when the companions are accepted, or have failed.
func (b *beside) Scheduled(err error) {
	b.p.noteCompanions(err)
	b.mu.Lock()
	b.scheduled, b.companions = true, err
	ready := b.readyLocked()
	b.mu.Unlock()
	if ready {
		b.finish()
	}
}

// readyLocked reports, once, that nothing has to be waited for. A message that the broker does not take
// needs no companion.
func (b *beside) readyLocked() bool {
	if b.over || b.reply == nil || b.outcome == nil && !b.scheduled {
		return false
	}
	b.over = true
	return true
}

// finish sees whether the promise held.
func (b *beside) finish() {
	switch {
	case b.outcome != nil:
		b.end(b.outcome)
	case b.companions != nil:
		b.end(fmt.Errorf("%w: %w", errCompanion, b.companions))
	default:
		if late := b.send.late(); len(late) > 0 {
			b.p.start(late, b, &besideAgain{b})
			return
		}
		b.end(nil)
	}
}

// besideAgain is a beside whose messages have got second companions.
type besideAgain struct{ *beside }

// Scheduled is called when those are accepted, or have failed.
func (b *besideAgain) Scheduled(err error) {
	b.p.noteCompanions(err)
	if err != nil {
		err = fmt.Errorf("%w: %w", errCompanion, err)
	}
	b.end(err)
}

// end gives the place back, counts and tells the app. It is the last, and comes once: from finish, or when
// the link is gone.
func (b *beside) end(err error) {
	if !b.besides.remove(b) {
		return
	}
	defer b.p.leave()
	b.mu.Lock()
	reply, theirs := b.reply, b.outcome != nil
	b.mu.Unlock()
	if b.sentSettled && err != nil && b.ctx.Err() == nil {
		b.logFailed(err, true)
		b.send.promises, err = nil, nil // it has gone on, unwatched
	} else if err != nil {
		b.logFailed(err, false)
	}
	b.send.count(err)
	switch {
	case reply == nil: // the link is gone, and nobody listens
	case err == nil, theirs: // the broker's own word stands
		reply.Answer(nil)
	default:
		reply.Answer(refusal(err, b.entity))
	}
}

// besides are those of one link, which end with it.
type besides struct {
	mu   sync.Mutex
	head *beside
	gone bool // the link is
}

// add reports false when the link is gone.
func (l *besides) add(b *beside) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return false
	}
	if b.after = l.head; b.after != nil {
		b.after.before = b
	}
	l.head = b
	return true
}

// remove reports whether b was there.
func (l *besides) remove(b *beside) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case b.before != nil:
		b.before.after = b.after
	case l.head == b:
		l.head = b.after
	default:
		return false
	}
	if b.after != nil {
		b.after.before = b.before
	}
	b.before, b.after = nil, nil
	return true
}

// abandon ends all that are there, and whoever comes later.
func (l *besides) abandon() {
	for {
		l.mu.Lock()
		l.gone = true
		b := l.head
		l.mu.Unlock()
		if b == nil {
			return
		}
		b.mu.Lock()
		b.over = true
		b.mu.Unlock()
		b.end(errConnection)
	}
}
