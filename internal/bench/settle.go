// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

// Settle counts false notifications. Consumers complete messages around their deadlines, while
// somebody empties the dead-letter queue, so a message that is gone may have been completed or
// expired.
type Settle struct {
	Messages          int
	Spread            time.Duration // completions are at most this long before or after the deadline
	Shortest, Longest time.Duration // deadlines are spread evenly between these after the first send
	Quiet             time.Duration // wait at the end for late events; 0: a second
}

// SettleResult is the result of Settle.
type SettleResult struct {
	Head
	SpreadMs float64       `json:"spreadMs"`
	Cases    []*settleCase `json:"cases"`
}

// settleCase is the result for one connection of the consumers.
type settleCase struct {
	Way       string `json:"way"`       // endpoint, or broker: without Overdue
	Completed int    `json:"completed"` // by consumers, successfully
	Expired   int    `json:"expired"`   // though a consumer had them
	// of those that were completed
	FalselyNotified int `json:"falselyNotified"`
	// messages that nobody received, and those of them that have a notification
	Missed         int            `json:"missed"`
	MissedNotified int            `json:"missedNotified"`
	Unknown        int            `json:"unknown"`            // what the monitor counts as such, of all
	Evidence       map[string]int `json:"evidence,omitempty"` // of false notifications
}

// Measure measures completions through the endpoint, and then straight to the broker.
func (plan *Settle) Measure(ctx context.Context, p *Program, progress func(string)) (Result, error) {
	r := &SettleResult{Head: p.head(), SpreadMs: inMilliseconds(plan.Spread)}
	for _, way := range []string{wayEndpoint, wayBroker} {
		progress(fmt.Sprintf("%d messages completed at their deadlines, over the %s", plan.Messages, way))
		c, err := plan.measure(ctx, p, way)
		if err != nil {
			return nil, fmt.Errorf("over the %s: %w", way, err)
		}
		r.Cases = append(r.Cases, c)
	}
	return r, nil
}

// Figures are the false notifications. The endpoint has a target, since Overdue observes
// completions there.
func (r *SettleResult) Figures() (all []Figure) {
	for _, c := range r.Cases {
		f := Figure{
			Name: "settle." + c.Way, Value: float64(c.FalselyNotified), Unit: "messages",
			What: fmt.Sprintf("notified falsely, of %d completed within %v ms of their deadlines, over the %s",
				c.Completed, r.SpreadMs, c.Way),
		}
		if c.Way == wayEndpoint {
			f = f.atMost(0)
		}
		all = append(all, f)
	}
	return all
}

// WriteTable writes a row for each case.
func (r *SettleResult) WriteTable(w io.Writer) error {
	rows := [][]string{{"over the", "completed", "expired", "notified falsely", "missed", "notified", "unknown"}}
	notes := ""
	for _, c := range r.Cases {
		rows = append(rows, formatCells(c.Way, c.Completed, c.Expired, c.FalselyNotified, c.Missed, c.MissedNotified, c.Unknown))
		if c.FalselyNotified > 0 {
			notes += fmt.Sprintf("%s: false notifications by evidence: %s\n", c.Way, listCounts(c.Evidence))
		}
	}
	headline := fmt.Sprintf("completed up to %v ms before and after the deadline, %s", r.SpreadMs, r.where())
	return writeReport(w, headline, rows, notes, r.Figures())
}

// Verdict returns an error if a promise was broken. Without the endpoint, Overdue may not
// distinguish a completion from an expiry.
func (r *SettleResult) Verdict() error {
	var errs []error
	for _, c := range r.Cases {
		unnotified := max(c.Missed-c.MissedNotified-c.Unknown, 0)
		breaches := []breach{{unnotified, "missed messages had no notification, and were not counted as unknown"}}
		if c.Way == wayEndpoint {
			breaches = append(breaches, breach{c.FalselyNotified,
				"messages had a notification though they were completed"})
		}
		errs = append(errs, breachesIn("over the "+c.Way+":", breaches...))
	}
	return errors.Join(errs...)
}

// tally counts notifications of the first messages, which consumers held, and of the missed ones
// after them.
func (c *settleCase) tally(received int, outcomes map[string]outcome) {
	c.Evidence = map[string]int{}
	for i := range received + c.Missed {
		o := outcomes[messageID(i)]
		notified := o.notice.count > 0
		switch {
		case i >= received && notified:
			c.MissedNotified++
		case i >= received:
		case o.completed == 0:
			c.Expired++
		default:
			c.Completed++
			if notified {
				c.FalselyNotified++
				c.Evidence[o.notice.evidence]++
			}
		}
	}
}

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
	before, err := r.scene.broker.metrics(ctx)
	if err != nil {
		return nil, err
	}
	stop := r.drain(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err := plan.play(ctx, r, map[string]string{wayEndpoint: r.scene.broker.amqp, wayBroker: r.scene.broker.broker}[way]); err != nil {
		return nil, errors.Join(err, r.scene.complaint())
	}
	if err := r.await(ctx, time.Now()); err != nil {
		return nil, err
	}
	after, err := r.scene.broker.metrics(ctx)
	if err != nil {
		return nil, err
	}
	c := &settleCase{Way: way, Missed: missed, Unknown: unknownBetween(before, after)}
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
