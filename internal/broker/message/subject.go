// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strings"

	"overdue/internal/amqp"
	"overdue/internal/broker/filter"
	"overdue/internal/broker/queue"
)

// A Subject is a message as filters see it. It takes the message apart when the
// first filter asks, and once for all of them. It is used for one message after
// the other.
type Subject struct {
	view   *queue.View
	parsed bool
	m      amqp.Message
	user   []userProperty // those that were set later in front of the sender's
	sys    [sysProperties]filter.Value
	known  uint32 // which of sys have been looked up, by bit
}

// sysProperties is how many there are.
const sysProperties = int(filter.Size) + 1

// A userProperty is an application property.
type userProperty struct {
	name  string
	value filter.Value
	raw   amqp.Raw // as the sender encoded it; nil where it was set later, to set
	set   any
}

// was is the value with its type.
func (p *userProperty) was() any {
	if p.raw == nil {
		return p.set
	}
	r := amqp.NewReader(p.raw)
	return r.Value()
}

// Reset makes s the subject of another message, and reuses its memory.
func (s *Subject) Reset(v *queue.View) {
	s.view, s.parsed, s.known = v, false, 0
	clear(s.user)
	s.user = s.user[:0]
}

// load takes the message apart. It was read when it came in, so that there are
// no errors left.
func (s *Subject) load() {
	if s.parsed {
		return
	}
	s.parsed = true
	s.m, _ = amqp.ParseMessage(s.view.Body)
	v := s.view
	if v.DeadLetterReason != "" {
		s.over(PropDeadLetterReason, v.DeadLetterReason)
	}
	if v.DeadLetterErrorDescription != "" {
		s.over(PropDeadLetterDescription, v.DeadLetterErrorDescription)
	}
	for _, p := range v.Properties {
		s.over(p.Key, p.Value)
	}
	s.loadSent(s.m.ApplicationProperties)
}

func (s *Subject) over(name string, value any) {
	s.user = append(s.user, userProperty{name: name, value: FilterValue(value), set: value})
}

// loadSent reads the sender's properties. All their strings are parts of one.
func (s *Subject) loadSent(raw amqp.Raw) {
	if raw == nil {
		return
	}
	text := string(raw)
	r := amqp.NewReader(raw)
	pairs, n := r.Map()
	part := func(b []byte) string { // b has just been read from pairs
		end := len(raw) - pairs.Len()
		return text[end-len(b) : end]
	}
	for range n {
		p := userProperty{name: part(pairs.StringBytes())}
		rest := pairs.Rest()
		if pairs.IsText() {
			p.value = filter.StringValue(part(pairs.StringBytes()))
		} else {
			p.value = FilterValue(pairs.Value())
		}
		if pairs.Err() != nil {
			return
		}
		p.raw = rest[:len(rest)-pairs.Len()]
		s.user = append(s.user, p)
	}
}

// find returns the application property of that name, whatever its case.
func (s *Subject) find(name string) *userProperty {
	s.load()
	for i := range s.user {
		if strings.EqualFold(s.user[i].name, name) {
			return &s.user[i]
		}
	}
	return nil
}

// User implements filter.Message.
func (s *Subject) User(name string) filter.Value {
	if p := s.find(name); p != nil {
		return p.value
	}
	return filter.Value{}
}

// Sys implements filter.Message.
func (s *Subject) Sys(p filter.SysProperty) filter.Value {
	if bit := uint32(1) << p; s.known&bit == 0 {
		s.known |= bit
		s.sys[p] = s.sysValue(p)
	}
	return s.sys[p]
}

// sysFields are the places in the properties section that are plain text.
var sysFields = map[filter.SysProperty]int{
	filter.To:               amqp.PropertyTo,
	filter.Label:            amqp.PropertySubject,
	filter.ReplyTo:          amqp.PropertyReplyTo,
	filter.ContentType:      amqp.PropertyContentType,
	filter.ReplyToSessionID: amqp.PropertyReplyToGroupID,
}

func (s *Subject) sysValue(p filter.SysProperty) filter.Value {
	v := s.view
	switch p {
	case filter.MessageID:
		return filter.StringValue(v.MessageID)
	case filter.SessionID:
		if v.HasSession {
			return filter.StringValue(v.SessionID)
		}
	case filter.EnqueuedTime:
		return filter.TimeValue(v.EnqueuedTime)
	case filter.ScheduledEnqueueTime:
		if !v.ScheduledEnqueueTime.IsZero() {
			return filter.TimeValue(v.ScheduledEnqueueTime)
		}
	case filter.ExpiresAt:
		if !v.ExpiresAt.IsZero() {
			return filter.TimeValue(v.ExpiresAt)
		}
	case filter.TimeToLive:
		if v.TTL > 0 {
			return filter.DurationValue(v.TTL)
		}
		return filter.Forever
	case filter.DeliveryCount:
		return filter.IntValue(int64(v.DeliveryCount))
	case filter.SequenceNumber:
		return filter.IntValue(v.SequenceNumber)
	case filter.EnqueuedSequenceNumber:
		return filter.IntValue(v.EnqueuedSequenceNumber)
	case filter.Size:
		return filter.IntValue(int64(len(v.Body)))
	case filter.CorrelationID:
		s.load()
		if _, has := amqp.ListField(s.m.Properties, amqp.PropertyCorrelationID); has {
			if id, err := nameField(s.m.Properties, amqp.PropertyCorrelationID, "correlation-id"); err == nil {
				return filter.StringValue(id)
			}
		}
	case filter.PartitionKey:
		return s.annotation(AnnPartitionKey)
	case filter.ViaPartitionKey:
		return s.annotation(AnnViaPartitionKey)
	default:
		s.load()
		if r, has := amqp.ListField(s.m.Properties, sysFields[p]); has && r.IsText() {
			return filter.StringValue(string(r.StringBytes()))
		}
	}
	return filter.NullValue()
}

func (s *Subject) annotation(name string) filter.Value {
	s.load()
	if r, has := amqp.MapLookup(s.m.MessageAnnotations, name); has && r.IsText() {
		return filter.StringValue(string(r.StringBytes()))
	}
	return filter.NullValue()
}
