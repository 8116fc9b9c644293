// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
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
	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/entities"
	"overdue/internal/servicebus/failure"
	"overdue/internal/servicebus/link"
	"overdue/internal/terminal"
	"overdue/monitor"
	"overdue/scheduler"
)

const (
	// lagFirstTTL is the time to live of the first message. All links are open by then.
	lagFirstTTL = 2 * time.Second
	// lagIdle deletes the queues if this process does not. Service Bus accepts no shorter time.
	lagIdle = "PT5M"
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

// lagRun is one measurement.
type lagRun struct {
	LagConfig
	LagOptions
	eager, native, monitor string          // queues
	ttls                   []time.Duration // of the messages of each queue
}

func (r *lagRun) queues() []string { return []string{r.eager, r.native, r.monitor} }

// MeasureLag compares native with eager expiry. It creates three queues, sends the same messages to
// two of them, runs a monitor for one of these, and observes when the messages reach the
// dead-letter queues. It deletes the queues, however it ends.
func MeasureLag(ctx context.Context, cfg LagConfig, o LagOptions) (_ *LagResult, err error) {
	prefix := "overdue-lag-" + strings.ToLower(rand.Text()[:8])
	r := &lagRun{
		LagConfig:  cfg,
		LagOptions: o,
		eager:      prefix + "-eager",
		native:     prefix + "-native",
		monitor:    prefix + "-monitor",
	}
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
	r.progress("The deadlines are spread over %s; then the native queue has %s more.", duration.Format(o.Spread), duration.Format(o.Wait))
	return r.measure(ctx)
}

func (r *lagRun) progress(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

func (r *lagRun) createQueues(ctx context.Context, client *admin.Client) error {
	for _, name := range r.queues() {
		creating, cancel := context.WithTimeout(ctx, changeTimeout)
		_, err := client.CreateQueue(creating, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
			AutoDeleteOnIdle: to.Ptr(lagIdle), LockDuration: to.Ptr("PT1M"), MaxDeliveryCount: to.Ptr(int32(100)),
			DeadLetteringOnMessageExpiration: to.Ptr(name != r.monitor),
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
	for _, name := range r.queues() {
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
		MonitorQueue: r.monitor, Links: r.Links, Companions: "each",
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }() // nothing is in flight any more
	if err := s.MeasureClock(ctx); err != nil {
		return nil, err
	}
	w, err := monitor.New(monitor.Config{
		Links: r.Links, Scheduler: s, Queues: monitorqueue.Of(r.monitor, 1), Namespace: r.Host, Log: zap.NewNop(),
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
	for _, queue := range []string{r.eager, r.native} {
		if err := r.send(ctx, s, queue); err != nil {
			return nil, err
		}
	}
	result := &LagResult{Namespace: r.Host, Messages: r.Messages, ResolutionMs: lagResolution.Milliseconds(), wait: r.Wait}
	last := time.Now().Add(r.ttls[len(r.ttls)-1])
	var observing errgroup.Group
	observing.Go(func() (err error) {
		result.eager, err = r.observe(ctx, s, r.eager, last.Add(max(lagGrace, r.Wait)))
		return err
	})
	observing.Go(func() (err error) {
		result.native, err = r.observe(ctx, s, r.native, last.Add(r.Wait))
		return err
	})
	if err := observing.Wait(); err != nil {
		return nil, err
	}
	result.Eager, result.Native = r.queueLag(result.eager), r.queueLag(result.native)
	result.WaitedMs = time.Since(began).Milliseconds()
	return result, nil
}

// send sends a message for each time to live, to the eager queue with its companion.
func (r *lagRun) send(ctx context.Context, s *scheduler.Scheduler, queue string) error {
	var g errgroup.Group
	for i, ttl := range r.ttls {
		g.Go(func() error {
			if queue == r.eager {
				if err := s.ScheduleTTL(ctx, queue, lagID(i), ttl); err != nil {
					return err
				}
			}
			m := link.ScheduledMessage{
				MessageID:  lagID(i),
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

// observe peeks at the dead letters of a queue until it has seen every message or the time is over,
// and returns the lags. Negative ones come from the uncertainty of the clock, and count as 0.
func (r *lagRun) observe(ctx context.Context, s *scheduler.Scheduler, queue string, until time.Time) (lags []time.Duration, err error) {
	peeker, err := r.Links.Peeker(ctx, queue+deadLetterQueue)
	if err != nil {
		return nil, fmt.Errorf("peek at the dead letters of %s: %w", queue, err)
	}
	waiting := map[string]time.Duration{} // times to live
	for i, ttl := range r.ttls {
		waiting[lagID(i)] = ttl
	}
	tick := time.NewTicker(lagResolution)
	defer tick.Stop()
	for {
		ms, err := peeker.Peek(ctx, 0, len(r.ttls))
		if hasEnded(ctx) {
			return nil, errInterrupted
		}
		if err != nil {
			return nil, fmt.Errorf("peek at the dead letters of %s: %w", queue, err)
		}
		now := s.Now().Time
		for _, m := range ms {
			if ttl, isNew := waiting[m.MessageID]; isNew {
				lags = append(lags, max(now.Sub(m.EnqueuedTime.Add(ttl)), 0))
				delete(waiting, m.MessageID)
			}
		}
		if len(waiting) == 0 || time.Now().After(until) {
			peeker.Close(ctx)
			return lags, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (r *lagRun) queueLag(lags []time.Duration) QueueLag {
	return QueueLag{DeadLettered: len(lags), Waiting: r.Messages - len(lags), LagMs: lag.Of(lags)}
}

// hasEnded reports whether ctx has ended. An operation that fails at its deadline may return before
// the timer of ctx has run.
func hasEnded(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

var errInterrupted = errors.New("interrupted before the end")

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
		number := "    "
		if n > 0 {
			number = fmt.Sprintf("%3d ", n)
		}
		return number + terminal.Paint(color, code, strings.Repeat("█", full)) + strings.Repeat(" ", lagBar-full)
	}
	row := func(label string, native, eager int) {
		line := fmt.Sprintf("  %-*s %s %s", lagLabel, label, bar(native, "33"), bar(eager, "32"))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	fmt.Fprintf(&b, "\n  %-*s %-*s %s\n", lagLabel, "lag after the deadline", lagBar+4, nativeTitle, eagerTitle)
	native, eager := countSteps(r.native), countSteps(r.eager)
	isUsed := func(i int) bool { return native[i]+eager[i] > 0 }
	first, last := 0, len(lagSteps) // without lags the last comes before the first
	for first <= last && !isUsed(first) {
		first++
	}
	for first <= last && !isUsed(last) {
		last--
	}
	for i := first; i <= last; i++ {
		label := "more"
		if i < len(lagSteps) {
			label = "up to " + duration.Format(lagSteps[i])
		}
		row(label, native[i], eager[i])
	}
	if r.Native.Waiting+r.Eager.Waiting > 0 {
		row(fmt.Sprintf("still there after %s", duration.Format(r.wait)), r.Native.Waiting, r.Eager.Waiting)
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

// countSteps counts the lags that belong to each row.
func countSteps(lags []time.Duration) []int {
	counts := make([]int, len(lagSteps)+1)
	for _, lag := range lags {
		i, _ := slices.BinarySearch(lagSteps, lag)
		counts[i]++
	}
	return counts
}
