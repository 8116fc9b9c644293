// SPDX-License-Identifier: Apache-2.0

// Package demo shows lazy and eager expiry side by side: the same sends to two queues of an
// embedded broker, no consumer, and how late each message was dead-lettered.
package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/httpclient"
	"overdue/internal/lag"
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
	proc, err := startDemo(ctx, stderr, token)
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
func startDemo(ctx context.Context, stderr io.Writer, token string) (*app.Process, error) {
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
	return app.Start(ctx, config.RoleRun, c, log, level)
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
	dead, err := q.DeadLetterQueue().Peek(nil, 0, d.n)
	if err != nil {
		return err
	}
	var lags []time.Duration
	for _, v := range dead {
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

// demoSenders is how many messages of a queue are under way at once.
const demoSenders = 8

// ttl of the i-th message. Neighbours differ: in both queues messages with little time
// left stand behind others with much.
func (d *demo) ttl(i int) time.Duration {
	const prime = 7919
	place := i * prime % d.n
	return d.timing.firstTTL + (d.timing.lastTTL-d.timing.firstTTL)*time.Duration(place)/time.Duration(max(1, d.n-1))
}

// sendAll sends the same messages to both queues and shows them filling.
func (d *demo) sendAll(ctx context.Context) error {
	sending, stop := context.WithTimeout(ctx, d.timing.sending)
	defer stop()
	sender, err := d.client.NewSender(demoLazy, nil)
	if err != nil {
		return fmt.Errorf("sender for %s: %w", demoLazy, err)
	}
	done := make(chan error, 1)
	go func() {
		// The one link of the SDK's sender exists before eight goroutines ask for it.
		first := d.sendLazy(sending, sender, 0)
		g, ctx := errgroup.WithContext(sending)
		g.SetLimit(2 * demoSenders)
		for i := range d.n {
			g.Go(func() error { return d.sendEager(ctx, i) })
			if i > 0 {
				g.Go(func() error { return d.sendLazy(ctx, sender, i) })
			}
		}
		done <- errors.Join(first, g.Wait(), sender.Close(context.WithoutCancel(sending)))
	}()
	var sendErr error
	sent := false
	err = d.watchUntil(ctx, time.Now().Add(d.timing.sending), func() bool {
		select {
		case sendErr = <-done:
			sent = true
		default:
		}
		return sent
	})
	if !sent {
		stop()
		sendErr = <-done
	}
	if err != nil {
		return err
	}
	return sendErr
}

// sendEager goes through Overdue: an HTTP request as the Service Bus REST API has it.
func (d *demo) sendEager(ctx context.Context, i int) error {
	url := fmt.Sprintf("http://%s/%s/messages", d.proc.RestAddr(), demoEager)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("hello"))
	if err != nil {
		return fmt.Errorf("send to %s: %w", demoEager, err)
	}
	req.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId":"message-%d","TimeToLive":%.3f}`, i, d.ttl(i).Seconds()))
	resp, err := d.http.Do(req)
	if err != nil {
		return fmt.Errorf("send to %s: %w", demoEager, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end below
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("send to %s: %w", demoEager, err)
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("send to %s: %s: %s", demoEager, resp.Status, body)
	}
	return nil
}

// sendLazy goes to the broker directly, with the SDK.
func (d *demo) sendLazy(ctx context.Context, sender *azservicebus.Sender, i int) error {
	err := sender.SendMessage(ctx, &azservicebus.Message{
		Body: []byte("hello"), MessageID: to.Ptr(fmt.Sprintf("message-%d", i)), TimeToLive: to.Ptr(d.ttl(i)),
	}, nil)
	if err != nil {
		return fmt.Errorf("send to %s: %w", demoLazy, err)
	}
	return nil
}

// say tells the dashboard what happens at the moment.
func (d *demo) say(text string) { d.phase.Store(&text) }

// page is what the dashboard shows of the demo.
func (d *demo) page() *web.Demo {
	p := &web.Demo{}
	if text := d.phase.Load(); text != nil {
		p.Text = *text
	}
	p.Queues = []web.DemoQueue{d.queue(demoEager, "Watched by Overdue"), d.queue(demoLazy, "Left to itself")}
	return p
}

// queue reads the stamps of one queue of the broker: that is no receive, and moves nothing.
func (d *demo) queue(name, title string) web.DemoQueue {
	v := web.DemoQueue{Name: name, Title: title, Sent: d.n}
	q, ok := d.proc.Embedded().Queue(name)
	if !ok {
		return v
	}
	now := time.Now()
	var lags, late []time.Duration
	waiting, err := q.Peek(nil, 0, d.n)
	dead, errDead := q.DeadLetterQueue().Peek(nil, 0, d.n)
	if err = cmp.Or(err, errDead); err != nil {
		v.Verdict = err.Error()
		return v
	}
	for _, m := range waiting {
		v.Waiting++
		if overdue := now.Sub(m.EnqueuedTime.Add(m.TTL)); overdue > 0 {
			late = append(late, overdue)
		}
	}
	for _, m := range dead {
		v.Dead++
		lags = append(lags, m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(m.TTL)))
	}
	// Overdue needs some milliseconds, during which a message is overdue and still waits.
	if late = slices.DeleteFunc(late, func(l time.Duration) bool { return l < time.Second }); len(late) > 0 {
		v.Overdue = len(late)
		v.Verdict = fmt.Sprintf("%d are overdue, the first for %.0f s, and nobody knows", len(late), slices.Max(late).Seconds())
		return v
	}
	if len(lags) == 0 {
		v.Verdict = "No deadline has passed yet"
		return v
	}
	l := lag.Of(lags)
	if l.Max < 2000 {
		v.Verdict = fmt.Sprintf("Dead-lettered within %.0f ms of the deadline, 99 of 100 within %.0f ms", l.Max, l.P99)
	} else {
		v.Verdict = fmt.Sprintf("Dead-lettered up to %.0f s after the deadline, half of them more than %.0f s after it", l.Max/1000, l.P50/1000)
	}
	return v
}
