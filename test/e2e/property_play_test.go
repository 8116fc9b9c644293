// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"overdue/internal/broker/queue"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// history is what was done to the messages of one place, by their keys.
type history struct {
	mu        sync.Mutex
	settled   map[string]bool
	unsure    map[string]bool // their settlement had to be tried again: the SDK takes any answer to that for success
	delivered map[string]int  // to consumers that noticed
	crashed   bool            // a consumer, with what it may have been sent
}

// deliver sends what the plan says, and notes when absolute deadlines are.
func (p *played) deliver() {
	s, due := p.scene, p.due
	sender, err := s.clientAt(s.endpoint()).NewSender(p.to, nil)
	s.Must(err)
	for i, b := range p.batches {
		time.Sleep(b.pause)
		if p.between(i) { // its link has ended
			sender, err = s.clientAt(s.endpoint()).NewSender(p.to, nil)
			s.Must(err)
		}
		for _, m := range b.messages {
			if m.at > 0 {
				due[m.key] = s.Namespace.Broker.Now().Add(m.at).Truncate(time.Millisecond)
			}
		}
		if b.amqp {
			b.byAMQP(s, sender, due)
		} else {
			b.byREST(s, p.to, due)
		}
	}
}

func (b *drawnBatch) byREST(s *scene, to string, due map[string]time.Time) {
	type entry struct {
		Body                             string
		BrokerProperties, UserProperties map[string]any
	}
	var entries []entry
	for _, m := range b.messages {
		e := entry{m.key, map[string]any{"MessageId": m.id, "SessionId": m.session, "Label": m.label}, m.properties(due)}
		if m.life > 0 {
			e.BrokerProperties["TimeToLive"] = m.life.Seconds()
		}
		entries = append(entries, e)
	}
	body, err := json.Marshal(entries)
	s.Must(err)
	r := httptest.NewRequest(http.MethodPost, "/"+to+"/messages", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/vnd.microsoft.servicebus.json")
	w := httptest.NewRecorder()
	s.proxy.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		s.Errorf("send = %d %s", w.Code, w.Body)
	}
}

// properties state the deadline.
func (m *drawnMessage) properties(due map[string]time.Time) map[string]any {
	properties := map[string]any{}
	if m.within > 0 {
		properties["overdue-within"] = m.within.String()
	}
	if m.complete > 0 {
		properties["overdue-complete-within"] = m.complete.String()
	}
	if m.at > 0 {
		properties["overdue-deadline"] = due[m.key].UTC().Format(time.RFC3339Nano)
	}
	return properties
}

func (b *drawnBatch) byAMQP(s *scene, sender *azservicebus.Sender, due map[string]time.Time) {
	var messages []*azservicebus.Message
	for _, m := range b.messages {
		a := &azservicebus.Message{MessageID: &m.id, SessionID: &m.session, Subject: &m.label, Body: []byte(m.key), ApplicationProperties: m.properties(due)}
		if m.life > 0 {
			a.TimeToLive = &m.life
		}
		messages = append(messages, a)
	}
	first, at := b.messages[0], s.Namespace.Broker.Now().Add(b.messages[0].delay)
	switch {
	case first.delay > 0 && first.byRequest:
		_, err := sender.ScheduleMessages(s.Context(), messages, at, nil)
		s.Must(err)
	case first.delay > 0:
		messages[0].ScheduledEnqueueTime = &at
		fallthrough
	case len(messages) == 1:
		s.Must(sender.SendMessage(s.Context(), messages[0], nil))
	default:
		batch, err := sender.NewMessageBatch(s.Context(), nil)
		s.Must(err)
		for _, m := range messages {
			s.Must(batch.AddMessage(m, nil))
		}
		s.Must(sender.SendMessageBatch(s.Context(), batch, nil))
	}
}

// drawnConsumer receives for a while and does what chance says, its crashes included.
type drawnConsumer struct {
	*scene
	place   place
	rng     *rand.Rand
	seen    *history
	dial    func(context.Context) (net.Conn, error)
	own     *azservicebus.Client
	conns   []net.Conn
	stopped time.Time
}

func (c *drawnConsumer) run() {
	for time.Now().Before(c.stopped) {
		if c.own == nil {
			c.connect()
		}
		if r := c.open(); r != nil {
			c.turn(r)
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			_ = r.Close(ctx) // an error: the lock of its session has lapsed, or its connection is gone
			cancel()
		}
		c.pauseAtMost(600)
	}
	c.disconnect()
}

func (c *drawnConsumer) pauseAtMost(most int) {
	time.Sleep(time.Duration(c.rng.IntN(most)) * time.Millisecond)
}

func (c *drawnConsumer) connect() {
	client, err := azservicebus.NewClientFromConnectionString(c.Namespace.ConnectionString(), &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			conn, err := c.dial(ctx)
			c.seen.mu.Lock()
			defer c.seen.mu.Unlock()
			c.conns = append(c.conns, conn)
			return conn, err
		},
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
	})
	c.Must(err)
	c.own = client
}

func (c *drawnConsumer) disconnect() {
	if c.own == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.own.Close(ctx) // an error: its connection is gone
	c.own = nil
}

// crash leaves all as it is.
func (c *drawnConsumer) crash() {
	c.seen.mu.Lock()
	c.seen.crashed = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
	c.seen.mu.Unlock()
	c.disconnect()
}

// open is a receiver, nil when there is no session to be had.
func (c *drawnConsumer) open() (r receiver) {
	var err error
	ctx, cancel := context.WithTimeout(c.Context(), 300*time.Millisecond)
	defer cancel()
	switch {
	case c.place.sessions && c.place.subscription != "":
		r, err = c.own.AcceptNextSessionForSubscription(ctx, topic, c.place.subscription, nil)
	case c.place.sessions:
		r, err = c.own.AcceptNextSessionForQueue(ctx, c.place.path, nil)
	case c.place.subscription != "":
		r, err = c.own.NewReceiverForSubscription(topic, c.place.subscription, nil)
	default:
		r, err = c.own.NewReceiverForQueue(c.place.path, nil)
	}
	if err != nil {
		return nil // nothing waits
	}
	return r
}

// turn receives some messages and settles them, or not.
func (c *drawnConsumer) turn(r receiver) {
	ctx, cancel := context.WithTimeout(c.Context(), 100*time.Millisecond)
	defer cancel()
	ms, _ := r.ReceiveMessages(ctx, 1+c.rng.IntN(3), nil) // an error: there are none
	c.note(ms)
	if len(ms) > 0 && c.rng.IntN(12) == 0 {
		c.crash()
		return
	}
	for _, m := range ms {
		if c.rng.IntN(2) == 0 {
			c.pauseAtMost(5000)
		}
		switch c.rng.IntN(8) {
		case 0, 1, 2:
			c.settle(m, func() error { return r.CompleteMessage(c.Context(), m, nil) })
		case 3:
			_ = r.AbandonMessage(c.Context(), m, nil) // an error: its lock has lapsed
		case 4, 5:
			c.setAside(r, m)
		case 6:
			c.settle(m, func() error { return r.DeadLetterMessage(c.Context(), m, nil) })
		case 7: // forgotten: its lock lapses
		}
	}
}

// setAside defers a message, and may come back for it.
func (c *drawnConsumer) setAside(r receiver, m *azservicebus.ReceivedMessage) {
	if err := r.DeferMessage(c.Context(), m, nil); err != nil || c.rng.IntN(2) == 0 {
		return // its lock has lapsed, or it stays where it is
	}
	c.pauseAtMost(4000)
	again, err := r.ReceiveDeferredMessages(c.Context(), []int64{*m.SequenceNumber}, nil)
	if err != nil {
		return // it has been expired
	}
	c.note(again)
	for _, m := range again {
		c.pauseAtMost(4000)
		switch c.rng.IntN(4) {
		case 0, 1:
			c.settle(m, func() error { return r.CompleteMessage(c.Context(), m, nil) })
		case 2:
			_ = r.AbandonMessage(c.Context(), m, nil) // an error: its lock has lapsed
		}
	}
}

func (c *drawnConsumer) note(ms []*azservicebus.ReceivedMessage) {
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	for _, m := range ms {
		c.seen.delivered[string(m.Body)]++
	}
}

// settle settles a message, and notes that it is done with.
func (c *drawnConsumer) settle(m *azservicebus.ReceivedMessage, do func() error) {
	began := time.Now()
	if err := do(); err != nil {
		return // its lock has lapsed
	}
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	key := string(m.Body)
	switch {
	case time.Since(began) > time.Second:
		c.seen.unsure[key] = true
	case c.seen.settled[key]:
		c.Errorf("%s was settled twice", key)
	default:
		c.seen.settled[key] = true
	}
}

// change stops the monitor for a while and starts it again, or has another one join it.
func (p *plan) change(s *scene) {
	stop := s.startMonitor()
	for _, c := range p.changes {
		time.Sleep(c.pause)
		if c.second {
			s.startMonitor()
			continue
		}
		stop()
		time.Sleep(c.down)
		stop = s.startMonitor()
	}
}

// down is how long there was no monitor, at most.
func (p *plan) down() (d time.Duration) {
	for _, c := range p.changes {
		d += c.down
	}
	return d
}

// played has the results to check.
type played struct {
	*scene
	*plan
	due   map[string]time.Time    // absolute deadlines, by key
	seen  []*history              // by place
	taken map[string][]queue.View // dead letters that were taken away, by place

	anew, changedAt time.Time       // when the queue was recreated, and got newLife, by the clock of the broker; zero: never
	before          map[string]bool // keys of the messages of the queue that was deleted then
}

// drain completes the dead letters of a place as they come, until ctx ends. Its link ends with the
// queue.
func (p *played) drain(ctx context.Context, at place, mu *sync.Mutex) {
	for ctx.Err() == nil {
		p.drainUntil(ctx, at, mu)
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *played) drainUntil(ctx context.Context, at place, mu *sync.Mutex) {
	options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	r, err := p.Client.NewReceiverForQueue(at.path, options)
	if at.subscription != "" {
		r, err = p.Client.NewReceiverForSubscription(topic, at.subscription, options)
	}
	p.Must(err)
	defer func() { _ = r.Close(p.Context()) }() // its queue may be gone
	for {
		ms, err := r.ReceiveMessages(ctx, 10, nil)
		if err != nil {
			return // ctx has ended, or the queue is gone
		}
		for _, m := range ms {
			there := p.Dead(at.path)
			i := slices.IndexFunc(there, func(v queue.View) bool { return v.SequenceNumber == *m.SequenceNumber })
			if err := r.CompleteMessage(p.Context(), m, nil); i < 0 || err != nil {
				if p.recreate == 0 {
					p.Errorf("complete a dead letter, number %d: %v", *m.SequenceNumber, err)
				}
				return
			}
			mu.Lock()
			p.taken[at.path] = append(p.taken[at.path], there[i])
			mu.Unlock()
		}
	}
}

// everDead returns the dead letters of a place, with those that were taken away.
func (p *played) everDead(path string) []queue.View { return append(p.Dead(path), p.taken[path]...) }

func (p *plan) play(s *scene, seed uint64) *played {
	done := &played{scene: s, plan: p, due: map[string]time.Time{}, taken: map[string][]queue.View{}, before: map[string]bool{}}
	if p.measured {
		s.MeasureClock()
	}
	dials := []func(context.Context) (net.Conn, error){s.endpoint(), s.Namespace.Dial}
	var all sync.WaitGroup
	all.Go(func() { p.change(s) })
	all.Go(func() { p.breakLine(s) })
	for i, at := range p.places {
		h := &history{settled: map[string]bool{}, unsure: map[string]bool{}, delivered: map[string]int{}}
		done.seen = append(done.seen, h)
		for j := range p.consumers {
			c := &drawnConsumer{
				scene: s, place: at, rng: rand.New(rand.NewPCG(seed, uint64(10*i+j+2))), seen: h,
				dial: dials[(i+j)%2], stopped: time.Now().Add(time.Duration(14+2*j) * time.Second),
			}
			all.Go(c.run)
		}
	}
	ctx, stop := context.WithCancel(s.Context())
	var drains sync.WaitGroup
	var mu sync.Mutex
	for _, at := range p.places {
		if p.drained {
			drains.Go(func() { done.drain(ctx, at, &mu) })
		}
	}
	done.deliver()
	all.Wait()
	time.Sleep(2 * time.Minute) // until every lock has lapsed
	stop()
	drains.Wait()
	return done
}
