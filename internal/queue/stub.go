// SPDX-License-Identifier: Apache-2.0

// Package queue is one queue as a value.
package queue

import "time"

// Mode says what a delivery does to the message.
type Mode int

const (
	PeekLock         Mode = iota // locks it; the consumer settles
	ReceiveAndDelete             // removes it
)

// MaxPropertiesSize bounds the properties that settlements can add to one message, in bytes.
const MaxPropertiesSize = 64 << 10

// Outcome is a way to settle a delivery.
type Outcome int

const (
	Complete   Outcome = iota // done: remove the message
	Abandon                   // failed: count the delivery and give the message back
	Release                   // untouched: give the message back, count nothing
	Defer                     // set the message aside
	DeadLetter                // move the message to the dead-letter queue
)

// Settlement settles deliveries.
type Settlement struct {
	Outcome                    Outcome
	Properties                 []Property // set on the message; not with Complete or Release
	DeadLetterReason           string     // with DeadLetter
	DeadLetterErrorDescription string     // with DeadLetter
}

// Queue is one queue and its dead-letter queue.
type Queue struct{}

func New(Config) *Queue                                                       { return nil }
func (q *Queue) Config() Config                                               { return Config{} }
func (q *Queue) DeadLetterQueue() *Queue                                      { return nil }
func (q *Queue) Counts() Counts                                               { return Counts{} }
func (q *Queue) Close()                                                       {}
func (q *Queue) Wake()                                                        {}
func (q *Queue) Send(ms ...Message) (int64, error)                            { return 0, nil }
func (q *Queue) Schedule(ms ...Message) ([]int64, error)                      { return nil, nil }
func (q *Queue) CancelScheduled(seqs ...int64) error                          { return nil }
func (q *Queue) Peek(dst []View, from int64, max int) []View                  { return nil }
func (q *Queue) ReceiveDeferred(mode Mode, seqs ...int64) ([]Delivery, error) { return nil, nil }
func (q *Queue) NewConsumer(Mode) *Consumer                                   { return nil }

// Settle settles many deliveries in one go. errs[i] belongs to tokens[i]; nil when all succeeded.
func (q *Queue) Settle(s Settlement, tokens ...LockToken) (errs []error) { return nil }
func (q *Queue) Complete(t LockToken) error                              { return nil }
func (q *Queue) CompleteAll(ts []LockToken) []error                      { return nil }
func (q *Queue) Abandon(t LockToken, props ...Property) error            { return nil }
func (q *Queue) Release(t LockToken) error                               { return nil }
func (q *Queue) ReleaseAll(ts []LockToken) []error                       { return nil }
func (q *Queue) Defer(t LockToken, props ...Property) error              { return nil }
func (q *Queue) DeadLetter(t LockToken, reason, description string, props ...Property) error {
	return nil
}
func (q *Queue) RenewLock(t LockToken) (time.Time, error) { return time.Time{}, nil }

// RenewLocks renews all or none.
func (q *Queue) RenewLocks(ts []LockToken) ([]time.Time, error) { return nil, nil }

// Consumer receives from a queue through its own outbox.
type Consumer struct{}

// SetCredit: how many deliveries, beyond those already taken, the consumer accepts; what waits in the outbox counts,
// and what exceeds it is given back uncounted.
func (c *Consumer) SetCredit(n uint32) {}

// AddCredit adds n to it.
func (c *Consumer) AddCredit(n uint32) {}

// SetLimit is SetCredit free of races with a Take that runs at the same time: total is how many deliveries the
// consumer accepts since it was made, taken ones included.
func (c *Consumer) SetLimit(total uint64) {}

// Credit is what SetCredit would set: outbox included.
func (c *Consumer) Credit() uint32 { return 0 }

// Drain assigns what is available up to the credit, then sets the credit to zero; Take reports drained after the
// deliveries before it.
func (c *Consumer) Drain() {}

// Ready yields when Take has something to give; closed by Close.
func (c *Consumer) Ready() <-chan struct{} { return nil }

// Take appends what is in the outbox (at most 256 deliveries); never blocks.
func (c *Consumer) Take(dst []Delivery) (ds []Delivery, drained bool) { return nil, false }

// Close gives the outbox back, uncounted. Locks of taken deliveries survive and lapse in their time.
func (c *Consumer) Close() {}
