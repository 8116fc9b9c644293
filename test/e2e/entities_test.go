// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"slices"
	"time"

	"overdue/internal/broker"
	"overdue/internal/testing/bubble"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// withTopic makes a topic with these subscriptions, all of which dead-letter what expires, and
// has it monitored.
func withTopic(subscriptions ...broker.SubscriptionSetup) func(*scene, *broker.Config) {
	return func(s *scene, c *broker.Config) {
		c.Topics = bubble.Topics(subscriptions...)
		s.monitored[topic] = true
	}
}

// place is where copies of the messages are received.
type place struct {
	path, subscription string
	sessions           bool
}

// receiver is what the two kinds of receivers of the SDK have in common.
type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	ReceiveDeferredMessages(context.Context, []int64, *azservicebus.ReceiveDeferredMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.AbandonMessageOptions) error
	DeferMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeferMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
	Close(context.Context) error
}

// receiveNothing asks for a message and wants none.
func receiveNothing(s *scene, r *azservicebus.Receiver) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	if ms, err := r.ReceiveMessages(ctx, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("receive = %d messages, %v; want none", len(ms), err)
	}
}

// notifiedOnceEach wants n events, each about another message.
func notifiedOnceEach(s *scene, n int) {
	s.Helper()
	var numbers []int64
	for _, e := range s.Hook.Events() {
		numbers = append(numbers, e.Data.SequenceNumber)
	}
	slices.Sort(numbers)
	if distinct := slices.Compact(slices.Clone(numbers)); len(numbers) != n || len(distinct) != n {
		s.Errorf("notified of messages %v, want each of %d once", numbers, n)
	}
	s.Settled(5 * time.Second)
}

func plain(*scene, *broker.Config) {}

func withSessions(_ *scene, c *broker.Config) { c.Queues[0].RequiresSession = true }
