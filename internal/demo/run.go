// SPDX-License-Identifier: Apache-2.0

// Package demo shows lazy and eager expiry side by side: the same sends to two queues of an
// embedded broker, no consumer, and how late each message was dead-lettered.
package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.uber.org/zap"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/httpclient"
	"overdue/internal/plural"
	"overdue/internal/web"
)

// The two queues of the demo. They are made alike; only the first is monitored.
const (
	demoEager = "eager"
	demoLazy  = "lazy"
)

// timing says how long the parts of a demo take.
type timing struct {
	firstTTL, lastTTL time.Duration // times to live of the messages lie between them
	grace             time.Duration // after the last deadline, for the watched queue
	sending           time.Duration // bounds the sends
	receive           time.Duration // bounds the one receive that moves the other queue's messages
	pause             time.Duration // lets the screen show the end of a phase
	tick              time.Duration // between two frames of the screen
}

// slow leaves time to look at both queues, on a page that changes every two seconds.
var slow = timing{
	firstTTL: 5 * time.Second, lastTTL: 25 * time.Second, grace: time.Minute,
	sending: time.Minute, receive: time.Minute,
	pause: 4 * time.Second, tick: 100 * time.Millisecond,
}

var standard = timing{
	firstTTL: 2 * time.Second, lastTTL: 8 * time.Second, grace: time.Minute,
	sending: time.Minute, receive: time.Minute,
	pause: 700 * time.Millisecond, tick: 100 * time.Millisecond,
}

// demo is one run: the same sends to two queues of an embedded broker, no consumer.
type demo struct {
	proc   *app.Process
	client *azservicebus.Client
	http   *http.Client
	n      int // messages per queue
	began  time.Time
	screen screen
	timing timing
	phase  atomic.Pointer[string] // what happens at the moment, for the dashboard
}

// Run starts everything, runs the demo with n messages for each queue and stops everything.
// Errors of Overdue itself are logged to stderr.
func Run(ctx context.Context, n int, s screen, stderr io.Writer) (*Result, error) {
	return runTimed(ctx, n, s, stderr, standard, nil)
}

// RunWeb is Run with a dashboard that shows the two queues, for which it takes more time. show gets
// its address and the token for its actions. RunWeb keeps everything until ctx ends.
func RunWeb(ctx context.Context, n int, s screen, stderr io.Writer, show func(url, token string)) (*Result, error) {
	return runTimed(ctx, n, s, stderr, slow, show)
}

func runTimed(ctx context.Context, n int, s screen, stderr io.Writer, t timing, show func(url, token string)) (_ *Result, err error) {
	token := rand.Text()
	proc, err := startDemo(stderr, token)
	if err != nil {
		return nil, fmt.Errorf("start the demo: %w", err)
	}
	defer func() { err = errors.Join(err, proc.Stop()) }()
	// A client of its own stands for the app; it does not know of Overdue.
	client, err := azservicebus.NewClientFromConnectionString(proc.OwnConnectionString(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the demo's client: %w", err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }() // the broker goes next
	d := &demo{proc: proc, client: client, http: httpclient.New(nil, 0), n: n, screen: s, timing: t}
	if show == nil {
		return d.run(ctx)
	}
	proc.Dashboard().ShowDemo(d.page)
	show("http://"+proc.AdminAddress()+web.Path, token)
	r, err := d.run(ctx)
	if err != nil {
		return nil, err
	}
	d.say("That is the whole demo. The dashboard stays: look at the dead letters, their timelines, the page of the queue. Ctrl-C in the terminal ends it.")
	d.screen.say("\nThe dashboard stays until Ctrl-C.")
	<-ctx.Done()
	return r, nil
}

// startDemo starts the components of `overdue run` on free ports, for two queues.
func startDemo(stderr io.Writer, token string) (*app.Process, error) {
	const queue = "deadLetteringOnMessageExpiration: true"
	// The caller's own settings must not reach into the demo.
	none := func(string) string { return "" }
	c, err := config.Load("", none, map[string]string{
		"listen.amqp": "127.0.0.1:0", "listen.http": "127.0.0.1:0", "listen.admin": "127.0.0.1:0", "broker.listen": "127.0.0.1:0",
		"broker.autoCreate": "false",
		"broker.queues":     fmt.Sprintf("[{name: %s, %s}, {name: %s, %s}]", demoEager, queue, demoLazy, queue),
		"monitor.entities":  fmt.Sprintf("[{queue: %s}]", demoEager),
		"dashboard.token":   token,
	})
	if err != nil {
		return nil, err
	}
	// Every message of the watched queue raises an alert; that is not news here.
	log, level, err := app.NewLog(stderr, config.Log{Level: zap.ErrorLevel.String(), Format: "auto"})
	if err != nil {
		return nil, err
	}
	return app.Start(config.RoleRun, c, log, level)
}

// run is the demo from the first send to the one receive. The measurement is taken from
// the broker's own stamps, so the demo's clock and its polling do not blur it.
func (d *demo) run(ctx context.Context) (*Result, error) {
	d.screen.say("An embedded broker that expires lazily, as Azure Service Bus does. Two queues, no consumer.")
	d.screen.say(fmt.Sprintf("%s to each, times to live between %s and %s.", plural.Of(d.n, "message", "messages"), d.timing.firstTTL, d.timing.lastTTL))
	d.screen.say("The watched queue is fed through Overdue's REST endpoint, the other one directly with the SDK.")
	d.screen.say("")
	d.say(fmt.Sprintf("Both queues get the same %s, and nobody receives. Times to live lie between %s and %s.", plural.Of(d.n, "message", "messages"), d.timing.firstTTL, d.timing.lastTTL))
	d.began = time.Now()
	if err := d.sendAll(ctx); err != nil {
		return nil, err
	}
	if err := d.watchUntil(ctx, time.Now().Add(d.timing.lastTTL+d.timing.grace), d.eagerDone); err != nil {
		return nil, err
	}
	r := &Result{waited: time.Since(d.began)}
	r.Eager.Sent, r.Lazy.Sent = d.n, d.n
	r.Lazy.DeadLetteredBeforeReceive = d.counts(demoLazy).dead
	if err := d.measure(r); err != nil {
		return nil, err
	}
	d.screen.say("")
	d.screen.say("Now somebody receives from the unwatched queue, once:")
	d.say("Now somebody receives from the unwatched queue, once. Only this makes the broker look at what has expired there.")
	if err := d.receiveOnce(ctx); err != nil {
		return nil, err
	}
	r.Lazy.DeadLetteredAfterReceive = d.counts(demoLazy).dead
	return r, nil
}

// eagerDone reports whether every deadline has passed and the watched queue is empty.
func (d *demo) eagerDone() bool {
	return time.Since(d.began) > d.timing.lastTTL+d.timing.pause && d.counts(demoEager).dead == d.n
}

// watchUntil shows the queues until done, the deadline or the end of ctx.
func (d *demo) watchUntil(ctx context.Context, deadline time.Time, done func() bool) error {
	tick := time.NewTicker(d.timing.tick)
	defer tick.Stop()
	for {
		finished := done() || time.Now().After(deadline)
		d.screen.show(frame{
			elapsed: time.Since(d.began), total: d.n, last: finished,
			eager: d.counts(demoEager), lazy: d.counts(demoLazy),
		})
		if finished {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.proc.Failure():
			return errors.New("the demo's own Overdue has failed")
		case <-ctx.Done():
			return errors.New("interrupted before the end")
		}
	}
}

// counts reads the counters of the broker: that is no receive, and moves nothing.
func (d *demo) counts(name string) queueCounts {
	q, ok := d.proc.Embedded().Queue(name)
	if !ok {
		return queueCounts{}
	}
	c := q.Counts()
	return queueCounts{waiting: c.Active, dead: c.DeadLetter}
}

// measure takes the lag of every message of the watched queue by the broker's clock.
func (d *demo) measure(r *Result) error {
	q, ok := d.proc.Embedded().Queue(demoEager)
	if !ok {
		return fmt.Errorf("the broker has lost the queue %s", demoEager)
	}
	var lags []time.Duration
	for _, v := range q.DeadLetterQueue().Peek(nil, 0, d.n) {
		lags = append(lags, v.DeadLetteredTime.Sub(v.EnqueuedTime.Add(v.TTL)))
	}
	r.Eager.DeadLettered = len(lags)
	r.setLags(lags)
	return nil
}

// receiveOnce is what it takes to get expired messages out of a lazy queue: somebody who
// wants to receive. There is nothing left for it to get.
func (d *demo) receiveOnce(ctx context.Context) error {
	receiver, err := d.client.NewReceiverForQueue(demoLazy, nil)
	if err != nil {
		return fmt.Errorf("receiver for %s: %w", demoLazy, err)
	}
	receiving, stop := context.WithTimeout(ctx, d.timing.receive)
	defer stop()
	received := make(chan error, 1)
	go func() {
		ms, err := receiver.ReceiveMessages(receiving, 1, nil)
		if err == nil && len(ms) > 0 {
			err = errors.New("an expired message was delivered")
		}
		received <- err
	}()
	began := time.Now()
	err = d.watchUntil(ctx, began.Add(d.timing.receive), func() bool {
		return len(received) > 0 || time.Since(began) > d.timing.pause && d.counts(demoLazy).waiting == 0
	})
	stop()
	if receiveErr := <-received; err == nil && receiveErr != nil && !isContextEnd(receiveErr) {
		err = fmt.Errorf("receive from %s: %w", demoLazy, receiveErr)
	}
	return errors.Join(err, receiver.Close(context.WithoutCancel(ctx)))
}

// isContextEnd reports that an operation ended because its context did.
func isContextEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
