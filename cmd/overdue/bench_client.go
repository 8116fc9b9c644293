// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

const (
	benchQueue     = "deadlines"
	benchSenders   = 8
	benchBatch     = 100 // messages
	benchConsumers = 4
	benchPrefetch  = 100 // messages that a consumer has in hand
)

// benchClients are connections to the AMQP door, as apps have them.
func benchClients(child *benchChild, n int) (_ []*azservicebus.Client, shut func(), err error) {
	var all []*azservicebus.Client
	shut = func() {
		for _, c := range all {
			ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
			_ = c.Close(ctx) // the child goes next
			stop()
		}
	}
	for range n {
		c, err := azservicebus.NewClientFromConnectionString(connectionString(child.door, anyKeyName, anyKey), nil)
		if err != nil {
			shut()
			return nil, nil, fmt.Errorf("make a client: %w", err)
		}
		all = append(all, c)
	}
	return all, shut, nil
}

// benchID is the message-id of the i-th message.
func benchID(i int) string { return fmt.Sprintf("message-%d", i) }

// load sends one message for each time to live, in batches, from several senders side by side. ready is called when
// all links are open and the first message is about to be sent. It returns when every message is acknowledged.
func (r *benchRun) load(ctx context.Context, ready func()) error {
	clients, shut, err := benchClients(r.child, benchSenders)
	if err != nil {
		return err
	}
	defer shut()
	senders := make([]*azservicebus.Sender, len(clients))
	opening, opened := errgroup.WithContext(ctx)
	for i, c := range clients {
		opening.Go(func() error {
			s, err := c.NewSender(benchQueue, nil)
			if err == nil {
				_, err = s.NewMessageBatch(opened, nil) // opens the link
			}
			if err != nil {
				return fmt.Errorf("open a sender: %w", err)
			}
			senders[i] = s
			return nil
		})
	}
	if err := opening.Wait(); err != nil {
		return err
	}
	ready()
	body := bytes.Repeat([]byte("x"), r.plan.payload)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range senders {
		g.Go(func() error {
			for {
				first := int(next.Add(benchBatch)) - benchBatch
				if first >= len(r.ttl) {
					return nil
				}
				if err := r.sendFrom(ctx, s, first, min(first+benchBatch, len(r.ttl)), body); err != nil {
					return fmt.Errorf("send: %w", err)
				}
			}
		})
	}
	return g.Wait()
}

// sendFrom sends the messages from first up to end, in as few batches as their size allows.
func (r *benchRun) sendFrom(ctx context.Context, s *azservicebus.Sender, first, end int, body []byte) error {
	for i := first; i < end; {
		batch, err := s.NewMessageBatch(ctx, nil)
		if err != nil {
			return err
		}
		for ; i < end; i++ {
			err := batch.AddMessage(&azservicebus.Message{Body: body, MessageID: to.Ptr(benchID(i)), TimeToLive: &r.ttl[i]}, nil)
			if errors.Is(err, azservicebus.ErrMessageTooLarge) && batch.NumMessages() > 0 {
				break
			}
			if err != nil {
				return err
			}
		}
		if err := s.SendMessageBatch(ctx, batch, nil); err != nil {
			return err
		}
	}
	return nil
}

// consume receives and completes until so many messages have been completed or ctx ends, which is no error.
func (r *benchRun) consume(ctx context.Context, most int) error {
	clients, shut, err := benchClients(r.child, benchConsumers)
	if err != nil {
		return err
	}
	defer shut()
	var left atomic.Int64 // messages that no consumer has asked for
	left.Store(int64(most))
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range clients {
		g.Go(func() error {
			receiver, err := c.NewReceiverForQueue(benchQueue, nil)
			if err != nil {
				return fmt.Errorf("open a receiver: %w", err)
			}
			for {
				asked := benchPrefetch
				if rest := int(left.Add(-benchPrefetch)); rest < 0 {
					asked = max(0, asked+rest)
					left.Add(int64(benchPrefetch - asked))
				}
				if asked == 0 {
					return nil
				}
				done, err := r.receive(ctx, receiver, asked)
				left.Add(int64(asked - done))
				if err != nil && ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// receive takes up to n messages and completes them side by side. It returns how many it completed: one whose lock
// was lost meanwhile comes again, or is overdue.
func (r *benchRun) receive(ctx context.Context, receiver *azservicebus.Receiver, n int) (done int, err error) {
	ms, err := receiver.ReceiveMessages(ctx, n, nil)
	if err != nil {
		return 0, fmt.Errorf("receive: %w", err)
	}
	var completed atomic.Int64
	var g errgroup.Group
	for _, m := range ms {
		g.Go(func() error {
			err := receiver.CompleteMessage(ctx, m, nil)
			if lost := (*azservicebus.Error)(nil); errors.As(err, &lost) && lost.Code == azservicebus.CodeLockLost {
				return nil
			}
			if err != nil {
				return fmt.Errorf("complete: %w", err)
			}
			completed.Add(1)
			r.consumed(m.MessageID)
			return nil
		})
	}
	err = g.Wait()
	return int(completed.Load()), err
}
