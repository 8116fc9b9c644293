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
// a topic has many copies of a message, and one companion. Only its slack is measured.
func (p *Proxy) observe(l relay.Link) relay.Observer {
	at := l.Class.Address
	copies := at.Subscription != ""
	if l.Class.Kind != rights.Receive || at.SubQueue != address.Main || p.excluded(at.Name) || copies && p.cfg.Slack == nil {
		return nil
	}
	return &settleLink{p: p, entity: at.Name, copies: copies, slack: p.cfg.Slack.Link(at.String())}
}

// A settleLink observes the deliveries from one monitored queue or subscription to an app.
type settleLink struct {
	p      *Proxy
	entity string      // the queue or topic
	copies bool        // it is a subscription
	slack  *slack.Link // nil = it is not measured
}

// Delivered identifies a message that this process may have sent, and notes the deadline of any
// other. The note of such a message has its weight in place of a key.
func (l *settleLink) Delivered(payload []byte) (relay.Note, bool) {
	raw, ok := headOf(payload)
	if !ok {
		return relay.Note{}, false
	}
	d, ok := l.delivered(&raw)
	return noteOf(d), ok
}

// Settled reports a message that was settled for good: the broker has confirmed a Complete or
// DeadLetter by the receiver, or a receive-and-delete. Its companion may be needless.
func (l *settleLink) Settled(n relay.Note) {
	d := deliveredOf(n)
	weight := uint64(1)
	if d.Key[0] == 0 {
		weight = d.Key[1]
	} else {
		d.Entity = l.entity
		l.p.cfg.Scheduler.Settle(d)
	}
	// A clock that is not measured may be wrong by any amount.
	if now := l.p.cfg.Scheduler.Now(); now.Measured {
		l.slack.Settled(d.Enqueued, now.Time, d.Deadline, weight)
	}
}

// delivered reads when a message was enqueued, and its deadline. It has a key if its ids are those
// of a message sent from here, and the index may know it, and otherwise a weight. ok is false if nobody wants to know of
// its settlement, or if it has no enqueued-time or no deadline.
func (l *settleLink) delivered(m *amqp.Message) (d index.Delivered, ok bool) {
	p := l.p
	key, expected := index.Key{}, false
	if !l.copies {
		key, expected = p.keyOf(l.entity, m)
	}
	if !expected {
		if key = (index.Key{0, l.slack.Weight()}); key[1] == 0 {
			return d, false
		}
	}
	stamp, ok := amqp.MapLookup(m.MessageAnnotations, annotationEnqueuedTime)
	if !ok || !l.copies && forwarded(m.MessageAnnotations) { // a copy has the number that the topic gave
		return d, false
	}
	if d.Enqueued = stamp.Timestamp().Time(); stamp.Err() != nil {
		return d, false
	}
	if expected && p.cfg.Scheduler.InSlots(l.entity, d.Enqueued) {
		if l.slack == nil {
			return d, false
		}
		key = index.Key{0, 1}
	}
	d.Key = key
	d.Deadline, ok = p.deadlineOf(l.entity, m, d.Enqueued)
	return d, ok
}

// keyOf returns the key of a message that may have been sent from here.
func (p *Proxy) keyOf(entity string, m *amqp.Message) (key index.Key, ok bool) {
	id, named := idBytes(m.Properties, amqp.PropertyMessageID)
	session, legible := idBytes(m.Properties, amqp.PropertyGroupID)
	if !named || !legible || len(id) == 0 {
		return key, false
	}
	return p.cfg.Scheduler.Expects(entity, id, session)
}

// forwarded reports whether the message was first enqueued in another entity. Its id may there
// have been given to another message than here.
func forwarded(annotations amqp.Raw) bool {
	was, ok := amqp.MapLookup(annotations, annotationEnqueueSequenceNumber)
	if !ok {
		return false
	}
	is, ok := amqp.MapLookup(annotations, annotationSequenceNumber)
	first := was.Long()
	return was.Err() != nil || first != 0 && (!ok || first != is.Long() || is.Err() != nil)
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

// headOf reads the sections before the body. ok is false when they do not end within b.
func headOf(b []byte) (m amqp.Message, ok bool) {
	for r := amqp.NewReader(b); !r.Done(); {
		code := r.Descriptor()
		if r.Err() == nil && code >= amqp.CodeData {
			return m, true
		}
		v := r.Raw()
		if r.Err() != nil {
			return m, false
		}
		switch code {
		case amqp.CodeHeader:
			m.Header = v
		case amqp.CodeMessageAnnotations:
			m.MessageAnnotations = v
		case amqp.CodeProperties:
			m.Properties = v
		case amqp.CodeApplicationProperties:
			m.ApplicationProperties = v
		}
	}
	return m, len(b) > 0
}

// idBytes returns an id as text, empty when there is none. An id of another type is formatted.
func idBytes(properties amqp.Raw, field int) (text []byte, ok bool) {
	r, ok := amqp.ListField(properties, field)
	if !ok {
		return nil, true
	}
	id := r
	if text = id.StringBytes(); id.Err() == nil {
		return text, true
	}
	id = r
	v := id.Value()
	return []byte(amqp.IDText(v)), id.Err() == nil
}

func noteOf(d index.Delivered) relay.Note {
	return relay.Note{d.Key[0], d.Key[1], uint64(d.Enqueued.UnixNano()), uint64(d.Deadline.UnixNano())}
}

func deliveredOf(n relay.Note) index.Delivered {
	return index.Delivered{Key: index.Key{n[0], n[1]}, Enqueued: time.Unix(0, int64(n[2])), Deadline: time.Unix(0, int64(n[3]))}
}
