// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/test/bench/pump"
)

// prefetch is how many messages a receiver asks for at a time, and settles side by side.
const prefetch = 200

// fill puts n messages into a queue.
func (b *bench) fill(entity string, n int, m func(i int) *goamqp.Message) error {
	p, err := pump.New(b.srv.address, entity, amqp.RoleSender)
	if err != nil {
		return err
	}
	const step = perBatch // a frame holds it
	for i := 0; i < n; i += step {
		batch := batchOf(min(step, n-i), func(j int) *goamqp.Message { return m(i + j) })
		if err := p.Send(amqp.BatchMessageFormat, batch, 1); err != nil {
			return errors.Join(err, p.Close())
		}
	}
	return p.Close()
}

// receives measures receive and complete.
func (b *bench) receives(ctx context.Context) error {
	for _, n := range []int{1, senders} {
		for _, l := range []struct {
			name    string
			receive func(ctx context.Context, left *atomic.Int64) (work, end func() error, err error)
		}{
			{"SDK", b.sdkReceiver(azservicebus.ReceiveModePeekLock)},
			{"go-amqp", b.plainReceiver},
			{"SDK, receive and delete", b.sdkReceiver(azservicebus.ReceiveModeReceiveAndDelete)},
		} {
			if err := b.rate(fmt.Sprintf("receive and complete, %d at once: %s", n, l.name), func(begin func()) (int, error) {
				return b.drained(ctx, n, l.receive, begin)
			}); err != nil {
				return err
			}
		}
	}
	for _, n := range []int{1, senders} {
		if err := b.rate(fmt.Sprintf("accept next session to close, %d at once: SDK", n), func(begin func()) (int, error) {
			if err := b.fill(sessionQueues[1], perSession*manySessions, inSession(manySessions)); err != nil {
				return 0, err
			}
			return b.together(ctx, n, b.sdkVisitor, begin)
		}); err != nil {
			return err
		}
	}
	return b.rate("receive and complete: raw", func(begin func()) (int, error) {
		n := 5 * b.messages
		if err := b.fill(plainQueue, n, same); err != nil {
			return 0, err
		}
		begin()
		p, err := pump.New(b.srv.address, plainQueue, amqp.RoleReceiver)
		if err != nil {
			return 0, err
		}
		return n, errors.Join(p.Receive(n), p.Close())
	})
}

// drained has receivers empty a queue side by side, each on a connection of its own. left is how
// many messages nobody has asked for yet.
func (b *bench) drained(ctx context.Context, receivers int, open func(context.Context, *atomic.Int64) (work, end func() error, err error), begin func()) (n int, err error) {
	if err := b.fill(plainQueue, b.messages, same); err != nil {
		return 0, err
	}
	var left atomic.Int64
	left.Store(int64(b.messages))
	var works []func() error
	for range receivers {
		work, end, err := open(ctx, &left)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, end()) }()
		works = append(works, work)
	}
	begin()
	errs := make(chan error, receivers)
	for _, work := range works {
		go func() { errs <- work() }()
	}
	for range works {
		err = errors.Join(err, <-errs)
	}
	return b.messages, err
}

// claim takes at most n from left.
func claim(left *atomic.Int64, n int64) int {
	if rest := left.Add(-n); rest < 0 {
		n += max(rest, -n)
	}
	return int(n)
}

func (b *bench) sdkReceiver(mode azservicebus.ReceiveMode) func(context.Context, *atomic.Int64) (work, end func() error, err error) {
	return func(ctx context.Context, left *atomic.Int64) (work, end func() error, err error) {
		client, err := b.srv.sdk()
		if err != nil {
			return nil, nil, err
		}
		r, err := client.NewReceiverForQueue(plainQueue, &azservicebus.ReceiverOptions{ReceiveMode: mode})
		work = func() error {
			for {
				want := claim(left, prefetch)
				if want == 0 {
					return nil
				}
				for want > 0 {
					ms, err := r.ReceiveMessages(ctx, want, nil)
					if err != nil {
						return err
					}
					want -= len(ms)
					if mode != azservicebus.ReceiveModePeekLock {
						continue
					}
					if err := sideBySide(len(ms), func(i int) error { return r.CompleteMessage(ctx, ms[i], nil) }); err != nil {
						return err
					}
				}
			}
		}
		return work, func() error { return client.Close(ctx) }, err
	}
}

// sdkVisitor takes one message out of one session after the other.
func (b *bench) sdkVisitor(ctx context.Context) (func() (int, error), func() error, error) {
	client, err := b.srv.sdk()
	return func() (int, error) {
		r, err := client.AcceptNextSessionForQueue(ctx, sessionQueues[1], nil)
		return 1, visit(ctx, r, err)
	}, func() error { return client.Close(context.WithoutCancel(ctx)) }, err
}

// plainReceiver settles first, which saves go-amqp the wait for an answer; the SDK does not offer
// that.
func (b *bench) plainReceiver(ctx context.Context, left *atomic.Int64) (work, end func() error, err error) {
	conn, session, err := b.srv.plain(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := session.NewReceiver(ctx, plainQueue, &goamqp.ReceiverOptions{
		Credit: -1, SettlementMode: goamqp.ReceiverSettleModeSecond.Ptr(),
	})
	work = func() error {
		ms := make([]*goamqp.Message, prefetch)
		for {
			want := claim(left, prefetch)
			if want == 0 {
				return nil
			}
			if err := r.IssueCredit(uint32(want)); err != nil {
				return err
			}
			for i := range want {
				if ms[i], err = r.Receive(ctx, nil); err != nil {
					return err
				}
			}
			if err := sideBySide(want, func(i int) error { return r.AcceptMessage(ctx, ms[i]) }); err != nil {
				return err
			}
		}
	}
	return work, conn.Close, err
}

// sideBySide calls f for 0 to n-1, all at once.
func sideBySide(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
