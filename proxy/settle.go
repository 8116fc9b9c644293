// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
	"overdue/scheduler/index"
)

const (
	annotationEnqueuedTime          = "x-opt-enqueued-time"
	annotationSequenceNumber        = "x-opt-sequence-number"
	annotationEnqueueSequenceNumber = "x-opt-enqueue-sequence-number"
)

// observe chooses the links of the AMQP endpoint whose settlements to observe: those on which
// apps receive from a monitored queue. A settlement in a subscription says nothing: a topic has
// many copies of a message, and one companion.
func (p *Proxy) observe(l relay.Link) relay.Observer {
	at := l.Class.Address
	if l.Class.Kind != rights.Receive || at.SubQueue != address.Main || at.Subscription != "" || p.excluded(at.Name) {
		return nil
	}
	return &settleLink{p, at.Name}
}

// A settleLink observes the deliveries from one monitored queue to an app.
type settleLink struct {
	p      *Proxy
	entity string
}

// Delivered identifies a message that this process may have sent.
func (l *settleLink) Delivered(payload []byte) (relay.Note, bool) {
	raw, ok := headOf(payload)
	if !ok {
		return relay.Note{}, false
	}
	d, ok := l.p.delivered(l.entity, &raw)
	return noteOf(d), ok
}

// Settled reports a message that was settled for good to the scheduler.
func (l *settleLink) Settled(n relay.Note) {
	d := deliveredOf(n)
	d.Entity = l.entity
	l.p.settled(d)
}

// settled tells the scheduler that the broker has confirmed a Complete or DeadLetter by the
// receiver, or a receive-and-delete. The companion may be needless.
func (p *Proxy) settled(d index.Delivered) { p.cfg.Scheduler.Settle(d) }

// delivered identifies a message that was delivered from a queue, for settled. ok is false if its
// ids are not those of a message sent from here, or if it lacks an enqueued-time.
func (p *Proxy) delivered(entity string, m *amqp.Message) (d index.Delivered, ok bool) {
	id, named := idBytes(m.Properties, amqp.PropertyMessageID)
	session, legible := idBytes(m.Properties, amqp.PropertyGroupID)
	if !named || !legible || len(id) == 0 {
		return d, false
	}
	if d.Key, ok = p.cfg.Scheduler.Expects(entity, id, session); !ok {
		return d, false
	}
	stamp, ok := amqp.MapLookup(m.MessageAnnotations, annotationEnqueuedTime)
	if !ok || forwarded(m.MessageAnnotations) {
		return d, false
	}
	d.Enqueued = stamp.Timestamp().Time()
	if stamp.Err() != nil || p.cfg.Scheduler.InSlots(entity, d.Enqueued) {
		return d, false
	}
	d.Deadline, ok = p.deadlineOf(entity, m, d.Enqueued)
	return d, ok
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
