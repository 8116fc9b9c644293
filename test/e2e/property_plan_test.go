// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/broker/quirk"
)

// plan is a scenario: all that chance decides before it is played.
type plan struct {
	kind        string // of the entity: queue, sessions, partitioned, topic
	to          string // the entity
	places      []place
	filters     map[string]string // the label that a subscription takes, by its name; all others take everything
	expiry      queue.Expiry
	slots       bool
	stamp       bool
	undescribed bool
	oneProcess  bool
	drops       bool // the entity does not dead-letter what expires
	duplicates  bool // it detects them
	measured    bool
	offset      time.Duration // the broker's clock minus everybody else's
	lock        time.Duration
	deliveries  int                      // MaxDeliveryCount
	life        time.Duration            // the entity's default time to live; 0 = none
	lives       map[string]time.Duration // those of subscriptions, by name
	batches     []drawnBatch
	consumers   int  // at each place
	drained     bool // somebody completes dead letters as they come
	quirks      quirk.Set
	warnings    []time.Duration
	faults
	changes []change
}

// drawnBatch is what is sent together, after a pause.
type drawnBatch struct {
	pause    time.Duration
	amqp     bool
	messages []drawnMessage
}

// drawnMessage is one message and how it states its deadline.
type drawnMessage struct {
	key                  string // distinguishes it from all others
	id, session, label   string
	complete             time.Duration // by when it has to be completed; 0 = no matter
	life, within, at     time.Duration // 0: not stated; at is an instant, from when it is sent
	delay                time.Duration // it is scheduled so much ahead
	byRequest, unlimited bool          // scheduled over $management; no deadline at all
}

// change is what happens to the monitors after a pause.
type change struct {
	pause, down time.Duration
	second      bool // another one joins, instead of the first being replaced
}

// innocent is how long messages live that nobody is to touch.
const innocent = 20 * time.Minute

func drawPlan(rng *rand.Rand) *plan {
	one := func(n int) bool { return rng.IntN(n) == 0 }
	p := &plan{
		kind: []string{"queue", "queue", "sessions", "partitioned", "topic"}[rng.IntN(5)],
		to:   workQueue, places: []place{{path: workQueue}},
		expiry: []queue.Expiry{queue.Lazy, queue.LazyHead, queue.Eager}[rng.IntN(3)],
		slots:  one(2), stamp: !one(3), undescribed: one(6), oneProcess: one(2), duplicates: one(4), measured: !one(4),
		lock: time.Duration(5+rng.IntN(10)) * time.Second, deliveries: []int{3, 10, 1000}[rng.IntN(3)],
		consumers: rng.IntN(4),
	}
	if one(3) {
		p.offset = []time.Duration{-10 * time.Minute, -3 * time.Second, 3 * time.Second, time.Hour}[rng.IntN(4)]
		if !p.measured { // companions come so much late, and nothing is to expire before they do
			p.offset %= time.Minute
		}
	}
	switch p.kind {
	case "sessions":
		p.places[0].sessions = true
	case "topic":
		p.to, p.places, p.undescribed = topic, nil, false
		p.lives, p.filters = map[string]time.Duration{}, map[string]string{}
		for i := range 1 + rng.IntN(3) {
			name := fmt.Sprint("s", i)
			p.places = append(p.places, place{path: of(name), subscription: name, sessions: one(3)})
			if one(3) {
				p.filters[name] = "red"
			}
			if one(3) {
				p.lives[name] = time.Duration(2+rng.IntN(6)) * time.Second
			}
		}
	default:
		p.drops = one(5)
	}
	if p.drops { // what a proxy does then; and a time to live cannot be kept
		p.stamp, p.undescribed = false, false
	}
	if !p.drops && one(4) {
		p.life = time.Duration(2+rng.IntN(8)) * time.Second
	}
	p.slots = p.slots && p.kind == "queue" && !p.drops
	for i, n := 0, 0; i < 12+rng.IntN(20); i++ {
		b := drawnBatch{pause: time.Duration(rng.IntN(500)) * time.Millisecond, amqp: one(2)}
		size := 1
		if one(3) {
			size = 2 + rng.IntN(5)
		}
		for range size {
			n++
			m := p.message(rng, n, b.amqp && size == 1)
			if p.kind == "partitioned" && len(b.messages) > 0 { // one batch, one session
				m.session = b.messages[0].session
			}
			b.messages = append(b.messages, m)
		}
		p.batches = append(p.batches, b)
	}
	for range rng.IntN(3) {
		p.changes = append(p.changes, change{
			pause: time.Duration(rng.IntN(6000)) * time.Millisecond, down: time.Duration(rng.IntN(3000)) * time.Millisecond, second: one(3),
		})
	}
	return p
}

func (p *plan) message(rng *rand.Rand, n int, schedulable bool) drawnMessage {
	m := drawnMessage{key: fmt.Sprintf("<key-%03d>", n), session: fmt.Sprint("s-", rng.IntN(3)), label: []string{"red", "blue"}[rng.IntN(2)]}
	m.id = fmt.Sprint("m-", n)
	if rng.IntN(5) == 0 {
		m.id = fmt.Sprint(often, rng.IntN(3))
	}
	span := time.Duration(300+rng.IntN(7000)) * time.Millisecond
	switch rng.IntN(8) {
	case 0, 1:
		m.within = span
	case 2:
		m.at = span
		if n%4 == 3 { // it ends before the deadline
			m.life = (span / 2).Truncate(time.Millisecond)
		}
	case 3:
		m.within, m.life = span, innocent
	case 4:
		m.life = innocent
	case 5:
		m.unlimited = true
	default:
		m.life = span
	}
	if p.drops {
		switch {
		case m.at == 0 && m.within == 0 && m.life < innocent && m.life > 0:
			m.within, m.life = m.life, 0
		case m.at == 0 && m.within == 0:
			m.life, m.unlimited = 0, true
		default:
			m.life = 0
		}
	}
	if schedulable && m.at == 0 && rng.IntN(4) == 0 {
		m.delay, m.byRequest = time.Duration(500+rng.IntN(4000))*time.Millisecond, rng.IntN(2) == 0
	}
	return m
}

// longest is the longest time to live that holds at a place; 0 = none.
func (p *plan) longest(at place) time.Duration {
	life := p.life
	if sub := p.lives[at.subscription]; sub > 0 && (life == 0 || sub < life) {
		life = sub
	}
	return life
}

// configure makes the namespace of the scenario.
func (p *plan) configure(s *scene, c *broker.Config) {
	s.slots, s.stamp, s.undescribed, s.oneProcess = p.slots, p.stamp, p.undescribed, p.oneProcess
	s.settings.DefaultMessageTimeToLive, s.settings.WarnBefore = p.life, p.warnings
	if p.scans {
		s.settings.Strategy = "scan"
	}
	if len(p.line) > 0 {
		s.openLine()
	}
	c.Expiry, c.ClockOffset, c.Quirks = p.expiry, p.offset, p.quirks
	q := &c.Queues[0]
	q.LockDuration, q.MaxDeliveryCount, q.DefaultMessageTimeToLive = p.lock, p.deliveries, p.life
	q.RequiresSession, q.EnablePartitioning, q.RequiresDuplicateDetection = p.kind == "sessions", p.kind == "partitioned", p.duplicates
	q.DeadLetteringOnMessageExpiration = !p.drops
	if p.kind != "topic" {
		return
	}
	s.monitored[topic] = true
	setup := broker.TopicSetup{TopicConfig: broker.TopicConfig{Name: topic, DefaultMessageTimeToLive: p.life, RequiresDuplicateDetection: p.duplicates}}
	for _, at := range p.places {
		life := p.lives[at.subscription]
		if life > 0 && (s.subscriptionLife == 0 || life < s.subscriptionLife) {
			s.subscriptionLife = life
		}
		sub := broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{
			Name: at.subscription, LockDuration: p.lock, MaxDeliveryCount: p.deliveries, DefaultMessageTimeToLive: life,
			DeadLetteringOnMessageExpiration: true, RequiresSession: at.sessions,
		}}
		if label, ok := p.filters[at.subscription]; ok {
			sub.Rules = []broker.RuleConfig{{Name: "label", Filter: broker.Filter{Correlation: &broker.CorrelationFilter{Label: &label}}}}
		}
		setup.Subscriptions = append(setup.Subscriptions, sub)
	}
	c.Topics = []broker.TopicSetup{setup}
}

func (p *plan) String() string {
	return fmt.Sprintf("%s, expiry %v, slots %v, stamp %v, blind %v, one house %v, drops %v, duplicates %v, measured %v, offset %v, lock %v, "+
		"%d deliveries, life %v, subscriptions %v %v %v, %d batches, %d consumers, changes %v", p.kind, p.expiry, p.slots, p.stamp, p.undescribed, p.oneProcess,
		p.drops, p.duplicates, p.measured, p.offset, p.lock, p.deliveries, p.life, p.places, p.filters, p.lives, len(p.batches), p.consumers, p.changes)
}
