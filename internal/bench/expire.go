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

	"overdue/internal/lag"
)

// Expire measures the lag of missed deadlines, and its cost.
type Expire struct {
	Outstanding       []int         // deadlines of each case
	Mixed             bool          // each case once more with consumers
	Drained           bool          // each case once more while somebody empties the dead-letter queue
	Queues            int           // that the messages are spread over; nobody receives from several
	Load              int           // processes that each keep a processor busy meanwhile
	Shortest, Longest time.Duration // deadlines are spread evenly between these after each send
	FromFirstSend     bool          // after the first send, not after each
	Payload           int           // bytes
	Companions        string        // as the setting
	Quiet             time.Duration // wait at the end for doubles; 0: a second
}

// An expireVariant says which receivers run during a case.
type expireVariant string

const (
	unreceived expireVariant = "nobody receives"
	drained    expireVariant = "the dead-letter queue is drained"
	mixed      expireVariant = "with consumers"
)

// Measure measures one case after the other. It returns no result if no case was measured.
func (plan *Expire) Measure(ctx context.Context, p *Program, progress func(string)) (_ Result, err error) {
	stop, err := startSpinners(p, plan.Load)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	variants := []expireVariant{unreceived}
	if plan.Drained && plan.Queues <= 1 {
		variants = append(variants, drained)
	}
	if plan.Mixed && plan.Queues <= 1 {
		variants = append(variants, mixed)
	}
	r := newExpireResult(p, plan)
	for _, v := range variants {
		for _, n := range plan.Outstanding {
			progress(fmt.Sprintf("%d deadlines, the last in %v, %s", n, plan.Longest, v))
			c, err := measureExpiry(ctx, p, plan, n, v)
			if err != nil && len(r.Cases) == 0 {
				return nil, fmt.Errorf("%d outstanding deadlines: %w", n, err)
			}
			if err != nil {
				return r, fmt.Errorf("%d outstanding deadlines: %w", n, err)
			}
			r.Cases = append(r.Cases, c)
		}
	}
	return r, nil
}

// An expireRun is one running case.
type expireRun struct {
	plan   *Expire
	scene  *scene
	queues []string
	drawn  []time.Duration // when each message is due, after its send or the first send
	body   []byte
	began  time.Time       // of the first send
	last   time.Time       // when all messages are due
	ttl    []time.Duration // of each message; its sender's until all are sent
	peak   float64         // resident memory of Overdue, in bytes

	completed collected[string] // by consumers, by message-id
	drained   collected[deadLetter]
}

// measureExpiry measures one case, in a process of its own.
func measureExpiry(ctx context.Context, p *Program, plan *Expire, n int, variant expireVariant) (_ *expireCase, err error) {
	r := newExpireRun(plan, n)
	if err := r.start(ctx, p); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.scene.stop()) }()
	return r.measure(ctx, variant)
}

func newExpireRun(plan *Expire, n int) *expireRun {
	r := &expireRun{
		plan:   plan,
		queues: []string{workQueue},
		drawn:  plan.deadlines(n),
		ttl:    make([]time.Duration, n),
		body:   makePayload(plan.Payload),
	}
	for q := 1; q < plan.Queues; q++ {
		r.queues = append(r.queues, fmt.Sprintf("%s-%d", workQueue, q))
	}
	return r
}

// start starts Overdue.
func (r *expireRun) start(ctx context.Context, p *Program) (err error) {
	r.scene, err = startAll(ctx, p, r.queues, r.plan.Companions)
	return err
}

// deadlines returns the times to live of n messages, uniform over the range and the same in every
// run.
func (plan *Expire) deadlines(n int) []time.Duration {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	all := make([]time.Duration, n)
	for i := range all {
		// as on the wire
		all[i] = (plan.Shortest + time.Duration(random.Int64N(int64(plan.Longest-plan.Shortest)+1))).Truncate(time.Millisecond)
	}
	return all
}

// measure sends, waits until all deadlines have passed and have outcomes, and counts these.
func (r *expireRun) measure(ctx context.Context, variant expireVariant) (_ *expireCase, err error) {
	before, err := r.scene.broker.metrics(ctx)
	if err != nil {
		return nil, err
	}
	c := &expireCase{Outstanding: len(r.ttl), Drained: variant == drained, Queues: len(r.queues), Load: r.plan.Load}
	if variant == mixed {
		c.Consumers = consumers
	}
	if c.Drained {
		stop := r.drain(ctx)
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := r.sendAndConsume(ctx, c); err != nil {
		return nil, errors.Join(err, r.scene.complaint())
	}
	lateTimers := watchTimers()
	err = r.await(ctx, r.last)
	c.TimerLateMs = lateTimers()
	if err != nil {
		return nil, err
	}
	after, err := r.scene.broker.metrics(ctx)
	if err != nil {
		return nil, err
	}
	c.account(before, after)
	c.MemoryMiB.Idle, c.MemoryMiB.Peak = mebibytes(before[sampleMemory]),
		mebibytes(max(r.peak, after[sampleMemory]))
	letters := r.drained.all()
	for _, queue := range r.queues {
		more, err := r.scene.broker.deadLetters(ctx, queue)
		if err != nil {
			return nil, err
		}
		letters = append(letters, more...)
	}
	c.tally(r.ttl, outcomesOf(r.completed.all(), r.scene.broker.notices(), letters))
	return c, nil
}

// sendAndConsume sends the messages. In the mixed case, consumers work from the first send on,
// until they have nine tenths of the messages or the last deadline has passed.
func (r *expireRun) sendAndConsume(ctx context.Context, c *expireCase) error {
	load, err := openLoad(ctx, r.scene.broker.amqp, r.queues, r.message)
	if err != nil {
		return err
	}
	defer load.shut()
	g, ctx := errgroup.WithContext(ctx)
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	r.began = time.Now()
	g.Go(func() error {
		if err := load.send(ctx, 0, len(r.ttl)); err != nil {
			return err
		}
		took := time.Since(r.began)
		r.last = time.Now().Add(r.plan.Longest)
		c.LoadMs = inMilliseconds(took)
		c.SendsPerSecond = float64(len(r.ttl)) / took.Seconds()
		c.LoadedBeforeFirstDue = took < r.plan.Shortest
		time.AfterFunc(r.plan.Longest, stop)
		samples, err := r.scene.broker.metrics(ctx)
		c.MemoryMiB.Loaded = mebibytes(samples[sampleMemory])
		return err
	})
	if c.Consumers > 0 {
		g.Go(func() error {
			return consume(consuming, r.scene.broker.amqp, nil, len(r.ttl)*9/10,
				func(m *azservicebus.ReceivedMessage) { r.completed.add(m.MessageID) })
		})
	}
	return g.Wait()
}

// message makes a message when it is sent.
func (r *expireRun) message(i int) *azservicebus.Message {
	r.ttl[i] = r.drawn[i]
	if r.plan.FromFirstSend {
		r.ttl[i] = max(time.Millisecond, (r.drawn[i] - time.Since(r.began)).Truncate(time.Millisecond))
	}
	return newMessage(i, r.body, &r.ttl[i])
}

// await waits until every message has been consumed or is a dead letter with its notification, and
// no companion is left. It does not wait for long after last, when all are due. It asks for no
// counts before: those of a thousand queues take long.
func (r *expireRun) await(ctx context.Context, last time.Time) error {
	overdue := r.scene.broker
	if err := r.scene.await(ctx, time.Until(last)+completionTimeout, func() (bool, error) {
		resident, err := overdue.resident(ctx)
		r.peak = max(r.peak, resident)
		if err != nil || time.Now().Before(last) {
			return false, err
		}
		return r.scene.settled(ctx, overdue, 0)
	}); err != nil {
		return err
	}
	return r.scene.awaitDoubles(ctx, r.plan.Quiet)
}

// account calculates the cost of the case from the metrics before and after it.
func (c *expireCase) account(before, after map[string]float64) {
	c.Operations, c.OperationsPerMessage = operationsBetween(before, after, c.Outstanding)
	c.Unknown = unknownBetween(before, after)
	c.CPUMicrosPerMessage = rounded((after[sampleCPU] - before[sampleCPU]) * 1e6 / float64(c.Outstanding))
}

// tally counts the outcomes of messages by their times to live and the broker's timestamps on dead
// letters.
func (c *expireCase) tally(ttl []time.Duration, outcomes map[string]outcome) {
	c.Evidence = map[string]int{}
	var lags, notifiedLags, untilEvent []time.Duration
	for i := range ttl {
		o := outcomes[messageID(i)]
		due, moved := o.letter.EnqueuedTime.Add(ttl[i]), o.letter.DeadLetteredTime
		if logged := o.notice.moved; c.Drained && !logged.IsZero() && logged.Before(moved) {
			moved = logged // the consumer that drains the queue has received it later
		}
		if o.completed > 0 {
			c.Consumed++
		}
		if o.dead > 0 {
			c.DeadLettered++
			lags = append(lags, moved.Sub(due))
		}
		if o.notice.count > 0 {
			c.Notified++
		}
		if o.dead > 0 && o.notice.count > 0 {
			notifiedLags = append(notifiedLags, o.notice.at.Sub(due))
			untilEvent = append(untilEvent, o.notice.at.Sub(moved))
		}
		if o.notice.evidence != "" {
			c.Evidence[o.notice.evidence]++
		}
		switch {
		case o.lost():
			c.Lost++
		case o.twice():
			c.Twice++
		case o.dead > 0 && o.notice.count == 0:
			c.Unnotified++
		case o.dead == 0 && o.notice.count > 0:
			c.FalselyNotified++
		}
	}
	c.Early = lag.Early(lags)
	c.LagMs, c.NotifiedLagMs, c.UntilEventMs = lag.Of(lags), lag.Of(notifiedLags), lag.Of(untilEvent)
}

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
