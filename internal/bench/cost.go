// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"golang.org/x/sync/errgroup"
)

// Cost measures the operations on the broker for a message that is received in time.
type Cost struct {
	Rates      []int         // messages per second
	Span       time.Duration // duration of the sends
	Deadline   time.Duration
	Companions string        // as the setting
	Quiet      time.Duration // wait at the end for doubles; 0: a second
}

// CostResult is the result of Cost.
type CostResult struct {
	Head
	Companions string      `json:"companions"`
	DeadlineMs int64       `json:"deadlineMs"`
	Cases      []*costCase `json:"cases"`
}

// costCase is the result at one rate. Each field counts a message once.
type costCase struct {
	Asked          int     `json:"asked"` // messages per second
	SendsPerSecond float64 `json:"sendsPerSecond"`
	Sent           int     `json:"sent"`
	Met            int     `json:"met"` // completed by consumers
	// dead-lettered: the consumers were too slow
	Missed int `json:"missed"`
	Lost   int `json:"lost"` // neither completed nor dead-lettered
	// completed, dead-lettered or notified more than once, or both completed and dead-lettered
	Twice int `json:"twice"`
	// overdue_broker_operations_total of proxy and monitor, by kind
	Operations map[string]int `json:"operations"`
	// beyond its send, receive and complete, which are the app's
	OperationsPerMessage float64 `json:"operationsPerMessage"`
	// of processor time of proxy and monitor for a message
	SidecarMicros float64 `json:"sidecarMicros"`
}

// Measure measures one rate after the other.
func (plan *Cost) Measure(ctx context.Context, p *Program, progress func(string)) (Result, error) {
	r := &CostResult{Head: p.head(), Companions: plan.Companions,
		DeadlineMs: plan.Deadline.Milliseconds()}
	for _, rate := range plan.Rates {
		progress(fmt.Sprintf("%d messages a second for %v", rate, plan.Span))
		c, err := plan.measure(ctx, p, rate)
		if err != nil {
			return nil, fmt.Errorf("%d messages a second: %w", rate, err)
		}
		r.Cases = append(r.Cases, c)
	}
	return r, nil
}

// costTargets are operations for a message, by messages per second, with companions of kind slot.
var costTargets = map[int]float64{1000: 0.05, 10_000: 0.006}

// Figures are the operations for each message.
func (r *CostResult) Figures() (all []Figure) {
	for _, c := range r.Cases {
		f := Figure{
			Name: fmt.Sprintf("cost.%s.%d", r.Companions, c.Asked), Value: c.OperationsPerMessage,
			Unit: "operations",
			What: fmt.Sprintf("a message that is met costs, %d a second, companions: %s", c.Asked,
				r.Companions),
		}
		if target, ok := costTargets[c.Asked]; ok && r.Companions == "slot" {
			f = f.atMost(target)
		}
		all = append(all, f)
	}
	return all
}

// WriteTable writes a row for each case, and below it its operations by kind.
func (r *CostResult) WriteTable(w io.Writer) error {
	rows := [][]string{{"asked per s", "sent per s", "sent", "met", "missed", "lost", "twice",
		"operations", "sidecar µs"}}
	notes := ""
	for _, c := range r.Cases {
		rows = append(rows, formatCells(c.Asked, fmt.Sprintf("%.0f", c.SendsPerSecond), c.Sent, c.Met, c.Missed, c.Lost,
			c.Twice, fmt.Sprintf("%.3f", c.OperationsPerMessage), fmt.Sprintf("%.1f", c.SidecarMicros)))
		notes += fmt.Sprintf("%d a second: %s\n", c.Asked, listCounts(c.Operations))
	}
	headline := fmt.Sprintf("deadlines %d ms after each send, companions: %s, %s",
		r.DeadlineMs, r.Companions, r.where())
	return writeReport(w, headline, rows, notes, r.Figures())
}

// Verdict returns an error if a message was lost or came twice. Slow consumers are no error.
func (r *CostResult) Verdict() error {
	var errs []error
	for _, c := range r.Cases {
		errs = append(errs, breachesIn(fmt.Sprintf("of %d messages", c.Sent),
			breach{c.Lost, "were lost"}, breach{c.Twice, "came twice or had two notifications"}))
	}
	return errors.Join(errs...)
}

// tally counts the outcomes of the messages.
func (c *costCase) tally(outcomes map[string]outcome) {
	for i := range c.Sent {
		o := outcomes[messageID(i)]
		if o.completed > 0 {
			c.Met++
		}
		if o.dead > 0 {
			c.Missed++
		}
		switch {
		case o.lost():
			c.Lost++
		case o.twice():
			c.Twice++
		}
	}
}

// sendInterval is the interval between sends, each with as many messages as the rate requires.
const sendInterval = 10 * time.Millisecond

// measure measures one rate with its own proxy, monitor and broker.
func (plan *Cost) measure(ctx context.Context, p *Program, rate int) (_ *costCase, err error) {
	sc, err := startBroker(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sc.stop()) }()
	monitor, proxy, err := sc.addBoth(ctx, plan.Companions)
	if err != nil {
		return nil, err
	}
	before, err := sc.samples(ctx)
	if err != nil {
		return nil, err
	}
	c := &costCase{Asked: rate}
	completed, err := plan.sendAndConsume(ctx, proxy, c)
	if err != nil {
		return nil, errors.Join(err, sc.complaint())
	}
	if err := sc.await(ctx, plan.Deadline+completionTimeout,
		func() (bool, error) { return sc.settled(ctx, monitor, 0) }); err != nil {
		return nil, err
	}
	if err := sc.awaitDoubles(ctx, plan.Quiet); err != nil {
		return nil, err
	}
	after, err := sc.samples(ctx)
	if err != nil {
		return nil, err
	}
	c.Operations, c.OperationsPerMessage = operationsBetween(before, after, c.Sent)
	c.SidecarMicros = rounded((after[sampleCPU] - before[sampleCPU]) * 1e6 / float64(c.Sent))
	letters, err := sc.broker.deadLetters(ctx, workQueue)
	if err != nil {
		return nil, err
	}
	c.tally(outcomesOf(completed, monitor.notices(), letters))
	return c, nil
}

// sendAndConsume sends at the rate, while consumers receive. It returns the ids of
// completed messages.
func (plan *Cost) sendAndConsume(ctx context.Context, proxy *child, c *costCase) ([]string, error) {
	var completed collected[string]
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return consume(consuming, proxy.amqp, nil, unlimited,
			func(m *azservicebus.ReceivedMessage) { completed.add(m.MessageID) })
	})
	g.Go(func() error {
		defer stop()
		if err := plan.send(ctx, proxy, c); err != nil {
			return err
		}
		select { // messages that are not received until then have missed their deadlines
		case <-time.After(plan.Deadline):
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	err := g.Wait()
	return completed.all(), err
}

// send sends the messages of each tick as a batch. Several senders take turns, so that a sender
// that waits for its answer does not hold up the next tick.
func (plan *Cost) send(ctx context.Context, proxy *child, c *costCase) error {
	senders, shut, err := openSenders(ctx, proxy.amqp, slices.Repeat([]string{workQueue}, loadSenders), loadSenders)
	if err != nil {
		return err
	}
	defer shut()
	body := makePayload(usualPayload)
	message := func(i int) *azservicebus.Message { return newMessage(i, body, &plan.Deadline) }
	type stretch struct{ first, end int }
	ticks := make(chan stretch)
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	g.Go(func() error {
		defer close(ticks)
		tick := time.NewTicker(sendInterval)
		defer tick.Stop()
		for {
			// As many as the rate requires by now, to make up for late ticks.
			passed := min(time.Since(began), plan.Span)
			if end := int(passed.Seconds() * float64(c.Asked)); end > c.Sent {
				select {
				case ticks <- stretch{c.Sent, end}:
					c.Sent = end
				case <-ctx.Done():
					return nil // a sender returns the reason
				}
			}
			if passed == plan.Span {
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for _, s := range senders {
		g.Go(func() error {
			for t := range ticks {
				if err := sendBatches(ctx, s, t.first, t.end, message); err != nil {
					return fmt.Errorf("send: %w", err)
				}
			}
			return nil
		})
	}
	err = g.Wait()
	c.SendsPerSecond = rounded(float64(c.Sent) / time.Since(began).Seconds())
	return err
}
