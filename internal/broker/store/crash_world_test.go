// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
)

// The times of the model. A step of time ends nothing that has less than a third of a step to go,
// so that the time a test takes does not matter.
const (
	stepOfTime   = 40 * time.Second
	lockDuration = 60 * time.Second
	window       = 100 * time.Second // of duplicate detection
)

// A world is what a broker has to hold: the entities of crashConfig, and one that comes and goes.
type world struct {
	now      time.Duration // since the first start
	entities map[string]*modelEntity
	everyone bool   // the subscription eu has a rule that lets everything through
	note     string // the user metadata of archive
}

// A modelEntity is a queue, a topic or a subscription of the model.
type modelEntity struct {
	max        int                      // deliveries
	onExpiry   bool                     // expired messages are dead messages
	forward    string                   // where messages go
	deadTo     string                   // where dead messages go
	copies     []string                 // of a topic: its subscriptions
	duplicates bool                     // are found
	sent       map[string]time.Duration // message-ids, where duplicates are found
	states     map[string]string        // of sessions
	messages   []modelMessage
	dead       []modelMessage
	last       int // order of the latest modelMessage
}

// A modelMessage is a message of the model.
type modelMessage struct {
	number  int // of the send
	id      string
	session string
	eu      bool
	size    int // of the body
	ttl     time.Duration
	due     time.Duration // when a scheduled one becomes active

	order   int // of arrival
	state   queue.State
	count   int
	reason  string
	expires time.Duration // 0: never
	held    bool          // somebody has it
	until   time.Duration // then its lock lapses
}

func newWorld() *world {
	w := &world{entities: map[string]*modelEntity{}}
	for _, q := range crashConfig().Queues {
		w.entities[q.Name] = &modelEntity{
			max:        cmp.Or(q.MaxDeliveryCount, queue.DefaultMaxDeliveryCount),
			onExpiry:   q.DeadLetteringOnMessageExpiration,
			forward:    q.ForwardTo,
			deadTo:     q.ForwardDeadLetteredMessagesTo,
			duplicates: q.RequiresDuplicateDetection,
			sent:       map[string]time.Duration{},
			states:     map[string]string{},
		}
	}
	for _, t := range crashConfig().Topics {
		topic := &modelEntity{}
		w.entities[t.Name] = topic
		for _, s := range t.Subscriptions {
			path := t.Name + "/Subscriptions/" + s.Name
			topic.copies = append(topic.copies, path)
			w.entities[path] = &modelEntity{max: queue.DefaultMaxDeliveryCount, forward: s.ForwardTo}
		}
	}
	return w
}

func crashConfig() broker.Config {
	return broker.Config{
		Expiry: queue.Eager,
		Queues: []broker.QueueConfig{
			{Name: "orders", LockDuration: lockDuration, MaxDeliveryCount: 3, DeadLetteringOnMessageExpiration: true},
			{Name: "carts", LockDuration: lockDuration, MaxDeliveryCount: 4, RequiresSession: true},
			{Name: "once", RequiresDuplicateDetection: true, DuplicateDetectionHistoryTimeWindow: window},
			{Name: "relay", ForwardTo: "archive"},
			{Name: "failing", LockDuration: lockDuration, MaxDeliveryCount: 2, ForwardDeadLetteredMessagesTo: "archive"},
			{Name: "archive"},
		},
		Topics: []broker.TopicSetup{{
			TopicConfig: broker.TopicConfig{Name: "events"},
			Subscriptions: []broker.SubscriptionSetup{
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "all"}},
				{SubscriptionConfig: broker.SubscriptionConfig{Name: "copy", ForwardTo: "archive"}},
				{
					SubscriptionConfig: broker.SubscriptionConfig{Name: "eu"},
					Rules:              []broker.RuleConfig{{Name: "eu", Filter: broker.Filter{SQL: &broker.SQLFilter{Expression: "region = 'eu'"}}}},
				},
			},
		}},
	}
}

func (w *world) clone() *world {
	c := *w
	c.entities = map[string]*modelEntity{}
	for path, s := range w.entities {
		t := *s
		t.sent, t.states = maps.Clone(s.sent), maps.Clone(s.states)
		t.messages, t.dead = slices.Clone(s.messages), slices.Clone(s.dead)
		c.entities[path] = &t
	}
	return &c
}

// paths is those of all entities, in order.
func (w *world) paths() []string { return slices.Sorted(maps.Keys(w.entities)) }

// send puts messages where they are received.
func (w *world) send(to string, ls ...modelMessage) {
	for _, l := range ls {
		w.arrive(to, l)
	}
}

func (w *world) arrive(to string, l modelMessage) {
	s := w.entities[to]
	if s == nil {
		return // deleted
	}
	if s.duplicates {
		if at, known := s.sent[l.id]; known && w.now < at+window {
			return
		}
		s.sent[l.id] = w.now
	}
	if l.due > w.now {
		l.state = queue.Scheduled
		s.put(l)
		return
	}
	l.due = 0
	s.put(l)
	if l.ttl > 0 {
		s.messages[len(s.messages)-1].expires = w.now + l.ttl
	}
	w.pass(to)
}

func (s *modelEntity) put(l modelMessage) {
	s.last++
	l.order = s.last
	s.messages = append(s.messages, l)
}

// pass moves on what an entity does not keep.
func (w *world) pass(path string) {
	s := w.entities[path]
	targets := s.copies
	if s.forward != "" {
		targets = []string{s.forward}
	}
	if targets == nil {
		return
	}
	var stay []modelMessage
	for _, l := range s.messages {
		if l.state != queue.Active {
			stay = append(stay, l)
			continue
		}
		for _, to := range targets {
			if to != "events/Subscriptions/eu" || l.eu || w.everyone {
				w.arrive(to, l.onward())
			}
		}
	}
	s.messages = stay
}

// onward is a message as it arrives elsewhere.
func (l modelMessage) onward() modelMessage {
	return modelMessage{
		number:  l.number,
		id:      l.id,
		session: l.session,
		eu:      l.eu,
		size:    l.size,
		ttl:     l.ttl,
		reason:  l.reason,
	}
}

// find returns a message of a part of an entity, nil when it is not there.
func (s *modelEntity) find(dead bool, number int) *modelMessage {
	if s == nil {
		return nil
	}
	for i := range *s.part(dead) {
		if l := &(*s.part(dead))[i]; l.number == number {
			return l
		}
	}
	return nil
}

func (s *modelEntity) part(dead bool) *[]modelMessage {
	if dead {
		return &s.dead
	}
	return &s.messages
}

func (s *modelEntity) remove(dead bool, number int) {
	*s.part(dead) = slices.DeleteFunc(*s.part(dead), func(l modelMessage) bool { return l.number == number })
}

// first is the message that a receiver gets next, nil: it waits.
func (s *modelEntity) first(dead bool, session string) *modelMessage {
	for i := range *s.part(dead) {
		if l := &(*s.part(dead))[i]; l.state == queue.Active && !l.held && (dead || l.session == session || session == "") {
			return l
		}
	}
	return nil
}

// bury makes a message a dead modelMessage.
func (w *world) bury(path string, number int, reason string) {
	s := w.entities[path]
	l := *s.find(false, number)
	s.remove(false, number)
	l.held, l.state, l.reason, l.expires = false, queue.Active, reason, 0
	if s.deadTo != "" {
		w.arrive(s.deadTo, l.onward())
		return
	}
	s.dead = append(s.dead, l)
	slices.SortFunc(s.dead, func(a, b modelMessage) int { return cmp.Compare(a.order, b.order) })
}

// giveBack ends a lock without a settlement.
func (w *world) giveBack(path string, dead bool, number int, failed bool) {
	s := w.entities[path]
	l := s.find(dead, number)
	l.held = false
	if failed && !dead {
		l.count++
	}
	switch {
	case !dead && l.state == queue.Active && l.expires > 0 && l.expires <= w.now:
		w.expire(path, number)
	case !dead && failed && l.count >= s.max:
		w.bury(path, number, "MaxDeliveryCountExceeded")
	}
}

func (w *world) expire(path string, number int) {
	if s := w.entities[path]; !s.onExpiry {
		s.remove(false, number)
		return
	}
	w.bury(path, number, "TTLExpiredException")
}

// advance is what time does: locks lapse, messages become active, and they expire.
func (w *world) advance(now time.Duration) {
	w.now = now
	for _, path := range w.paths() {
		s := w.entities[path]
		for _, dead := range []bool{false, true} {
			for _, l := range slices.Clone(*s.part(dead)) {
				if l.held && l.until <= now {
					w.giveBack(path, dead, l.number, true)
				}
			}
		}
		due := slices.DeleteFunc(slices.Clone(s.messages), func(l modelMessage) bool { return l.state != queue.Scheduled || l.due > now })
		slices.SortStableFunc(due, func(a, b modelMessage) int { return cmp.Compare(a.due, b.due) })
		for _, l := range due {
			s.remove(false, l.number)
			l.state, l.due = queue.Active, 0
			s.put(l)
			w.pass(path)
		}
		for _, l := range slices.Clone(s.messages) {
			if l.state == queue.Active && !l.held && l.expires > 0 && l.expires <= now {
				w.expire(path, l.number)
			}
		}
	}
}

// restart is what the next process makes of w: all locks have lapsed.
func (w *world) restart(now time.Duration) *world {
	c := w.clone()
	for _, s := range c.entities {
		for _, dead := range []bool{false, true} {
			for i := range *s.part(dead) {
				if l := &(*s.part(dead))[i]; l.held {
					l.until = 0
				}
			}
		}
	}
	c.advance(now)
	return c
}

// view is the world line by line, as found has a broker, with or without the states of sessions.
func (w *world) view(states bool) (lines []string) {
	for _, path := range w.paths() {
		s, first := w.entities[path], len(lines)
		lines = append(lines, path)
		for _, dead := range []bool{false, true} {
			for _, l := range *s.part(dead) {
				lines = append(lines, line(path, dead, l.number, l.size, l.id, l.session, l.state, l.count, l.held, l.reason))
			}
		}
		if path == "archive" {
			slices.Sort(lines[first:]) // see adoptOrder
		}
		for _, session := range slices.Sorted(maps.Keys(s.states)) {
			if !states {
				break
			}
			lines = append(lines, fmt.Sprintf("%s, session %s: %s", path, session, s.states[session]))
		}
	}
	return append(lines, settingsLine(w.entities["relay"].forward, w.everyone, w.note))
}

func settingsLine(forward string, everyone bool, note string) string {
	return fmt.Sprintf("relay to %q, eu for everyone: %v, note %q", forward, everyone, note)
}

func line(path string, dead bool, number, size int, id, session string, state queue.State, count int, held bool, reason string) string {
	if dead {
		path += "/dead"
	}
	return fmt.Sprintf("%s: message %d of %d bytes, id %s, session %q, state %d, %d deliveries, held %v, %s",
		path, number, size, id, session, state, count, held, reason)
}

// bodyOf is the body of a message, and readBody its opposite.
func bodyOf(number, size int) []byte {
	text := fmt.Sprint(number, " ")
	return []byte(strings.Repeat(text, size/len(text)+1)[:max(size, len(text))])
}

func readBody(body []byte) (number, size int, err error) {
	if _, err := fmt.Sscan(string(body), &number); err != nil {
		return 0, 0, err
	}
	if string(body) != string(bodyOf(number, len(body))) {
		return 0, 0, fmt.Errorf("the body of message %d is damaged", number)
	}
	return number, len(body), nil
}
