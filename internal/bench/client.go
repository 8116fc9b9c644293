// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	// usualPayload is the size of a message that no flag states, in bytes.
	usualPayload = 256
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

// openSenders opens a sender for each of the queues, with their links, on several connections.
func openSenders(ctx context.Context, address string, queues []string,
	connections int) (_ []*azservicebus.Sender, shut func(), err error) {
	clients, shut, err := openClients(address, connections)
	if err != nil {
		return nil, nil, err
	}
	senders := make([]*azservicebus.Sender, len(queues))
	opening, opened := errgroup.WithContext(ctx)
	opening.SetLimit(parallelSenders)
	for i, queue := range queues {
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

// newMessage returns the i-th message.
func newMessage(i int, body []byte, ttl *time.Duration) *azservicebus.Message {
	id := messageID(i)
	return &azservicebus.Message{Body: body, MessageID: &id, TimeToLive: ttl}
}

// makePayload returns a body of n bytes.
func makePayload(n int) []byte { return bytes.Repeat([]byte("x"), n) }

// A load sends messages as fast as possible, in batches, from several senders in parallel.
type load struct {
	senders []*azservicebus.Sender
	shut    func()
	message func(i int) *azservicebus.Message
}

// openLoad opens several senders for one queue, or one for each of several. It returns when all
// links are open.
func openLoad(ctx context.Context, address string, queues []string, message func(i int) *azservicebus.Message) (*load, error) {
	if len(queues) == 1 {
		queues = slices.Repeat(queues, loadSenders)
	}
	senders, shut, err := openSenders(ctx, address, queues, loadSenders)
	if err != nil {
		return nil, err
	}
	return &load{senders, shut, message}, nil
}

// send sends the messages from first up to end, to each queue the same number of them, and returns
// when all are acknowledged.
func (l *load) send(ctx context.Context, first, end int) error {
	part := batchSize
	if len(l.senders) > loadSenders { // a part for each queue
		part = min(part, (end-first+len(l.senders)-1)/len(l.senders))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(loadSenders)
	for at, turn := first, 0; at < end; at, turn = at+part, turn+1 {
		s := l.senders[turn%len(l.senders)]
		g.Go(func() error {
			if err := sendBatches(ctx, s, at, min(at+part, end), l.message); err != nil {
				return fmt.Errorf("send: %w", err)
			}
			return nil
		})
	}
	return g.Wait()
}

// sendBatches sends the messages from first up to end, in as few batches as their size allows.
func sendBatches(ctx context.Context, s *azservicebus.Sender, first, end int, message func(i int) *azservicebus.Message) error {
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

// unlimited is a number of messages that no consumer receives.
const unlimited = math.MaxInt32

// consume receives from the work queue and completes until most messages have been completed, or
// ctx ends, which is not an error. It calls completed with each of them.
func consume(ctx context.Context, address string, from *azservicebus.ReceiverOptions, most int,
	completed func(*azservicebus.ReceivedMessage)) error {
	clients, shut, err := openClients(address, consumers)
	if err != nil {
		return err
	}
	defer shut()
	left := &claims{}
	left.n.Store(int64(most))
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range clients {
		g.Go(func() error {
			receiver, err := c.NewReceiverForQueue(workQueue, from)
			if err != nil {
				return fmt.Errorf("open a receiver: %w", err)
			}
			for asked := left.take(); asked > 0; asked = left.take() {
				done, err := receiveAndComplete(ctx, receiver, asked, completed)
				left.n.Add(int64(asked - done))
				if err != nil && ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// collected is what several goroutines have added.
type collected[T any] struct {
	mu   sync.Mutex
	list []T
}

func (c *collected[T]) add(v T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, v)
}

func (c *collected[T]) all() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// claims share out messages that no consumer has requested yet.
type claims struct{ n atomic.Int64 }

// take returns how many messages a consumer may request: prefetch at most.
func (c *claims) take() int {
	rest := int(c.n.Add(-prefetch))
	short := min(prefetch, max(0, -rest))
	c.n.Add(int64(short))
	return prefetch - short
}

// completeMessage completes a message, and reports whether its lock was still held.
func completeMessage(ctx context.Context, receiver *azservicebus.Receiver, m *azservicebus.ReceivedMessage) (bool, error) {
	err := receiver.CompleteMessage(ctx, m, nil)
	if lost := (*azservicebus.Error)(nil); errors.As(err, &lost) && lost.Code == azservicebus.CodeLockLost {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("complete: %w", err)
	}
	return true, nil
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
			held, err := completeMessage(settling, receiver, m)
			if held {
				count.Add(1)
				completed(m)
			}
			return err
		})
	}
	err = g.Wait()
	return int(count.Load()), err
}
