// SPDX-License-Identifier: Apache-2.0

package nudge

import (
	"context"
	"errors"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
	"overdue/monitor/search"

	"golang.org/x/sync/errgroup"
)

// links are what nudges read and receive through.
type links struct {
	work, dead *search.View
	receiver   *link.Receiver // without credit between nudges; nil: it is not open
}

func (l *links) close(ctx context.Context) {
	l.work.Close(ctx)
	l.dead.Close(ctx)
	l.closeReceiver(ctx)
}

func (l *links) closeReceiver(ctx context.Context) {
	if l.receiver != nil {
		l.receiver.Close(ctx)
		l.receiver = nil
	}
}

// open opens the receiver, unless it is open.
func (n *Nudger) open(ctx context.Context, l *links) (err error) {
	if l.receiver != nil {
		return l.receiver.Claim(ctx)
	}
	l.receiver, err = n.Links.BareReceiver(ctx, n.Path, nil)
	if link.Condition(err) == link.ConditionNotAllowed {
		n.Sessions()
	}
	return err
}

// nudging returns the two steps of a nudge. It reads the dead letters right behind it, where they
// may be taken away.
func (n *Nudger) nudging(ctx context.Context, l *links) (open func() error, nudge func() (*link.Message, error)) {
	return func() error { return n.open(ctx, l) }, func() (*link.Message, error) {
		var reading errgroup.Group
		got, err := Over(ctx, l.receiver, n.Operations, func() {
			_, steady := n.quiet.Steady()
			proven := steady && n.Proven(n.Clock.Latest())
			reading.Go(func() error {
				return l.dead.WithoutKept(func() error { return n.letters.Read(ctx, n.Letters(), proven, l.dead, n.Read) })
			})
		})
		return got, errors.Join(err, reading.Wait())
	}
}

// Over nudges over a receiver without credit, and calls sent when the nudge is on its way.
// It releases the live message that comes, which does not change that message, and returns it, or
// nil.
func Over(ctx context.Context, r *link.Receiver, o *operations.Counter, sent func()) (got *link.Message, err error) {
	m, err := r.Next(ctx, sent)
	o.Add(operations.Nudge, 1)
	var live []*link.ReceivedMessage
	if m != nil {
		got = &m.Message
		live = append(live, m)
	}
	released, releaseErr := r.GiveBack(ctx, live...)
	o.Add(operations.Release, released)
	return got, errors.Join(err, releaseErr)
}
