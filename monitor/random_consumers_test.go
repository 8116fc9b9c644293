// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// Consumers do whatever they can with messages whose deadlines come meanwhile: complete them in
// time or late, give them back, set them aside, dead-letter them, let their locks lapse. For every
// behaviour and every kind of entity, a message that somebody has settled is not notified. Any
// other message is dead-lettered, never early, and notified once, and nothing is left.
func TestWhateverConsumersDo(t *testing.T) {
	end := broker.QueueConfig{Name: "end", DeadLetteringOnMessageExpiration: true, LockDuration: 5 * time.Second}
	turn := 0
	for _, kind := range []struct {
		name, to  string
		places    []place
		configure func(*scene, *broker.Config)
	}{
		{"queue", workQueue, []place{{path: workQueue}}, plain},
		{"sessions", workQueue, []place{{path: workQueue, sessions: true}}, withSessions},
		{"partitioned", workQueue, []place{{path: workQueue}}, func(_ *scene, c *broker.Config) { c.Queues[0].EnablePartitioning = true }},
		{"forwarding", workQueue, []place{{path: "end"}}, func(_ *scene, c *broker.Config) {
			c.Queues[0].ForwardTo = "end"
			c.Queues = append(c.Queues, end)
		}},
		{"topic", topic, []place{{path: of("plain"), subscription: "plain"}, {path: of("sessions"), subscription: "sessions", sessions: true}},
			withTopic(
				subscription("plain", func(c *broker.SubscriptionSetup) { c.LockDuration = 5 * time.Second }),
				subscription("sessions", func(c *broker.SubscriptionSetup) { c.LockDuration, c.RequiresSession = 5*time.Second, true }),
			)},
	} {
		for _, stamp := range []bool{true, false} {
			for _, named := range []bool{true, false} {
				turn++
				if racetest.Enabled && stamp != named {
					continue
				}
				t.Run(fmt.Sprintf("%s, stamp %v, named %v", kind.name, stamp, named), func(t *testing.T) {
					inModeOfTurn(t, turn, func(s *scene, c *broker.Config) {
						c.Queues[0].LockDuration = 5 * time.Second
						kind.configure(s, c)
					}, func(s *scene) {
						s.stamp = stamp
						anyConsumers(s, kind.to, kind.places, named)
					})
				})
			}
		}
	}
}

// place is where copies of the messages are received.
type place struct {
	path, subscription string
	sessions           bool
}

func anyConsumers(s *scene, to string, places []place, named bool) {
	const n, batch = 25, 5 // messages, and how many of those without names come at once
	seed := testseed.Of(s)
	rng := rand.New(rand.NewPCG(seed, 1))
	s.MeasureClock()
	s.startMonitor()
	within := map[string]time.Duration{}
	var consumers sync.WaitGroup
	settled := make([]*ledger, len(places))
	for i, p := range places {
		settled[i] = &ledger{ids: map[string]bool{}}
		for j := range 3 {
			c := &consumer{scene: s, place: p, rng: rand.New(rand.NewPCG(seed, uint64(10*i+j+2))), settled: settled[i]}
			consumers.Go(c.run)
		}
	}
	sessions := 4 // in one batch
	if s.Queue(workQueue).Config().Partitioned {
		sessions = 1
	}
	for i := range n {
		life := time.Duration(1000+rng.IntN(5000)) * time.Millisecond
		id := fmt.Sprint("m-", i)
		switch {
		case named:
			within[id] = life
			s.send(to, id, session(fmt.Sprint(rng.IntN(4))), "Overdue-Within", fmt.Sprintf(`"%dms"`, life.Milliseconds()))
		case i%batch == 0:
			s.sendWithoutIDs(to, batch, func(i int, m *azservicebus.Message) {
				m.SessionID = new(fmt.Sprint(i % sessions))
				life := life + time.Duration(i/2)*time.Second
				m.ApplicationProperties = map[string]any{"overdue-within": life.String()}
				if s.stamp { // which there will be no room for
					m.TimeToLive = &life
				}
			})
		}
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
	}
	consumers.Wait()
	time.Sleep(5 * time.Minute)
	notified := map[string]int{}
	for _, e := range s.Hook.Events() {
		notified[e.Data.Subscription+" "+e.Subject]++
	}
	for i, p := range places {
		if left := len(s.Waiting(p.path)); left != 0 {
			s.Errorf("%s: %d messages are left", p.path, left)
		}
		expired := map[string]bool{}
		for _, m := range s.Dead(p.path) {
			if m.DeadLetterReason != "TTLExpiredException" && m.DeadLetterReason != "DeadlineExceeded" {
				settled[i].ids[m.MessageID] = true // by a consumer, or given back too often
				continue
			}
			expired[m.MessageID] = true
			if !named {
				within[m.MessageID] = withinOf(s.T, m)
			}
			if lag := m.DeadLetteredTime.Sub(m.EnqueuedTime.Add(within[m.MessageID])); lag < 0 {
				s.Errorf("%s: %s was dead-lettered %v early", p.path, m.MessageID, -lag)
			}
		}
		ids := maps.Clone(within)
		if !named {
			ids = map[string]time.Duration{}
			for id := range settled[i].ids {
				ids[id] = 0
			}
			for id := range expired {
				ids[id] = 0
			}
			if len(ids) != n {
				s.Errorf("%s: %d messages were settled or expired, want %d", p.path, len(ids), n)
			}
		}
		for id := range ids {
			events := notified[p.subscription+" "+id]
			switch {
			case settled[i].ids[id] && (expired[id] || events != 0):
				s.Errorf("%s: %s was settled; expired %v, notified %d times", p.path, id, expired[id], events)
			case !settled[i].ids[id] && (!expired[id] || events != 1):
				s.Errorf("%s: %s was not settled; expired %v, notified %d times", p.path, id, expired[id], events)
			}
		}
		s.Logf("%s: %d settled, %d expired", p.path, len(settled[i].ids), len(expired))
	}
	s.Settled(time.Minute)
}

// withinOf is what a message says of its deadline.
func withinOf(t *testing.T, v queue.View) time.Duration {
	t.Helper()
	var m amqp.Message
	if err := m.UnmarshalBinary(v.Body); err != nil {
		t.Fatal(err)
	}
	text, _ := m.ApplicationProperties["overdue-within"].(string)
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ledger is what the consumers of one place have settled.
type ledger struct {
	mu  sync.Mutex
	ids map[string]bool
}

// consumer receives and does what chance says, for a while.
type consumer struct {
	*scene
	place   place
	rng     *rand.Rand
	settled *ledger
}

// receiver is what the two kinds of receivers of the SDK have in common.
type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	ReceiveDeferredMessages(context.Context, []int64, *azservicebus.ReceiveDeferredMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.AbandonMessageOptions) error
	DeferMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeferMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
	Close(context.Context) error
}

func (c *consumer) run() {
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); c.rest(400) {
		if r := c.open(); r != nil {
			c.turn(r)
			_ = r.Close(c.Context()) // an error: the lock of its session has lapsed
		}
	}
}

func (c *consumer) rest(most int) { time.Sleep(time.Duration(c.rng.IntN(most)) * time.Millisecond) }

// open is a receiver, nil when there is no session to be had.
func (c *consumer) open() receiver {
	var r receiver
	var err error
	ctx, cancel := context.WithTimeout(c.Context(), 300*time.Millisecond)
	defer cancel()
	switch {
	case c.place.sessions && c.place.subscription != "":
		r, err = c.Client.AcceptNextSessionForSubscription(ctx, topic, c.place.subscription, nil)
	case c.place.sessions:
		r, err = c.Client.AcceptNextSessionForQueue(ctx, c.place.path, nil)
	case c.place.subscription != "":
		r, err = c.Client.NewReceiverForSubscription(topic, c.place.subscription, nil)
	default:
		r, err = c.Client.NewReceiverForQueue(c.place.path, nil)
	}
	if err != nil {
		return nil // nothing waits
	}
	return r
}

// turn receives some messages and settles them, or not.
func (c *consumer) turn(r receiver) {
	ctx, cancel := context.WithTimeout(c.Context(), 100*time.Millisecond)
	defer cancel()
	ms, _ := r.ReceiveMessages(ctx, 1+c.rng.IntN(3), nil) // an error: there are none
	for _, m := range ms {
		if c.rng.IntN(2) == 0 {
			c.rest(4000)
		}
		switch c.rng.IntN(8) {
		case 0, 1, 2, 3:
			c.settle(m, r.CompleteMessage(c.Context(), m, nil))
		case 4:
			_ = r.AbandonMessage(c.Context(), m, nil) // an error: its lock has lapsed
		case 5:
			if err := r.DeferMessage(c.Context(), m, nil); err != nil || c.rng.IntN(2) == 0 {
				continue
			}
			c.rest(3000)
			again, err := r.ReceiveDeferredMessages(c.Context(), []int64{*m.SequenceNumber}, nil)
			if err != nil {
				continue // it has been expired
			}
			c.rest(3000)
			c.settle(m, r.CompleteMessage(c.Context(), again[0], nil))
		case 6:
			_ = r.DeadLetterMessage(c.Context(), m, nil) // an error: as above
		}
	}
}

// settle notes a message that was completed.
func (c *consumer) settle(m *azservicebus.ReceivedMessage, err error) {
	if err != nil {
		return // its lock has lapsed
	}
	c.settled.mu.Lock()
	defer c.settled.mu.Unlock()
	if c.settled.ids[m.MessageID] {
		c.Errorf("%s was completed twice", m.MessageID)
	}
	c.settled.ids[m.MessageID] = true
}
