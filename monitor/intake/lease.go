// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"

	"go.uber.org/zap"
)

// A Lease is a companion, a digest or a note that only this worker has. It is settled once, by one
// of its methods. If that fails, the lease comes back: that costs one more check, and loses nothing.
type Lease struct {
	ID          string
	Queue       string // the monitor queue; in a store, the first
	ContentType string
	Body        []byte

	in     *Intake
	settle func(context.Context, settlement) error // where it came from
}

// A settlement is what becomes of a lease: it is handed back unless it says otherwise.
type settlement struct {
	outcome             outcome
	reason, description string // of a dead letter
}

type outcome int

const (
	handedBack outcome = iota
	completed
	deadLettered
	letGo
)

func deadLetter(reason, description string) settlement {
	return settlement{
		outcome:     deadLettered,
		reason:      reason,
		description: description,
	}
}

// Complete ends what l stands for.
func (l *Lease) Complete(ctx context.Context) { l.end(ctx, settlement{outcome: completed}) }

// HandBack gives l to whichever worker is next, at once and as it was.
func (l *Lease) HandBack(ctx context.Context) { l.end(ctx, settlement{}) }

// DeadLetter puts l where an operator finds it.
func (l *Lease) DeadLetter(ctx context.Context, reason, description string) {
	l.end(ctx, deadLetter(reason, description))
}

// LetGo leaves l as it is: it comes back when its lock lapses.
func (l *Lease) LetGo() { l.end(context.Background(), settlement{outcome: letGo}) }

// end makes room only afterwards: otherwise, settlements would pile up.
func (l *Lease) end(ctx context.Context, how settlement) {
	if err := l.settle(ctx, how); err != nil {
		l.in.log.Warn("companion, digest or note not settled: it comes back when its lock lapses", zap.String("monitor_queue", l.Queue), zap.String("message_id", l.ID), zap.Error(err))
	}
	l.in.held.Add(-1)
	l.in.ease()
}
