// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"overdue/internal/escape"
	"overdue/internal/lag"
	"overdue/internal/monitorqueue"
	"overdue/internal/plural"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
	"overdue/monitor"
	"overdue/scheduler"
)

const (
	// lagFirstTTL is the time to live of the first message. All links are open by then.
	lagFirstTTL = 2 * time.Second
	// lagIdle deletes the queues if this process does not. Service Bus accepts no shorter time.
	lagIdle = "PT5M"
)

// Bounds of [LagOptions].
const (
	maxLagMessages = 200
	maxLagSpread   = 10 * time.Minute
	maxLagWait     = 30 * time.Minute
)

// LagConfig says where to measure. All fields are required.
type LagConfig struct {
	Host  string // of the namespace
	Links *link.Namespace
	Admin *entities.Admin
	// Administration makes the client that creates and deletes queues. It is called once Admin has
	// answered.
	Administration func() (*admin.Client, error)
}

// LagOptions say what to measure.
type LagOptions struct {
	Messages int           // per queue
	Spread   time.Duration // from the first deadline to the last
	Wait     time.Duration // after the last deadline, for the native queue
	// Progress is called with lines of text about what is being done. nil: nobody wants to know.
	Progress func(line string)
}

// Check returns an error that names the flag of an option that is out of bounds.
func (o *LagOptions) Check() error {
	switch {
	case o.Messages < 1 || o.Messages > maxLagMessages:
		return fmt.Errorf("--messages is %d; it must be between 1 and %d", o.Messages, maxLagMessages)
	case o.Spread < 0 || o.Spread > maxLagSpread:
		return fmt.Errorf("--over is %s; it must be between 0s and %s", o.Spread, span(maxLagSpread))
	case o.Wait < 0 || o.Wait > maxLagWait:
		return fmt.Errorf("--wait is %s; it must be between 0s and %s", o.Wait, span(maxLagWait))
	}
	return nil
}

// lagQueues are the queues of one measurement.
type lagQueues struct{ eager, native, monitor string }

func newLagQueues() lagQueues {
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	prefix := "overdue-lag-" + hex.EncodeToString(id[:])
	return lagQueues{prefix + "-eager", prefix + "-native", prefix + "-monitor"}
}

func (q *lagQueues) all() []string { return []string{q.eager, q.native, q.monitor} }

// lagRun is one measurement.
type lagRun struct {
	LagConfig
	LagOptions
	queues lagQueues
	ttls   []time.Duration // of the messages of each queue
}

// MeasureLag compares native with eager expiry. It creates three queues, sends the same messages to
// two of them, runs a monitor for one of these, and observes when the messages reach the
// dead-letter queues. It deletes the queues, however it ends.
func MeasureLag(ctx context.Context, cfg LagConfig, o LagOptions) (_ *LagResult, err error) {
	r := &lagRun{LagConfig: cfg, LagOptions: o, queues: newLagQueues()}
	for i := range o.Messages {
		ttl := lagFirstTTL
		if o.Messages > 1 {
			ttl += o.Spread * time.Duration(i) / time.Duration(o.Messages-1)
		}
		r.ttls = append(r.ttls, ttl)
	}
	// The first answer shows where the administration API is.
	if _, err := cfg.Admin.Tier(ctx); err != nil {
		return nil, cmp.Or(failure.Unreachable(err), fmt.Errorf("creating queues needs the Manage right over the administration API: %s", failure.Reason(err)))
	}
	client, err := cfg.Administration()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.deleteQueues(context.WithoutCancel(ctx), client)) }()
	if err := r.createQueues(ctx, client); err != nil {
		return nil, err
	}
	r.progress("Created three queues in %s. Sending %s to two of them, without a consumer.", cfg.Host, plural.Of(o.Messages, "message", "messages"))
	r.progress("The deadlines are spread over %s; then the native queue has %s more.", span(o.Spread), span(o.Wait))
	return r.measure(ctx)
}

func (r *lagRun) progress(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

func (r *lagRun) createQueues(ctx context.Context, client *admin.Client) error {
	for _, name := range r.queues.all() {
		creating, cancel := context.WithTimeout(ctx, changeTimeout)
		_, err := client.CreateQueue(creating, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
			AutoDeleteOnIdle: to.Ptr(lagIdle), LockDuration: to.Ptr("PT1M"), MaxDeliveryCount: to.Ptr(int32(100)),
			DeadLetteringOnMessageExpiration: to.Ptr(name != r.queues.monitor),
		}})
		cancel()
		if err != nil {
			return fmt.Errorf("create the queue %s: %w", name, failure.Plain(err))
		}
	}
	return nil
}

// deleteQueues deletes those of the queues that exist.
func (r *lagRun) deleteQueues(ctx context.Context, client *admin.Client) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	var errs []error
	for _, name := range r.queues.all() {
		there, err := client.GetQueue(ctx, name, nil)
		if err == nil && there != nil {
			_, err = client.DeleteQueue(ctx, name, nil)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("delete the queue %s, which deletes itself after five idle minutes: %w", name, failure.Plain(err)))
		}
	}
	return errors.Join(errs...)
}

// measure runs a monitor for the eager queue while it sends and observes.
func (r *lagRun) measure(ctx context.Context) (_ *LagResult, err error) {
	s, err := scheduler.New(scheduler.Config{
		MonitorQueue: r.queues.monitor, Links: r.Links, Companions: "each",
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }() // nothing is in flight any more
	if err := s.MeasureClock(ctx); err != nil {
		return nil, err
	}
	w, err := monitor.New(monitor.Config{
		Links: r.Links, Scheduler: s, Queues: monitorqueue.Of(r.queues.monitor, 1), Namespace: r.Host, Log: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return w.Run(running) })
	defer func() {
		stop()
		err = errors.Join(err, g.Wait())
	}()
	began := time.Now()
	for _, queue := range []string{r.queues.eager, r.queues.native} {
		if err := r.send(ctx, s, queue); err != nil {
			return nil, err
		}
	}
	result := &LagResult{Namespace: r.Host, Messages: r.Messages, ResolutionMs: lagResolution.Milliseconds(), wait: r.Wait}
	if err := r.observe(ctx, s, result); err != nil {
		return nil, err
	}
	result.WaitedMs = time.Since(began).Milliseconds()
	return result, nil
}

// send sends a message for each time to live, to the eager queue with its companion.
func (r *lagRun) send(ctx context.Context, s *scheduler.Scheduler, queue string) error {
	var g errgroup.Group
	for i, ttl := range r.ttls {
		g.Go(func() error {
			id := lagID(i)
			if queue == r.queues.eager {
				now := s.Now().Time
				err := s.Schedule(ctx, scheduler.Companion{Entity: queue, References: []scheduler.Reference{
					{MessageID: id, Sent: now, Deadline: now.Add(ttl), Within: ttl, Stated: "ttl"},
				}})
				if err != nil {
					return err
				}
			}
			m := link.ScheduledMessage{
				MessageID:  id,
				TimeToLive: ttl,
				Body:       []byte("lag"),
			}
			if err := r.Links.Send(ctx, queue, m.Encoded()); err != nil {
				return fmt.Errorf("send to %s: %w", queue, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func lagID(i int) string { return fmt.Sprintf("lag-%03d", i) }

const (
	// lagResolution is the interval between two peeks at a dead-letter queue. A peek is no receive,
	// and makes the broker expire nothing.
	lagResolution = 100 * time.Millisecond
	// lagGrace is how long the monitor may take after the last deadline.
	lagGrace = 20 * time.Second
)

// observe peeks until all messages are dead letters, or the time is over.
func (r *lagRun) observe(ctx context.Context, s *scheduler.Scheduler, result *LagResult) error {
	last := time.Now().Add(r.ttls[len(r.ttls)-1])
	eager := &observation{queue: r.queues.eager, ttls: r.ttls, until: last.Add(max(lagGrace, r.Wait))}
	native := &observation{queue: r.queues.native, ttls: r.ttls, until: last.Add(r.Wait)}
	var g errgroup.Group
	for _, o := range []*observation{eager, native} {
		g.Go(func() error { return o.run(ctx, r.Links, s) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	result.Eager, result.Native = eager.result(), native.result()
	result.eager, result.native = eager.all(), native.all()
	return nil
}

// An observation is what was seen of the dead letters of one queue.
type observation struct {
	queue string
	ttls  []time.Duration
	until time.Time
	lags  map[string]time.Duration // by message id
}

// run peeks until every message has been seen or the time is over.
func (o *observation) run(ctx context.Context, links *link.Namespace, s *scheduler.Scheduler) error {
	o.lags = map[string]time.Duration{}
	peeker, err := links.Peeker(ctx, o.queue+deadLetterQueue)
	if err != nil {
		return fmt.Errorf("peek at the dead letters of %s: %w", o.queue, err)
	}
	ttlOf := map[string]time.Duration{}
	for i, ttl := range o.ttls {
		ttlOf[lagID(i)] = ttl
	}
	tick := time.NewTicker(lagResolution)
	defer tick.Stop()
	for {
		ms, err := peeker.Peek(ctx, 0, len(o.ttls))
		if hasEnded(ctx) {
			return errInterrupted
		}
		if err != nil {
			return fmt.Errorf("peek at the dead letters of %s: %w", o.queue, err)
		}
		now := s.Now().Time
		for _, m := range ms {
			if _, seen := o.lags[m.MessageID]; !seen && ttlOf[m.MessageID] > 0 {
				o.lags[m.MessageID] = now.Sub(m.EnqueuedTime.Add(ttlOf[m.MessageID]))
			}
		}
		if len(o.lags) == len(o.ttls) || time.Now().After(o.until) {
			peeker.Close(ctx)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// hasEnded reports whether ctx has ended. An operation that fails at its deadline may return before
// the timer of ctx has run.
func hasEnded(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

var errInterrupted = errors.New("interrupted before the end")

// all returns the lags. Negative ones come from the uncertainty of the clock, and count as 0.
func (o *observation) all() []time.Duration {
	var all []time.Duration
	for _, lag := range o.lags {
		all = append(all, max(lag, 0))
	}
	return all
}

func (o *observation) result() QueueLag {
	return QueueLag{DeadLettered: len(o.lags), Waiting: len(o.ttls) - len(o.lags), LagMs: lag.Of(o.all())}
}

// A LagResult is the outcome of [MeasureLag]. Its JSON form is the output of `overdue doctor lag
// --json`. Fields are added, never renamed.
type LagResult struct {
	Namespace    string   `json:"namespace"`
	Messages     int      `json:"messages"`     // per queue
	WaitedMs     int64    `json:"waitedMs"`     // from the first send to the last peek
	ResolutionMs int64    `json:"resolutionMs"` // between two peeks
	Native       QueueLag `json:"native"`
	Eager        QueueLag `json:"eager"`

	native, eager []time.Duration
	wait          time.Duration
}

// A QueueLag says what became of the messages of one queue.
type QueueLag struct {
	DeadLettered int              `json:"deadLettered"`
	Waiting      int              `json:"waiting"` // in the queue at the end
	LagMs        lag.Milliseconds `json:"lagMs"`   // of those that were dead-lettered
}

// Err returns an error unless all messages of the monitored queue were dead-lettered.
func (r *LagResult) Err() error {
	if r.Eager.DeadLettered != r.Messages {
		return fmt.Errorf("only %d of %d monitored messages were dead-lettered; run `overdue doctor` to find out why", r.Eager.DeadLettered, r.Messages)
	}
	return nil
}

// lagSteps are the rows of the graph.
var lagSteps = []time.Duration{
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
}

const (
	lagLabel = 24 // columns before the bars
	lagBar   = 24 // columns of a full bar

	nativeTitle = "native expiry"
	eagerTitle  = "with Overdue"
)

// WriteText draws the distribution of the lags of both queues, in less than 100 columns.
func (r *LagResult) WriteText(w io.Writer, color bool) error {
	var b strings.Builder
	bar := func(n int, code string) string {
		full := (n*lagBar + r.Messages - 1) / r.Messages
		text := strings.Repeat("█", full)
		if color && full > 0 {
			text = "\x1b[" + code + "m" + text + "\x1b[0m"
		}
		number := "    "
		if n > 0 {
			number = fmt.Sprintf("%3d ", n)
		}
		return number + text + strings.Repeat(" ", lagBar-full)
	}
	row := func(label string, native, eager int) {
		line := fmt.Sprintf("  %-*s %s %s", lagLabel, label, bar(native, "33"), bar(eager, "32"))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	fmt.Fprintf(&b, "\n  %-*s %-*s %s\n", lagLabel, "lag after the deadline", lagBar+4, nativeTitle, eagerTitle)
	first, last := lagRows(r.native, r.eager)
	for i := first; i <= last; i++ {
		label := "more"
		if i < len(lagSteps) {
			label = "up to " + span(lagSteps[i])
		}
		row(label, countStep(r.native, i), countStep(r.eager, i))
	}
	if r.Native.Waiting+r.Eager.Waiting > 0 {
		row(fmt.Sprintf("still there after %s", span(r.wait)), r.Native.Waiting, r.Eager.Waiting)
	}
	b.WriteByte('\n')
	for _, q := range []struct {
		title string
		*QueueLag
	}{{nativeTitle, &r.Native}, {eagerTitle, &r.Eager}} {
		fmt.Fprintf(&b, "  %-*s %d of %d dead-lettered", lagLabel, q.title, q.DeadLettered, r.Messages)
		if q.DeadLettered > 0 {
			fmt.Fprintf(&b, "; lag p50 %.0f ms, p99 %.0f ms, max %.0f ms", q.LagMs.P50, q.LagMs.P99, q.LagMs.Max)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "  %-*s %d ms plus a round trip to %s\n", lagLabel, "resolution", r.ResolutionMs, escape.Text(r.Namespace))
	_, err := io.WriteString(w, b.String())
	return err
}

// countStep counts the lags that belong to a row.
func countStep(lags []time.Duration, step int) (n int) {
	for _, lag := range lags {
		if stepOf(lag) == step {
			n++
		}
	}
	return n
}

// stepOf returns the row of a lag.
func stepOf(lag time.Duration) int {
	for i, step := range lagSteps {
		if lag <= step {
			return i
		}
	}
	return len(lagSteps)
}

// lagRows returns the first and the last row with a lag. Without lags the last comes before the
// first.
func lagRows(sets ...[]time.Duration) (first, last int) {
	first, last = len(lagSteps), -1
	for _, lags := range sets {
		for _, lag := range lags {
			first, last = min(first, stepOf(lag)), max(last, stepOf(lag))
		}
	}
	return first, last
}
