// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

const (
	workQueue   = "deadlines"
	loadSenders = 8
	batchSize   = 100 // messages
	consumers   = 4
	prefetch    = 100 // messages that a consumer holds
	// settleTimeout bounds the time in which a client settles its messages, or closes its connections,
	// at the end.
	settleTimeout = 5 * time.Second
)

// connectionString returns the connection string of a namespace at an address that accepts any key.
func connectionString(address string) string {
	return "Endpoint=sb://" + address + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
}

// openClients opens connections to an address, as apps do.
func openClients(address string, n int) (_ []*azservicebus.Client, shut func(), err error) {
	var all []*azservicebus.Client
	shut = func() {
		ctx, stop := context.WithTimeout(context.Background(), settleTimeout)
		defer stop()
		var wg sync.WaitGroup
		for _, c := range all {
			wg.Go(func() { _ = c.Close(ctx) }) // the child stops next
		}
		wg.Wait()
	}
	for range n {
		c, err := azservicebus.NewClientFromConnectionString(connectionString(address), nil)
		if err != nil {
			shut()
			return nil, nil, fmt.Errorf("make a client: %w", err)
		}
		all = append(all, c)
	}
	return all, shut, nil
}

// openSDKSenders opens n senders to a queue, with their links, on several connections.
func openSDKSenders(ctx context.Context, address, queue string, n,
	connections int) (_ []*azservicebus.Sender, shut func(), err error) {
	clients, shut, err := openClients(address, connections)
	if err != nil {
		return nil, nil, err
	}
	senders := make([]*azservicebus.Sender, n)
	opening, opened := errgroup.WithContext(ctx)
	for i := range senders {
		opening.Go(func() error {
			s, err := clients[i%connections].NewSender(queue, nil)
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
		shut()
		return nil, nil, err
	}
	return senders, shut, nil
}

// messageID returns the message-id of the i-th message.
func messageID(i int) string { return fmt.Sprintf("message-%d", i) }

// sendAcross sends messages to several queues, to each the same number of them and from a sender of its
// own. ready is called when all links are open.
func sendAcross(ctx context.Context, address string, queues []string, n int, ready func(),
	message func(i int) *azservicebus.Message) error {
	clients, shut, err := openClients(address, loadSenders)
	if err != nil {
		return err
	}
	defer shut()
	senders := make([]*azservicebus.Sender, len(queues))
	opening, opened := errgroup.WithContext(ctx)
	opening.SetLimit(loadSenders)
	for q, name := range queues {
		opening.Go(func() error {
			s, err := clients[q%loadSenders].NewSender(name, nil)
			if err == nil {
				_, err = s.NewMessageBatch(opened, nil) // opens the link
			}
			if err != nil {
				return fmt.Errorf("open a sender: %w", err)
			}
			senders[q] = s
			return nil
		})
	}
	if err := opening.Wait(); err != nil {
		return err
	}
	ready()
	sending, ctx := errgroup.WithContext(ctx)
	sending.SetLimit(loadSenders)
	for q, s := range senders {
		sending.Go(func() error {
			if err := sendBatches(ctx, s, n*q/len(queues), n*(q+1)/len(queues), message); err != nil {
				return fmt.Errorf("send: %w", err)
			}
			return nil
		})
	}
	return sending.Wait()
}

// A load sends messages as fast as possible, in batches, from several senders in parallel.
type load struct {
	senders []*azservicebus.Sender
	shut    func()
	message func(i int) *azservicebus.Message
}

// openLoad returns when all links are open.
func openLoad(ctx context.Context, address, queue string, message func(i int) *azservicebus.Message) (*load, error) {
	senders, shut, err := openSDKSenders(ctx, address, queue, loadSenders, loadSenders)
	if err != nil {
		return nil, err
	}
	return &load{senders, shut, message}, nil
}

// send sends the messages from first up to end, and returns when all are acknowledged.
func (l *load) send(ctx context.Context, first, end int) error {
	var next atomic.Int64
	next.Store(int64(first))
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range l.senders {
		g.Go(func() error {
			for {
				at := int(next.Add(batchSize)) - batchSize
				if at >= end {
					return nil
				}
				if err := sendBatches(ctx, s, at, min(at+batchSize, end), l.message); err != nil {
					return fmt.Errorf("send: %w", err)
				}
			}
		})
	}
	return g.Wait()
}

// sendBatches sends the messages from first up to end, in as few batches as their size allows.
func sendBatches(ctx context.Context, s *azservicebus.Sender, first, end int,
	message func(i int) *azservicebus.Message) error {
	for i := first; i < end; {
		batch, err := s.NewMessageBatch(ctx, nil)
		if err != nil {
			return err
		}
		for ; i < end; i++ {
			err := batch.AddMessage(message(i), nil)
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

// consume receives and completes until most messages have been completed, or ctx ends, which is not
// an error. It calls completed with each of them.
func consume(ctx context.Context, address, queue string, most int,
	completed func(*azservicebus.ReceivedMessage)) error {
	clients, shut, err := openClients(address, consumers)
	if err != nil {
		return err
	}
	defer shut()
	var left atomic.Int64 // messages that no consumer has requested
	left.Store(int64(most))
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range clients {
		g.Go(func() error {
			receiver, err := c.NewReceiverForQueue(queue, nil)
			if err != nil {
				return fmt.Errorf("open a receiver: %w", err)
			}
			for {
				asked := prefetch
				if rest := int(left.Add(-prefetch)); rest < 0 {
					asked = max(0, asked+rest)
					left.Add(int64(prefetch - asked))
				}
				if asked == 0 {
					return nil
				}
				done, err := receiveAndComplete(ctx, receiver, asked, completed)
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

// receiveAndComplete receives up to n messages and completes them in parallel. It returns how many
// it completed: a message whose lock was lost comes again, or is overdue.
func receiveAndComplete(ctx context.Context, receiver *azservicebus.Receiver, n int,
	completed func(*azservicebus.ReceivedMessage)) (done int, err error) {
	ms, err := receiver.ReceiveMessages(ctx, n, nil)
	if err != nil {
		return 0, fmt.Errorf("receive: %w", err)
	}
	// A completion that has begun outlives ctx: without its answer, a completed message could not be
	// distinguished from a lost one.
	settling, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer stop()
	var count atomic.Int64
	var g errgroup.Group
	for _, m := range ms {
		g.Go(func() error {
			err := receiver.CompleteMessage(settling, m, nil)
			if lost := (*azservicebus.Error)(nil); errors.As(err, &lost) &&
				lost.Code == azservicebus.CodeLockLost {
				return nil
			}
			if err != nil {
				return fmt.Errorf("complete: %w", err)
			}
			count.Add(1)
			completed(m)
			return nil
		})
	}
	err = g.Wait()
	return int(count.Load()), err
}
