// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

// drain takes dead letters away as they come, until stop is called. It connects to the broker
// itself, so that Overdue sees nothing of it.
func (r *expireRun) drain(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	clients, shut, err := openClients(r.child.broker, consumers)
	if err != nil {
		cancel()
		return func() error { return err }
	}
	for _, c := range clients {
		g.Go(func() error {
			err := drainDeadLetters(ctx, c, r.took)
			if ctx.Err() != nil {
				return nil // stopped
			}
			return err
		})
	}
	return func() error {
		cancel()
		err := g.Wait()
		shut()
		return err
	}
}

// drainDeadLetters calls took with each dead letter that it has taken, until ctx ends.
func drainDeadLetters(ctx context.Context, c *azservicebus.Client,
	took func(*azservicebus.ReceivedMessage)) error {
	receiver, err := c.NewReceiverForQueue(workQueue, &azservicebus.ReceiverOptions{
		SubQueue: azservicebus.SubQueueDeadLetter, ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	if err != nil {
		return fmt.Errorf("open a receiver of dead letters: %w", err)
	}
	for {
		letters, err := receiver.ReceiveMessages(ctx, prefetch, nil)
		if err != nil {
			return fmt.Errorf("receive dead letters: %w", err)
		}
		for _, m := range letters {
			took(m)
		}
	}
}

// took takes note of a dead letter. Its time is that of its arrival here, so that the lag is
// what a consumer of dead letters sees.
func (r *expireRun) took(m *azservicebus.ReceivedMessage) {
	l := deadLetter{MessageID: m.MessageID, DeadLetteredTime: time.Now()}
	if m.SequenceNumber != nil {
		l.SequenceNumber = *m.SequenceNumber
	}
	if m.EnqueuedTime != nil {
		l.EnqueuedTime = *m.EnqueuedTime
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drained = append(r.drained, l)
}

func (r *expireRun) takenLetters() []deadLetter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.drained)
}
