// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/lag"
)

// Check measures the cost of expiring a few messages in a long queue.
type Check struct {
	Live    []int         // messages that nobody receives
	Overdue int           // messages among them whose deadlines are missed
	Notice  time.Duration // between the last send and the deadlines, at least
	Quiet   time.Duration // wait at the end for doubles; 0: a second
}

// CheckResult is the result of Check.
type CheckResult struct {
	Head
	Cases []*checkCase `json:"cases"`
}

// checkCase is a queue of one length. It lasts from before the deadlines until every miss has its
// notification and no companion is left.
type checkCase struct {
	Live         int              `json:"live"`
	Overdue      int              `json:"overdue"`
	DeadLettered int              `json:"deadLettered"`
	Notified     int              `json:"notified"`
	Early        int              `json:"early"`
	Twice        int              `json:"twice"`
	Disturbed    int              `json:"disturbed"` // live messages that were lost
	LagMs        lag.Milliseconds `json:"lagMs"`
	Operations   map[string]int   `json:"operations"` // of the monitor, by kind
	Total        int              `json:"total"`      // of these
	MonitorCPUMs float64          `json:"monitorCPUMs"`
	BrokerCPUMs  float64          `json:"brokerCPUMs"`
	// from the deadline until the pass was done, to pollInterval
	PassMs     float64 `json:"passMs"`
	FilledInMs float64 `json:"filledInMs"` // the time to send them
	BrokerMiB  float64 `json:"brokerMiB"`  // resident
	// how often the queue was filled again because the deadlines came too early
	FilledAgainst int `json:"filledAgainst"`
}

// Measure measures one length after the other.
func (plan *Check) Measure(ctx context.Context, p *Program, progress func(string)) (Result, error) {
	r := &CheckResult{Head: p.head()}
	for _, live := range plan.Live {
		progress(fmt.Sprintf("%d overdue among %d", plan.Overdue, live))
		c, err := plan.measure(ctx, p, live)
		if err != nil {
			return nil, fmt.Errorf("%d overdue among %d: %w", plan.Overdue, live, err)
		}
		r.Cases = append(r.Cases, c)
	}
	return r, nil
}

// Figures compare the cost in the longest queue with that in the shortest. A search takes a few
// peeks more in a long one, hence the target of no more than twice as many operations.
func (r *CheckResult) Figures() (all []Figure) {
	for _, c := range r.Cases {
		all = append(all, Figure{
			Name: fmt.Sprintf("check.%d.operations", c.Live), Value: float64(c.Total),
			Unit: "operations",
			What: fmt.Sprintf("a pass over %d live messages, %d overdue", c.Live, c.Overdue),
		}, Figure{
			Name: fmt.Sprintf("check.%d.lag", c.Live), Value: c.LagMs.Max, Unit: "ms",
			What: "… dead-lettered late by, at most",
		})
	}
	if n := len(r.Cases); n > 1 && r.Cases[0].Total > 0 {
		first, last := r.Cases[0], r.Cases[n-1]
		all = append(all, Figure{
			Name: "check.ratio", Value: rounded(float64(last.Total) / float64(first.Total)),
			What: fmt.Sprintf("operations over %d ÷ over %d", last.Live, first.Live),
		}.atMost(2))
	}
	return all
}

// WriteTable writes a row for each case, and below it its operations by kind.
func (r *CheckResult) WriteTable(w io.Writer) error {
	rows := [][]string{{"live", "overdue", "dead-lettered", "notified", "early", "twice",
		"disturbed", "lag max ms", "operations", "monitor ms", "broker ms", "broker MiB"}}
	notes := ""
	for _, c := range r.Cases {
		rows = append(rows, formatCells(c.Live, c.Overdue, c.DeadLettered, c.Notified, c.Early, c.Twice,
			c.Disturbed, c.LagMs.Max, c.Total, c.MonitorCPUMs, c.BrokerCPUMs, c.BrokerMiB))
		notes += fmt.Sprintf("%d live: %s\n", c.Live, listCounts(c.Operations))
	}
	return writeReport(w, r.where(), rows, notes, r.Figures())
}

// Verdict returns an error if a promise was broken.
func (r *CheckResult) Verdict() error {
	var errs []error
	for _, c := range r.Cases {
		errs = append(errs, breachesIn(fmt.Sprintf("of %d messages among %d", c.Overdue, c.Live),
			breach{c.Overdue - c.DeadLettered, "were not dead-lettered"},
			breach{c.DeadLettered - c.Notified, "were dead-lettered without a notification"},
			breach{c.Early, "were dead-lettered before their deadline"},
			breach{c.Twice, "were dead-lettered twice or had two notifications"},
			breach{c.Disturbed, "live ones were lost"},
		))
	}
	return errors.Join(errs...)
}

// tally counts the outcomes of messages with these times to live.
func (c *checkCase) tally(ttl map[string]time.Duration, outcomes map[string]outcome, left int) {
	var lags []time.Duration
	for id, d := range ttl {
		o := outcomes[id]
		if o.dead > 0 {
			c.DeadLettered++
			lags = append(lags, o.letter.DeadLetteredTime.Sub(o.letter.EnqueuedTime.Add(d)))
		}
		if o.notice.count > 0 {
			c.Notified++
		}
		if o.twice() {
			c.Twice++
		}
	}
	c.Disturbed = max(0, c.Live-left)
	c.Early = lag.Early(lags)
	c.LagMs = lag.Of(lags)
}

// fillAttempts is how often a queue is filled again before the machine counts as too slow.
const fillAttempts = 4

// errFilledLate: the deadlines came before the last message was sent.
var errFilledLate = errors.New("the deadlines came before the queue was filled; is the machine too busy?")

// measure measures a queue of one length. It estimates the time to fill it from the first tenth. If
// that was too short, it starts again with twice the time.
func (plan *Check) measure(ctx context.Context, p *Program, live int) (*checkCase, error) {
	for fills := range fillAttempts {
		c, err := plan.once(ctx, p, live, time.Duration(1<<fills))
		if errors.Is(err, errFilledLate) && fills < fillAttempts-1 {
			continue
		}
		if c != nil {
			c.FilledAgainst = fills
		}
		return c, err
	}
	return nil, errFilledLate
}

func (plan *Check) once(ctx context.Context, p *Program, live int, slack time.Duration) (_ *checkCase, err error) {
	sc, err := startBroker(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sc.stop()) }()
	monitor, proxy, err := sc.addBoth(ctx, "auto")
	if err != nil {
		return nil, err
	}
	c := &checkCase{Live: live, Overdue: plan.Overdue}
	began := time.Now()
	ttl, due, err := plan.fill(ctx, sc, proxy, live, slack)
	if err != nil {
		return nil, errors.Join(err, sc.complaint())
	}
	c.FilledInMs = inMilliseconds(time.Since(began))
	// The work that follows filling ends before the deadlines.
	if time.Until(due) < plan.Notice/2 {
		return nil, errFilledLate
	}
	if err := sc.pause(ctx, time.Until(due)-plan.Notice/4); err != nil {
		return nil, err
	}
	before, brokerBefore, err := sc.both(ctx, monitor)
	if err != nil {
		return nil, err
	}
	if err := sc.await(ctx, time.Until(due)+completionTimeout, func() (bool, error) {
		all, err := sc.settled(ctx, monitor, live)
		return all && time.Now().After(due) && monitor.notifiedCount() >= plan.Overdue, err
	}); err != nil {
		return nil, err
	}
	c.PassMs = inMilliseconds(time.Since(due))
	after, brokerAfter, err := sc.both(ctx, monitor)
	if err != nil {
		return nil, err
	}
	if err := sc.awaitDoubles(ctx, plan.Quiet); err != nil {
		return nil, err
	}
	c.Operations, _ = operationsBetween(before, after, 1)
	for _, n := range c.Operations {
		c.Total += n
	}
	c.MonitorCPUMs = rounded((after[sampleCPU] - before[sampleCPU]) * 1000)
	c.BrokerCPUMs = rounded((brokerAfter[sampleCPU] - brokerBefore[sampleCPU]) * 1000)
	c.BrokerMiB = mebibytes(brokerAfter[sampleMemory])
	letters, err := sc.broker.deadLetters(ctx, workQueue)
	if err != nil {
		return nil, err
	}
	queues, err := sc.broker.counts(ctx)
	if err != nil {
		return nil, err
	}
	c.tally(ttl, outcomesOf(nil, monitor.notices(), letters), queues[workQueue].Active)
	return c, nil
}

// both are the metrics of the monitor and of the broker.
func (s *scene) both(ctx context.Context, monitor *child) (m, broker map[string]float64, err error) {
	if m, err = monitor.metrics(ctx); err != nil {
		return nil, nil, err
	}
	broker, err = s.broker.metrics(ctx)
	return m, broker, err
}

// fill sends the live messages straight to the broker, and those that will be overdue through
// the proxy, one after each part of the former. It returns the times to live of the latter and
// when they end.
func (plan *Check) fill(ctx context.Context, sc *scene, proxy *child, live int,
	slack time.Duration) (ttl map[string]time.Duration, due time.Time, err error) {
	senders, shut, err := openSenders(ctx, proxy.amqp, []string{workQueue}, 1)
	if err != nil {
		return nil, due, err
	}
	defer shut()
	body, day := makePayload(usualPayload), 24*time.Hour
	ttl = map[string]time.Duration{}
	load, err := openLoad(ctx, sc.broker.broker, []string{workQueue}, func(int) *azservicebus.Message {
		return &azservicebus.Message{Body: body, TimeToLive: &day}
	})
	if err != nil {
		return nil, due, err
	}
	defer load.shut()
	// The first tenth shows how long the whole takes.
	began, tenth := time.Now(), live/10
	if err := load.send(ctx, 0, tenth); err != nil {
		return nil, due, err
	}
	due = time.Now().Add(plan.Notice + time.Since(began)*15*slack)
	for i := range plan.Overdue {
		left := time.Until(due).Truncate(time.Millisecond)
		if left < time.Millisecond {
			return nil, due, errFilledLate
		}
		if err := senders[0].SendMessage(ctx, newMessage(i, body, &left), nil); err != nil {
			return nil, due, fmt.Errorf("send: %w", err)
		}
		ttl[messageID(i)] = left
		if err := load.send(ctx, tenth+(live-tenth)*i/plan.Overdue,
			tenth+(live-tenth)*(i+1)/plan.Overdue); err != nil {
			return nil, due, err
		}
	}
	return ttl, due, nil
}
