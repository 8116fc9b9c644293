// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"overdue/internal/amqp"
	"overdue/test/bench/pump"
)

// prefetch is how many messages a receiver asks for at a time, and settles side by side.
const prefetch = 100

// fill puts the messages of a round into a queue, past the endpoint.
func (b *bench) fill(address, queue string) (int, error) { return fill(address, queue, b.messages) }

// fillMore is for clients that cost next to nothing.
func (b *bench) fillMore(address, queue string) (int, error) {
	return fill(address, queue, 5*b.messages)
}

func fill(address, queue string, n int) (int, error) {
	p, err := pump.New(address, queue, amqp.RoleSender)
	if err != nil {
		return 0, err
	}
	batches := (n + perBatch - 1) / perBatch
	err = p.Send(amqp.BatchMessageFormat, batch, batches)
	return batches * perBatch, errors.Join(err, p.Close())
}

// sdkReceivers has n receivers of the Go SDK, each on a connection of its own.
func (b *bench) sdkReceivers(n int) opener {
	return func(ctx context.Context, address, queue string) (*clients, error) {
		c := &clients{}
		var unasked atomic.Int64 // messages that nobody has asked for
		unasked.Store(int64(b.messages))
		for range n {
			client, err := dialSDK(address)
			if err != nil {
				return c, err
			}
			c.ends = append(c.ends, func() error { return client.Close(context.WithoutCancel(ctx)) })
			r, err := client.NewReceiverForQueue(queue, nil)
			if err != nil {
				return c, err
			}
			// So that the link is open when the measurement begins.
			if _, err := r.PeekMessages(ctx, 1, nil); err != nil {
				return c, err
			}
			c.workers = append(c.workers, func() (int, error) {
				asked := prefetch
				if rest := int(unasked.Add(-prefetch)); rest < 0 {
					asked = max(asked+rest, 0)
				}
				for left := asked; left > 0; {
					ms, err := r.ReceiveMessages(ctx, left, nil)
					if err != nil {
						return 0, err
					}
					left -= len(ms)
					errs := make([]error, len(ms))
					var wg sync.WaitGroup
					for i, m := range ms {
						wg.Go(func() { errs[i] = r.CompleteMessage(ctx, m, nil) })
					}
					wg.Wait()
					if err := errors.Join(errs...); err != nil {
						return 0, err
					}
				}
				return asked, nil
			})
		}
		return c, nil
	}
}

// rawReceiver takes all that there is, over one link.
func (b *bench) rawReceiver(_ context.Context, address, queue string) (*clients, error) {
	c := &clients{}
	c.workers = append(c.workers, func() (int, error) {
		p, err := pump.New(address, queue, amqp.RoleReceiver)
		if err != nil {
			return 0, err
		}
		return 5 * b.messages, errors.Join(p.Receive(5*b.messages), p.Close())
	})
	return c, nil
}
