// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// drain completes dead letters as they come, until stop is called. It connects straight to the
// broker, so that Overdue does not observe it.
func (r *expireRun) drain(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	from := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	go func() { ended <- consume(ctx, r.scene.broker.broker, from, unlimited, r.keepDrained) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// keepDrained records a dead letter. The broker stamped the end of the delivery's lock, so it was a
// dead letter by then. The event may show an earlier time.
func (r *expireRun) keepDrained(m *azservicebus.ReceivedMessage) {
	l := deadLetter{MessageID: m.MessageID}
	if m.LockedUntil != nil {
		l.DeadLetteredTime = m.LockedUntil.Add(-lockDuration)
	}
	if m.EnqueuedTime != nil {
		l.EnqueuedTime = *m.EnqueuedTime
	}
	r.drained.add(l)
}
