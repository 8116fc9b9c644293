// SPDX-License-Identifier: Apache-2.0

package monitor_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/servicebus/duration"
	"overdue/internal/servicebus/rest"
	"overdue/scheduler"
)

// The sender of the scenes does the work of the proxy for an app. It works out the deadline of each
// message, stamps a time to live where it may, and sends the messages while the scheduler writes
// their companions. The rules are those of proxy/deadline.go; test/e2e checks that monitor and
// proxy agree.

const (
	sendTimeout      = 30 * time.Second
	sendWindow       = 2 * time.Second
	activationWindow = 5 * time.Minute
)

// send sends one message as a REST client states it: broker properties as JSON, then headers and
// their values.
func (s *scene) send(entity, id string, properties string, headers ...string) {
	s.Helper()
	if err := s.trySend(entity, id, properties, headers...); err != nil {
		s.Fatalf("send %s: %v", id, err)
	}
}

func (s *scene) trySend(entity, id string, properties string, headers ...string) error {
	s.Helper()
	if properties != "" {
		properties = "," + properties
	}
	h := http.Header{}
	h.Set(rest.HeaderBrokerProperties, fmt.Sprintf(`{"MessageId":%q%s}`, id, properties))
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	parsed, err := rest.ParseSingle(h, []byte("body of "+id))
	s.Must(err)
	m := &azservicebus.Message{Body: parsed[0].Body, ApplicationProperties: parsed[0].Properties, MessageID: &parsed[0].Broker.MessageID}
	b := parsed[0].Broker
	if b.SessionID != "" {
		m.SessionID = &b.SessionID
	}
	if b.PartitionKey != "" {
		m.PartitionKey = &b.PartitionKey
	}
	if b.Label != "" {
		m.Subject = &b.Label
	}
	if b.TimeToLive > 0 {
		m.TimeToLive = &b.TimeToLive
	}
	if !b.ScheduledEnqueueTime.IsZero() {
		m.ScheduledEnqueueTime = &b.ScheduledEnqueueTime
	}
	return s.sendAll(entity, m)
}

// sendAll sends messages in one batch, and returns when they and their companions are accepted.
func (s *scene) sendAll(entity string, ms ...*azservicebus.Message) error {
	s.Helper()
	return s.watched(entity, ms, func(ctx context.Context, sender *azservicebus.Sender) error {
		if len(ms) == 1 {
			return sender.SendMessage(ctx, ms[0], nil)
		}
		batch, err := sender.NewMessageBatch(ctx, nil)
		if err != nil {
			return err
		}
		for _, m := range ms {
			if err := batch.AddMessage(m, nil); err != nil {
				return err
			}
		}
		return sender.SendMessageBatch(ctx, batch, nil)
	})
}

// watched has transmit send messages while their companions are written.
func (s *scene) watched(entity string, ms []*azservicebus.Message, transmit func(context.Context, *azservicebus.Sender) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), sendTimeout)
	defer cancel()
	sender := s.senders[entity]
	if sender == nil {
		var err error
		if sender, err = s.sending.NewSender(entity, nil); err != nil {
			return err
		}
		s.senders[entity] = sender
	}
	if !s.monitored[entity] {
		return transmit(ctx, sender)
	}
	now := s.Scheduler.Now()
	refs, findable := s.references(ms, now)
	if len(refs) == 0 {
		return transmit(ctx, sender)
	}
	written := s.Scheduler.Begin(scheduler.Companion{Entity: entity, References: refs, Findable: findable})
	if err := transmit(ctx, sender); err != nil {
		return err
	}
	if err := written(ctx); err != nil {
		return err
	}
	// A send that was retried may have been stamped after its window: those messages get a
	// second companion.
	later := s.Scheduler.Now()
	latest := later.Time.Add(later.Uncertainty)
	var again []scheduler.Reference
	for _, r := range refs {
		if r.Until.IsZero() || !latest.After(r.Until) {
			continue
		}
		r.Until = latest
		if r.Within > 0 && !r.Deadline.IsZero() {
			r.Deadline = later.Time.Add(r.Within)
		}
		again = append(again, r)
	}
	if len(again) == 0 {
		return nil
	}
	return s.Scheduler.Schedule(ctx, scheduler.Companion{Entity: entity, References: again, Findable: findable})
}

// references are those of messages, without repetitions where they name none. findable says that
// slots stand for them.
func (s *scene) references(ms []*azservicebus.Message, now scheduler.Instant) (refs []scheduler.Reference, findable bool) {
	var lives []time.Duration
	findable = s.slots
	for _, m := range ms {
		r, found, ok := s.reference(m, now)
		if !ok {
			continue
		}
		// As Pays has it: a slot's companion is due long before such a deadline.
		refs, lives, findable = append(refs, r), append(lives, r.Within), findable && found && r.Within >= time.Second
	}
	if findable = findable && len(refs) > 0 && (!s.auto || s.Scheduler.Pays(workQueue, lives, now)); findable {
		until := now.StampedBy()
		var slots []scheduler.Reference
		for _, r := range refs {
			if n := len(slots); n == 0 || slots[n-1].Within != r.Within || slots[n-1].Stated != r.Stated {
				slots = append(slots, scheduler.Reference{From: refs[0].From, Until: until, Within: r.Within, Stated: r.Stated})
			}
		}
		return slots, true
	}
	seen := map[scheduler.Reference]bool{}
	distinct := refs[:0]
	for _, r := range refs {
		if r.WithoutID() && seen[r] {
			continue
		}
		seen[r] = r.WithoutID()
		distinct = append(distinct, r)
	}
	return distinct, false
}

// reference is what the companion of m says, and stamps its time to live. ok is false when m has
// no deadline.
func (s *scene) reference(m *azservicebus.Message, now scheduler.Instant) (r scheduler.Reference, findable, ok bool) {
	s.Helper()
	var life, stamped time.Duration
	if m.TimeToLive != nil {
		life = *m.TimeToLive
	}
	var scheduled time.Time
	if m.ScheduledEnqueueTime != nil {
		scheduled = *m.ScheduledEnqueueTime
	}
	property := func(name string) any { return m.ApplicationProperties[name] }
	byEntity := max(s.settings.DefaultMessageTimeToLive, s.queueLife)
	shortest := duration.Shorter(byEntity, s.subscriptionLife)
	at, within, err := scheduler.StatedDeadline(property)
	s.Must(err)
	complete, err := scheduler.StatedCompletion(property)
	s.Must(err)
	if complete == 0 {
		complete = s.settings.CompleteWithin
	}
	r = scheduler.Reference{Sent: now.Time}
	switch {
	case !at.IsZero():
		r.Stated = "deadline"
	case within > 0:
		r.Stated, r.Within = "within", duration.Shorter(within, duration.Shorter(life, byEntity))
	case life > 0:
		r.Stated, r.Within = "ttl", duration.Shorter(life, shortest)
	case s.settings.Deadline > 0:
		r.Stated, r.Within = "entity", s.settings.Deadline
	case shortest > 0:
		r.Stated, r.Within = "default", shortest
	case complete > 0:
		r.Stated, r.Within = scheduler.StatedComplete, complete
	default:
		return r, false, false
	}
	named := m.MessageID != nil && *m.MessageID != ""
	if named {
		r.MessageID = *m.MessageID
		if m.SessionID != nil {
			r.SessionID = *m.SessionID
		}
	}
	earliest := scheduled
	if now.Measured {
		if from := now.Time.Add(-now.Uncertainty).Truncate(time.Millisecond); from.After(earliest) {
			earliest = from
		}
		r.From, r.Until = earliest, now.Time.Add(now.Uncertainty+sendWindow)
		if scheduled.After(now.Time) {
			r.Until = scheduled.Add(activationWindow)
		}
	}
	start := now.Time
	if scheduled.After(start) {
		start = scheduled
	}
	wanted := r.Within
	r.Deadline = start.Add(r.Within)
	if r.Within == 0 {
		r.Deadline = at
		if !earliest.IsZero() {
			wanted = max(at.Sub(earliest).Truncate(time.Millisecond)+time.Millisecond, time.Millisecond)
		}
	}
	own := r.Stated == "ttl" || r.Stated == "default" || r.Stated == scheduler.StatedComplete
	kept := duration.Shorter(life, byEntity)
	if s.stamp && named && !own && wanted > 0 && (kept == 0 || wanted < kept) {
		m.TimeToLive, stamped = &wanted, wanted
	}
	findable = named && r.Within > 0 && r.Stated != scheduler.StatedComplete && (own || stamped == wanted || kept == wanted) &&
		now.Measured && m.SessionID == nil && scheduled.IsZero()
	if r.Stated == scheduler.StatedComplete {
		return r, findable, true
	}
	span := r.Deadline.Sub(start)
	r.CompleteWithin = complete
	if complete > 0 && complete < span {
		r.Ahead = span - complete
	}
	for _, before := range s.settings.WarnBefore {
		if before < span {
			r.Ahead = max(r.Ahead, before)
		}
	}
	return r, findable && r.Ahead == 0, true
}

// sendLives sends a message for each time to live, all in one batch.
func (s *scene) sendLives(entity string, lives []time.Duration) {
	s.Helper()
	ms := make([]*azservicebus.Message, len(lives))
	for i := range lives {
		s.sent++
		ms[i] = &azservicebus.Message{Body: []byte("b"), MessageID: new(fmt.Sprint("b-", s.sent)), TimeToLive: &lives[i]}
	}
	s.Must(s.sendAll(entity, ms...))
}
