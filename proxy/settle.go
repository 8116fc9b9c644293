// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
	"overdue/internal/slack"
	"overdue/scheduler/index"
)

const (
	annotationEnqueuedTime          = "x-opt-enqueued-time"
	annotationSequenceNumber        = "x-opt-sequence-number"
	annotationEnqueueSequenceNumber = "x-opt-enqueue-sequence-number"
)

// observe chooses the links of the AMQP endpoint whose settlements to observe: those on which
// apps receive from a monitored entity. A settlement in a subscription makes no companion needless:
// a topic has many copies of a message, and one companion.
func (p *Proxy) observe(l relay.Link) relay.Observer {
	at := l.Class.Address
	if l.Class.Kind != rights.Receive || at.SubQueue != address.Main || p.excluded(at.Name) {
		return nil
	}
	return &settleLink{
		p:      p,
		entity: at.Name,
		path:   at.Key(),
		copies: at.Subscription != "",
		slack:  p.cfg.Slack.Link(at.String()),
	}
}

// A settleLink observes the deliveries from one monitored queue or subscription to an app.
type settleLink struct {
	p      *Proxy
	entity string      // the queue or topic
	path   string      // of the queue or subscription
	copies bool        // it is a subscription
	slack  *slack.Link // nil = it is not measured
}

// Delivered identifies a message: by its number and stamp for the monitor, and by a key if this
// process may have sent it. It notes the deadline of those, and of a sample of others.
func (l *settleLink) Delivered(payload []byte) (relay.Note, bool) {
	raw, ok := amqp.ParseHead(payload)
	if !ok {
		return relay.Note{}, false
	}
	d, weight, ok := l.delivered(&raw)
	return noteOf(d, weight), ok
}

// Settling reports a message that the receiver settles.
func (l *settleLink) Settling(n relay.Note) {
	d, _ := l.deliveredOf(n)
	l.p.cfg.Scheduler.BeginSettle(d)
}

// Settled reports a message that was settled for good: the broker has confirmed a Complete or
// DeadLetter by the receiver, or a receive-and-delete. Its companion may be needless.
func (l *settleLink) Settled(n relay.Note) {
	d, weight := l.deliveredOf(n)
	l.p.cfg.Scheduler.Settle(d)
	if weight == 0 {
		return
	}
	// A clock that is not measured may be wrong by any amount.
	if now := l.p.cfg.Scheduler.Now(); now.Measured {
		l.slack.Settled(d.Enqueued, now.Time, d.Deadline, weight)
	}
}

// delivered identifies a message. It has a key if it may have been sent from here, and a weight if
// its slack is to be measured; neither without a deadline. ok is false if it has no sequence number
// or no enqueued-time.
func (l *settleLink) delivered(m *amqp.Message) (d index.Delivered, weight uint64, ok bool) {
	number, numbered := amqp.MapLookup(m.MessageAnnotations, annotationSequenceNumber)
	stamp, stamped := amqp.MapLookup(m.MessageAnnotations, annotationEnqueuedTime)
	d.Number, d.Enqueued = number.Long(), stamp.Timestamp().Time()
	if !numbered || !stamped || number.Err() != nil || stamp.Err() != nil {
		return d, 0, false
	}
	weight = 1
	if d.Key = l.keyOf(m); d.Key == (index.Key{}) {
		weight = l.slack.Weight()
	}
	if weight > 0 && (l.copies || !forwarded(m.MessageAnnotations, d.Number)) { // a copy has the number that the topic gave
		if d.Deadline, ok = l.p.deadlineOf(l.entity, m, d.Enqueued); ok {
			return d, weight, true
		}
	}
	d.Key = index.Key{}
	return d, 0, true
}

// keyOf returns the key of a message that may have been sent from here, and that of no message for
// others.
func (l *settleLink) keyOf(m *amqp.Message) (key index.Key) {
	id, idErr := idOf(amqp.ListField(m.Properties, amqp.PropertyMessageID))
	session, sessionErr := idOf(amqp.ListField(m.Properties, amqp.PropertyGroupID))
	if l.copies || idErr != nil || sessionErr != nil || len(id) == 0 {
		return key
	}
	return l.p.cfg.Scheduler.Expects(l.entity, id, session)
}

// forwarded reports whether the message with a sequence number was first enqueued in another
// entity. Its id may there have been given to another message than here.
func forwarded(annotations amqp.Raw, number int64) bool {
	was, ok := amqp.MapLookup(annotations, annotationEnqueueSequenceNumber)
	first := was.Long()
	return ok && (was.Err() != nil || first != 0 && first != number)
}

// deadlineOf returns the deadline of a message that was enqueued then, computed as at its send.
// If a TTL was stamped meanwhile, it ends at the same deadline.
func (p *Proxy) deadlineOf(entity string, raw *amqp.Message, enqueued time.Time) (time.Time, bool) {
	ttl, err := raw.LifeSince(enqueued)
	if err != nil {
		return time.Time{}, false
	}
	properties := raw.ApplicationProperties
	m := message{TTL: ttl, Property: func(name string) any { return propertyOf(properties, name) }}
	settings := p.cfg.Settings(entity)
	st, err := statedBy(&m, settings)
	switch {
	case err != nil || st.by == "" || settings.Unknown:
		return time.Time{}, false
	case st.within > 0:
		return enqueued.Add(st.within), true
	}
	return st.at, true
}

func noteOf(d index.Delivered, weight uint64) relay.Note {
	return relay.Note{d.Key[0], d.Key[1], uint64(d.Number), uint64(d.Enqueued.UnixNano()), uint64(d.Deadline.UnixNano()), weight}
}

func (l *settleLink) deliveredOf(n relay.Note) (d index.Delivered, weight uint64) {
	return index.Delivered{
		Key:      index.Key{n[0], n[1]},
		Entity:   l.path,
		Number:   int64(n[2]),
		Enqueued: time.Unix(0, int64(n[3])),
		Deadline: time.Unix(0, int64(n[4])),
	}, n[5]
}
