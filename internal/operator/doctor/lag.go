// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

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
