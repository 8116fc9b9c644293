// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	sbadmin "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/lag"
	"overdue/internal/operator/doctor"
	"overdue/monitor"
	"overdue/scheduler"
)

const (
	// lagFirst is the time to live of the first canary. Links are open by then.
	lagFirst = 2 * time.Second
	// lagGrace is how long after the last deadline the watched queue may take.
	lagGrace = 20 * time.Second
	// lagLook is how often the dead-letter queues are peeked at: what is measured is as sharp as that and a round trip.
	lagLook = 100 * time.Millisecond
	// lagIdle deletes the queues should this process not get to it. It is the least that Service Bus takes.
	lagIdle = "PT5M"
)

type lagOptions struct {
	json     bool
	messages int
	over     time.Duration // between the first deadline and the last
	wait     time.Duration // after the last deadline, for the unwatched queue
}

func (p *program) doctorLagCommand() *cobra.Command {
	var o lagOptions
	cmd := &cobra.Command{
		Use:   "lag",
		Short: "Measure native against eager expiry in the namespace, on queues of its own",
		Long: "Makes three queues (overdue-lag-…), sends the same messages to two of them, which nobody receives\n" +
			"from, watches over one with a monitor of its own, and shows how long after their deadlines the messages\n" +
			"reached the dead-letter queues. The queues are deleted at the end; should that fail they delete themselves\n" +
			"after five idle minutes. It needs the right Manage, and costs some thousand broker operations.\n\n" +
			"The dead-letter queues are peeked at every 100 ms, which is how sharp the figures are. Peeks are no receives,\n" +
			"and wake nothing that is known of.",
	}
	load := p.configFlags(cmd, func(path string) bool { return path == "namespace" })
	cmd.Flags().BoolVar(&o.json, "json", false, "print nothing but the result, as JSON")
	cmd.Flags().IntVar(&o.messages, "messages", 20, "messages per queue, 1 to 200")
	durationVar(cmd.Flags(), &o.over, "over", 8*time.Second, "time from the first deadline to the last, 0s to 10m")
	durationVar(cmd.Flags(), &o.wait, "wait", 30*time.Second, "how long after the last deadline to wait for the unwatched queue, 0s to 30m")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.messages < 1 || o.messages > 200:
			return &config.Error{Err: fmt.Errorf("--messages is %d; it must be between 1 and 200", o.messages)}
		case o.over < 0 || o.over > 10*time.Minute:
			return &config.Error{Err: fmt.Errorf("--over is %s; it must be between 0s and 10m", o.over)}
		case o.wait < 0 || o.wait > 30*time.Minute:
			return &config.Error{Err: fmt.Errorf("--wait is %s; it must be between 0s and 30m", o.wait)}
		}
		c, err := load()
		if err != nil {
			return err
		}
		if c.Embedded() {
			return &config.Error{Err: errors.New("doctor lag measures in a namespace, and none is configured: set --namespace or " +
				config.SettingAt("namespace").Env() + "; `overdue demo` does the same on an embedded broker")}
		}
		return p.lag(cmd.Context(), c, o)
	}
	return cmd
}

// lag measures, prints and fails when the watched half did not do its job.
func (p *program) lag(ctx context.Context, c *config.Config, o lagOptions) error {
	patient, err := newPatient(c)
	if err != nil {
		return err
	}
	defer patient.close(ctx)
	say := func(format string, args ...any) {
		if !o.json {
			fmt.Fprintf(p.stdout, format+"\n", args...) // who reads it may be gone; that is told at the end
		}
	}
	r, err := patient.measureLag(ctx, o, say)
	if err != nil {
		return err
	}
	if o.json {
		err = escape.WriteJSON(p.stdout, r)
	} else {
		err = r.writeGraph(raw(p.stdout), p.colour())
	}
	return errors.Join(err, r.verdict())
}

// lagQueues are those that a measurement makes.
type lagQueues struct{ eager, native, monitor string }

func newLagQueues() lagQueues {
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	prefix := "overdue-lag-" + hex.EncodeToString(id[:])
	return lagQueues{prefix + "-eager", prefix + "-native", prefix + "-monitor"}
}

func (q *lagQueues) all() []string { return []string{q.eager, q.native, q.monitor} }

// measureLag makes the queues, measures and deletes them, whatever happens in between.
func (d *patient) measureLag(ctx context.Context, o lagOptions, say func(string, ...any)) (_ *lagResult, err error) {
	// The first answer shows where the administration API is.
	if _, err := d.api.Tier(ctx); err != nil {
		return nil, cmp.Or(unreachable(err), fmt.Errorf("queues can be made only with the right Manage over the administration API: %s", doctor.Reason(err)))
	}
	client, err := d.administration()
	if err != nil {
		return nil, err
	}
	q := newLagQueues()
	defer func() { err = errors.Join(err, deleteQueues(context.WithoutCancel(ctx), client, q.all())) }()
	for _, name := range q.all() {
		making, cancel := context.WithTimeout(ctx, doctorPatience)
		_, err := client.CreateQueue(making, name, &sbadmin.CreateQueueOptions{Properties: &sbadmin.QueueProperties{
			AutoDeleteOnIdle: to.Ptr(lagIdle), LockDuration: to.Ptr("PT1M"), MaxDeliveryCount: to.Ptr(int32(100)),
			DeadLetteringOnMessageExpiration: to.Ptr(name != q.monitor),
		}})
		cancel()
		if err != nil {
			return nil, fmt.Errorf("make the queue %s: %w", name, err)
		}
	}
	say("Three queues of their own in %s, %d messages to each of two, no consumer.", d.ns.Host, o.messages)
	say("Deadlines over %s; then %s for the one that nobody watches.", o.over, o.wait)
	return d.watchLag(ctx, q, o)
}

// deleteQueues deletes what is there of them.
func deleteQueues(ctx context.Context, client *sbadmin.Client, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	var errs []error
	for _, name := range names {
		there, err := client.GetQueue(ctx, name, nil)
		if err == nil && there != nil {
			_, err = client.DeleteQueue(ctx, name, nil)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the queue %s is not deleted, and deletes itself after five idle minutes: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// watchLag runs a monitor of its own over the one queue and looks at the dead letters of both.
func (d *patient) watchLag(ctx context.Context, q lagQueues, o lagOptions) (_ *lagResult, err error) {
	s, err := scheduler.New(scheduler.Config{Client: d.client, MonitorQueue: q.monitor, Links: d.links, Companions: scheduler.CompanionsEach})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }() // nothing is in flight any more
	if err := s.MeasureClock(ctx); err != nil {
		return nil, err
	}
	w, err := monitor.New(monitor.Config{
		Links: d.links, Scheduler: s, MonitorQueue: q.monitor, Namespace: d.ns.Host, Log: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return w.Run(watching) })
	defer func() {
		stop()
		err = errors.Join(err, g.Wait())
	}()
	ttls := make([]time.Duration, o.messages)
	for i := range ttls {
		ttls[i] = lagFirst
		if o.messages > 1 {
			ttls[i] += o.over * time.Duration(i) / time.Duration(o.messages-1)
		}
	}
	began := time.Now()
	for _, queue := range []string{q.eager, q.native} {
		if err := d.sendCanaries(ctx, s, queue, ttls, queue == q.eager); err != nil {
			return nil, err
		}
	}
	r := &lagResult{Namespace: d.ns.Host, Messages: o.messages, ResolutionMs: lagLook.Milliseconds()}
	err = d.observeLag(ctx, s, q, ttls, o, r)
	r.WaitedMs = time.Since(began).Milliseconds()
	return r, err
}

// sendCanaries sends a message for each time to live, with its companion where it is watched.
func (d *patient) sendCanaries(ctx context.Context, s *scheduler.Scheduler, queue string, ttls []time.Duration, watched bool) error {
	sender, err := d.client.Current().NewSender(queue, nil)
	if err != nil {
		return fmt.Errorf("sender for %s: %w", queue, err)
	}
	defer func() { _ = sender.Close(context.WithoutCancel(ctx)) }() // everything has been acknowledged
	// The SDK opens one link for each of those who find none: the first use is alone.
	if _, err := sender.NewMessageBatch(ctx, nil); err != nil {
		return fmt.Errorf("send to %s: %w", queue, err)
	}
	var g errgroup.Group
	for i, ttl := range ttls {
		g.Go(func() error {
			id := lagID(i)
			if watched {
				now := s.Now().Time
				err := s.Schedule(ctx, scheduler.Companion{Entity: queue, References: []scheduler.Reference{
					{MessageID: id, Sent: now, Deadline: now.Add(ttl), Within: ttl, Stated: "ttl"},
				}})
				if err != nil {
					return err
				}
			}
			if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id, Body: []byte("canary"), TimeToLive: to.Ptr(ttl)}, nil); err != nil {
				return fmt.Errorf("send to %s: %w", queue, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func lagID(i int) string { return fmt.Sprintf("canary-%03d", i) }

// observeLag looks until all messages are dead letters, or it has waited long enough.
func (d *patient) observeLag(ctx context.Context, s *scheduler.Scheduler, q lagQueues, ttls []time.Duration, o lagOptions, r *lagResult) error {
	last := time.Now().Add(ttls[len(ttls)-1])
	eager := &sighting{d: d, s: s, queue: q.eager, ttls: ttls, until: last.Add(max(lagGrace, o.wait))}
	native := &sighting{d: d, s: s, queue: q.native, ttls: ttls, until: last.Add(o.wait)}
	var g errgroup.Group
	for _, v := range []*sighting{eager, native} {
		g.Go(func() error { return v.watch(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.Eager, r.Native = eager.result(), native.result()
	r.eager, r.native, r.wait = eager.lags(), native.lags(), o.wait
	return nil
}

// A sighting is what was seen of one queue's dead letters.
type sighting struct {
	d     *patient
	s     *scheduler.Scheduler
	queue string
	ttls  []time.Duration
	until time.Time
	seen  map[string]time.Duration // lag by message-id
}

// watch looks until everything has been seen or its time is over.
func (v *sighting) watch(ctx context.Context) error {
	v.seen = map[string]time.Duration{}
	peeker, err := v.d.links.Peeker(ctx, v.queue+"/$DeadLetterQueue")
	if err != nil {
		return fmt.Errorf("look at the dead letters of %s: %w", v.queue, err)
	}
	ttlOf := map[string]time.Duration{}
	for i, ttl := range v.ttls {
		ttlOf[lagID(i)] = ttl
	}
	tick := time.NewTicker(lagLook)
	defer tick.Stop()
	for {
		ms, err := peeker.Peek(ctx, 0, len(v.ttls))
		if ctx.Err() != nil {
			return errors.New("interrupted before the end")
		}
		if err != nil {
			return fmt.Errorf("look at the dead letters of %s: %w", v.queue, err)
		}
		now := v.s.Now().Time
		for _, m := range ms {
			if _, known := v.seen[m.MessageID]; !known && ttlOf[m.MessageID] > 0 {
				v.seen[m.MessageID] = now.Sub(m.EnqueuedTime.Add(ttlOf[m.MessageID]))
			}
		}
		if len(v.seen) == len(v.ttls) || time.Now().After(v.until) {
			peeker.Close(ctx)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (v *sighting) lags() []time.Duration {
	var all []time.Duration
	for _, lag := range v.seen {
		all = append(all, max(lag, 0)) // less than nothing is what the clocks leave open
	}
	return all
}

func (v *sighting) result() lagOfQueue {
	return lagOfQueue{DeadLettered: len(v.seen), Waiting: len(v.ttls) - len(v.seen), LagMs: lag.Of(v.lags())}
}
