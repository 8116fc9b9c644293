// SPDX-License-Identifier: Apache-2.0

package intake

import "context"

// A Lease is a companion, a digest or a note that only this worker has. It is settled once, by one
// of its methods. Each of them makes room for another lease, whether or not it succeeds.
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
func (l *Lease) Complete(ctx context.Context) error {
	return l.end(ctx, settlement{outcome: completed})
}

// HandBack gives l to whichever worker is next, at once and as it was.
func (l *Lease) HandBack(ctx context.Context) error { return l.end(ctx, settlement{}) }

// DeadLetter puts l where an operator finds it.
func (l *Lease) DeadLetter(ctx context.Context, reason, description string) error {
	return l.end(ctx, deadLetter(reason, description))
}

// LetGo leaves l as it is: it comes back when its lock lapses.
func (l *Lease) LetGo() {
	_ = l.end(context.Background(), settlement{outcome: letGo}) // which asks nobody
}

// end makes room only afterwards: otherwise, settlements would pile up.
func (l *Lease) end(ctx context.Context, how settlement) error {
	err := l.settle(ctx, how)
	l.in.held.Add(-1)
	l.in.ease()
	return err
}
