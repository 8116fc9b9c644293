// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

// The ways of settleCase.
const (
	wayEndpoint = "endpoint"
	wayBroker   = "broker"
)

// missedShare is how many messages are completed for each that nobody receives. Those keep the
// dead-letter queue busy.
const missedShare = 10

// measure measures one case, in a process of its own.
func (plan *Settle) measure(ctx context.Context, p *Program, way string) (_ *settleCase, err error) {
	missed := max(1, plan.Messages/missedShare)
	r := newExpireRun(&Expire{Shortest: plan.Shortest, Longest: plan.Longest, Companions: "auto",
		FromFirstSend: true, Quiet: plan.Quiet}, plan.Messages+missed)
	if err := r.start(ctx, p); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.scene.stop()) }()
	stop := r.drain(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err := plan.play(ctx, r, map[string]string{wayEndpoint: r.scene.broker.amqp, wayBroker: r.scene.broker.broker}[way]); err != nil {
		return nil, errors.Join(err, r.scene.complaint())
	}
	if err := r.await(ctx, time.Now()); err != nil {
		return nil, err
	}
	c := &settleCase{Way: way, Missed: missed}
	c.tally(plan.Messages, outcomesOf(r.completed.all(), r.scene.broker.notices(), nil))
	return c, nil
}

// play sends messages for the consumers, then messages that nobody receives. It completes the
// former around their deadlines.
func (plan *Settle) play(ctx context.Context, r *expireRun, address string) error {
	load, err := openLoad(ctx, r.scene.broker.amqp, r.queues, r.message)
	if err != nil {
		return err
	}
	defer load.shut()
	r.began = time.Now()
	if err := load.send(ctx, 0, plan.Messages); err != nil {
		return err
	}
	clients, shut, err := openClients(address, consumers)
	if err != nil {
		return err
	}
	defer shut()
	left := &claims{}
	left.n.Store(int64(plan.Messages))
	all := make(chan struct{}, consumers)
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range clients {
		g.Go(func() error {
			var completing errgroup.Group
			err := plan.receive(ctx, c, left, func(receiver *azservicebus.Receiver, m *azservicebus.ReceivedMessage) {
				completing.Go(func() error { return plan.complete(ctx, r, receiver, m) })
			})
			all <- struct{}{}
			return errors.Join(err, completing.Wait())
		})
	}
	g.Go(func() error {
		for range clients {
			<-all
		}
		return load.send(ctx, plan.Messages, len(r.ttl))
	})
	return g.Wait()
}

// receive receives until none is left, and keeps the locks.
func (plan *Settle) receive(ctx context.Context, c *azservicebus.Client, left *claims,
	received func(*azservicebus.Receiver, *azservicebus.ReceivedMessage)) error {
	receiver, err := c.NewReceiverForQueue(workQueue, nil)
	if err != nil {
		return fmt.Errorf("open a receiver: %w", err)
	}
	for asked := left.take(); asked > 0; asked = left.take() {
		for asked > 0 {
			ms, err := receiver.ReceiveMessages(ctx, asked, nil)
			if err != nil {
				return fmt.Errorf("receive: %w", err)
			}
			asked -= len(ms)
			for _, m := range ms {
				received(receiver, m)
			}
		}
	}
	return nil
}

// complete waits until about the deadline. A message whose lock was lost has expired.
func (plan *Settle) complete(ctx context.Context, r *expireRun, receiver *azservicebus.Receiver,
	m *azservicebus.ReceivedMessage) error {
	if m.ExpiresAt == nil {
		return fmt.Errorf("message %s states no time that it expires at", m.MessageID)
	}
	at := m.ExpiresAt.Add(time.Duration(rand.Int64N(int64(2*plan.Spread)+1)) - plan.Spread)
	select {
	case <-time.After(time.Until(at)):
	case <-ctx.Done():
		return ctx.Err()
	}
	held, err := completeMessage(ctx, receiver, m)
	if held {
		r.completed.add(m.MessageID)
	}
	return err
}
