// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"
)

const (
	shallow     = 1000 // messages in the queue that a deep one is compared with
	fewSessions = 100
	perSession  = 10

	// rounds is how often each operation is done on either queue, in turns, so that both see the same
	// machine.
	rounds = 300
)

// An operation leaves the queue as deep as it was.
type operation struct {
	name string
	do   func(ctx context.Context) error
}

// depth compares what operations cost in a deep queue and in a shallow one.
func (b *bench) depth(ctx context.Context) error {
	if b.skips("depth") {
		return nil
	}
	if err := b.srv.reset(); err != nil {
		return err
	}
	client, err := b.srv.sdk()
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	var ops [2][]operation
	for i, n := range [2]int{shallow, b.deep} {
		name := fmt.Sprint("depth-", i)
		if err := b.fill(name, n, same); err != nil {
			return err
		}
		if ops[i], err = operations(client, name, n); err != nil {
			return err
		}
	}
	if err := compare(ctx, fmt.Sprintf("depth: %d and %d messages", shallow, b.deep), ops); err != nil {
		return err
	}
	for i, n := range [2]int{fewSessions, manySessions} {
		if err := b.fill(sessionQueues[i], perSession*n, inSession(n)); err != nil {
			return err
		}
		ops[i] = sessionOperations(client, sessionQueues[i])
	}
	return compare(ctx, fmt.Sprintf("depth: %d and %d sessions", fewSessions, manySessions), ops)
}

// inSession makes the messages of n sessions.
func inSession(n int) func(i int) *goamqp.Message {
	return func(i int) *goamqp.Message {
		m := plainMessage()
		m.Properties = &goamqp.MessageProperties{GroupID: new(fmt.Sprint("session-", i%n))}
		return m
	}
}

// compare does the same operations on both queues, in turns, and prints what one takes its client.
func compare(ctx context.Context, title string, ops [2][]operation) error {
	fmt.Printf("\n%-58s %10s %10s %10s\n", title, "µs", "µs", "ratio")
	for k, op := range ops[0] {
		var took [2][]time.Duration
		for range rounds {
			for i := range ops {
				began := time.Now()
				if err := ops[i][k].do(ctx); err != nil {
					return fmt.Errorf("%s: %w", op.name, err)
				}
				took[i] = append(took[i], time.Since(began))
			}
		}
		var median [2]float64
		for i := range took {
			slices.Sort(took[i])
			median[i] = float64(took[i][rounds/2].Nanoseconds()) / 1000
		}
		fmt.Printf("%-58s %10.0f %10.0f %10.2f\n", op.name, median[0], median[1], median[1]/median[0])
	}
	return nil
}

// operations are those on a queue in which n messages wait.
func operations(client *azservicebus.Client, queue string, n int) ([]operation, error) {
	s, err := client.NewSender(queue, nil)
	if err != nil {
		return nil, err
	}
	r, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return nil, err
	}
	receive := func(ctx context.Context) (*azservicebus.ReceivedMessage, error) {
		ms, err := r.ReceiveMessages(ctx, 1, nil)
		if err != nil {
			return nil, err
		}
		return ms[0], nil
	}
	var kept *azservicebus.ReceivedMessage
	var scheduled []int64
	middle := int64(n / 2)
	return []operation{
		{"send", func(ctx context.Context) error { return s.SendMessage(ctx, sdkMessage(), nil) }},
		{"receive, complete", func(ctx context.Context) error {
			m, err := receive(ctx)
			if err != nil {
				return err
			}
			return r.CompleteMessage(ctx, m, nil)
		}},
		{"receive, abandon", func(ctx context.Context) error {
			m, err := receive(ctx)
			if err != nil {
				return err
			}
			return r.AbandonMessage(ctx, m, nil) // ten of the same message, and it is dead-lettered
		}},
		{"peek 10 in the middle", func(ctx context.Context) error {
			ms, err := r.PeekMessages(ctx, 10, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &middle})
			if err == nil && len(ms) != 10 {
				err = fmt.Errorf("peeked %d messages, want 10", len(ms))
			}
			return err
		}},
		{"schedule", func(ctx context.Context) error {
			seqs, err := s.ScheduleMessages(ctx, []*azservicebus.Message{sdkMessage()}, time.Now().Add(time.Hour), nil)
			scheduled = append(scheduled, seqs...)
			return err
		}},
		{"cancel", func(ctx context.Context) error {
			last := len(scheduled) - 1
			seq := scheduled[last]
			scheduled = scheduled[:last]
			return s.CancelScheduledMessages(ctx, []int64{seq}, nil)
		}},
		{"renew", func(ctx context.Context) (err error) {
			if kept == nil {
				if kept, err = receive(ctx); err != nil {
					return err
				}
			}
			return r.RenewMessageLock(ctx, kept, nil)
		}},
	}, nil
}

// sessionOperations are those on a session queue.
func sessionOperations(client *azservicebus.Client, queue string) []operation {
	i := 0
	return []operation{
		{"accept a session, receive, complete, close", func(ctx context.Context) error {
			i++
			r, err := client.AcceptSessionForQueue(ctx, queue, fmt.Sprint("session-", i%fewSessions), nil)
			return visit(ctx, r, err)
		}},
		{"accept the next session, receive, complete, close", func(ctx context.Context) error {
			r, err := client.AcceptNextSessionForQueue(ctx, queue, nil)
			return visit(ctx, r, err)
		}},
	}
}

// visit takes one message out of a session.
func visit(ctx context.Context, r *azservicebus.SessionReceiver, err error) error {
	if err != nil {
		return err
	}
	ms, err := r.ReceiveMessages(ctx, 1, nil)
	if err == nil {
		err = r.CompleteMessage(ctx, ms[0], nil)
	}
	return errors.Join(err, r.Close(ctx))
}
