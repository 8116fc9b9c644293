// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"time"

	"overdue/internal/operations"
	"overdue/internal/servicebus/link"
)

// settleTime bounds one settlement of a companion.
const settleTime = 10 * time.Second

// A Lease is a companion, a digest or a note that only this worker has. It is settled once, by one
// of its methods. Each of them makes room for another lease, whether or not it succeeds.
type Lease struct {
	ID          string
	Queue       string // the monitor queue; in a store, the first
	ContentType string
	Body        []byte

	in   *Intake
	item item
}

// take hands a lease to the worker.
func (in *Intake) take(ctx context.Context, l *Lease) {
	in.held.Add(1)
	l.in = in
	in.cfg.Take(ctx, l)
}

// An item is a lease where it came from.
type item interface {
	complete(ctx context.Context) error
	handBack(ctx context.Context) error
	deadLetter(ctx context.Context, reason, description string) error
	letGo() // without a settlement
}

// Complete ends what l stands for.
func (l *Lease) Complete(ctx context.Context) error {
	return l.settle(ctx, l.item.complete)
}

// HandBack gives l to whichever worker is next, at once and as it was.
func (l *Lease) HandBack(ctx context.Context) error {
	return l.settle(ctx, l.item.handBack)
}

// DeadLetter puts l where an operator finds it.
func (l *Lease) DeadLetter(ctx context.Context, reason, description string) error {
	return l.settle(ctx, func(ctx context.Context) error { return l.item.deadLetter(ctx, reason, description) })
}

// LetGo leaves l as it is: it comes back when its lock lapses.
func (l *Lease) LetGo() {
	_ = l.settle(context.Background(), func(context.Context) error { return nil })
}

// settle makes room only afterwards: otherwise, settlements would pile up. The lock of what is
// being settled is not renewed.
func (l *Lease) settle(ctx context.Context, do func(context.Context) error) error {
	l.item.letGo()
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	err := do(ctx)
	l.in.held.Add(-1)
	l.in.ease()
	return err
}

// A lockedMessage is on a monitor queue. It is settled on the link that it came on.
type lockedMessage struct {
	*queue
	link    *link.Receiver
	message *link.ReceivedMessage
}

func (l *lockedMessage) letGo() { l.renewer.Forget(l.message) }

func (l *lockedMessage) complete(ctx context.Context) error {
	l.in.cfg.Operations.Add(operations.Complete, 1)
	return l.link.Complete(ctx, l.message)
}

func (l *lockedMessage) handBack(ctx context.Context) error {
	l.in.cfg.Operations.Add(operations.Release, 1)
	return l.link.Release(ctx, l.message)
}

func (l *lockedMessage) deadLetter(ctx context.Context, reason, description string) error {
	l.in.cfg.Operations.Add(operations.DeadLetter, 1)
	return l.link.DeadLetter(ctx, l.message, reason, description)
}
