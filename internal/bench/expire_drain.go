// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

// drain completes dead letters as they come, until stop is called. It connects straight to the
// broker, so that Overdue does not observe it.
func (r *expireRun) drain(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	clients, shut, err := openClients(r.scene.broker.broker, consumers)
	if err != nil {
		cancel()
		return func() error { return err }
	}
	for _, c := range clients {
		g.Go(func() error {
			err := drainDeadLetters(ctx, c, r.drained.add)
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

// drainDeadLetters completes dead letters until ctx ends, and calls took with each.
func drainDeadLetters(ctx context.Context, c *azservicebus.Client, took func(*azservicebus.ReceivedMessage)) error {
	receiver, err := c.NewReceiverForQueue(workQueue,
		&azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		return fmt.Errorf("open a receiver of dead letters: %w", err)
	}
	for {
		if _, err := receiveAndComplete(ctx, receiver, prefetch, took); err != nil {
			return err
		}
	}
}

// drainedLetters are taken out of the dead-letter queue.
type drainedLetters struct {
	mu   sync.Mutex
	list []deadLetter
}

// add records a dead letter. The broker stamped the end of the delivery's lock, so it was a dead
// letter by then. The event may show an earlier time.
func (d *drainedLetters) add(m *azservicebus.ReceivedMessage) {
	l := deadLetter{MessageID: m.MessageID}
	if m.LockedUntil != nil {
		l.DeadLetteredTime = m.LockedUntil.Add(-lockDuration)
	}
	if m.EnqueuedTime != nil {
		l.EnqueuedTime = *m.EnqueuedTime
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, l)
}

func (d *drainedLetters) all() []deadLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}
