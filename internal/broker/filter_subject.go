// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"

	"overdue/internal/amqp"
	"overdue/internal/queue"
	"overdue/internal/sqlfilter"
)

// A subject is a message as filters see it. It takes the message apart when the
// first filter asks, and once for all of them. It is used for one message after
// the other.
type subject struct {
	view   *queue.View
	parsed bool
	m      amqp.Message
	user   []userProperty // those that were set later in front of the sender's
	sys    [sysProperties]sqlfilter.Value
	known  uint32 // which of sys have been looked up, by bit
}

// sysProperties is how many there are.
const sysProperties = int(sqlfilter.Size) + 1

// A userProperty is an application property.
type userProperty struct {
	name  string
	value sqlfilter.Value
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

func (s *subject) reset(v *queue.View) {
	s.view, s.parsed, s.known = v, false, 0
	clear(s.user)
	s.user = s.user[:0]
}

// load takes the message apart. It was read when it came in, so that there are
// no errors left.
func (s *subject) load() {
	if s.parsed {
		return
	}
	s.parsed = true
	s.m, _ = amqp.ParseMessage(s.view.Body)
	v := s.view
	if v.DeadLetterReason != "" {
		s.over(propDeadLetterReason, v.DeadLetterReason)
	}
	if v.DeadLetterErrorDescription != "" {
		s.over(propDeadLetterDescription, v.DeadLetterErrorDescription)
	}
	for _, p := range v.Properties {
		s.over(p.Key, p.Value)
	}
	s.loadSent(s.m.ApplicationProperties)
}

func (s *subject) over(name string, value any) {
	s.user = append(s.user, userProperty{name: name, value: filterValue(value), set: value})
}

// loadSent reads the sender's properties. All their strings are parts of one.
func (s *subject) loadSent(raw amqp.Raw) {
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
			p.value = sqlfilter.StringValue(part(pairs.StringBytes()))
		} else {
			p.value = filterValue(pairs.Value())
		}
		if pairs.Err() != nil {
			return
		}
		p.raw = rest[:len(rest)-pairs.Len()]
		s.user = append(s.user, p)
	}
}

// find returns the application property of that name, whatever its case.
func (s *subject) find(name string) *userProperty {
	s.load()
	for i := range s.user {
		if strings.EqualFold(s.user[i].name, name) {
			return &s.user[i]
		}
	}
	return nil
}

// User implements sqlfilter.Message.
func (s *subject) User(name string) sqlfilter.Value {
	if p := s.find(name); p != nil {
		return p.value
	}
	return sqlfilter.Value{}
}

// Sys implements sqlfilter.Message.
func (s *subject) Sys(p sqlfilter.SysProperty) sqlfilter.Value {
	if bit := uint32(1) << p; s.known&bit == 0 {
		s.known |= bit
		s.sys[p] = s.lookSys(p)
	}
	return s.sys[p]
}

// sysFields are the places in the properties section that are plain text.
var sysFields = map[sqlfilter.SysProperty]int{
	sqlfilter.To:               amqp.PropertyTo,
	sqlfilter.Label:            amqp.PropertySubject,
	sqlfilter.ReplyTo:          amqp.PropertyReplyTo,
	sqlfilter.ContentType:      amqp.PropertyContentType,
	sqlfilter.ReplyToSessionID: amqp.PropertyReplyToGroupID,
}

func (s *subject) lookSys(p sqlfilter.SysProperty) sqlfilter.Value {
	v := s.view
	switch p {
	case sqlfilter.MessageID:
		return sqlfilter.StringValue(v.MessageID)
	case sqlfilter.SessionID:
		if v.HasSession {
			return sqlfilter.StringValue(v.SessionID)
		}
	case sqlfilter.EnqueuedTime:
		return sqlfilter.TimeValue(v.EnqueuedTime)
	case sqlfilter.ScheduledEnqueueTime:
		if !v.ScheduledEnqueueTime.IsZero() {
			return sqlfilter.TimeValue(v.ScheduledEnqueueTime)
		}
	case sqlfilter.ExpiresAt:
		if !v.ExpiresAt.IsZero() {
			return sqlfilter.TimeValue(v.ExpiresAt)
		}
	case sqlfilter.TimeToLive:
		if v.TTL > 0 {
			return sqlfilter.DurationValue(v.TTL)
		}
		return sqlfilter.Forever
	case sqlfilter.DeliveryCount:
		return sqlfilter.IntValue(int64(v.DeliveryCount))
	case sqlfilter.SequenceNumber:
		return sqlfilter.IntValue(v.SequenceNumber)
	case sqlfilter.EnqueuedSequenceNumber:
		return sqlfilter.IntValue(v.EnqueuedSequenceNumber)
	case sqlfilter.Size:
		return sqlfilter.IntValue(int64(len(v.Body)))
	case sqlfilter.CorrelationID:
		s.load()
		if _, has := amqp.ListField(s.m.Properties, amqp.PropertyCorrelationID); has {
			if id, err := nameField(s.m.Properties, amqp.PropertyCorrelationID, "correlation-id"); err == nil {
				return sqlfilter.StringValue(id)
			}
		}
	case sqlfilter.PartitionKey:
		return s.annotation(annPartitionKey)
	case sqlfilter.ViaPartitionKey:
		return s.annotation(annViaPartitionKey)
	default:
		s.load()
		if r, has := amqp.ListField(s.m.Properties, sysFields[p]); has && r.IsText() {
			return sqlfilter.StringValue(string(r.StringBytes()))
		}
	}
	return sqlfilter.NullValue()
}

func (s *subject) annotation(name string) sqlfilter.Value {
	s.load()
	if r, has := amqp.MapLookup(s.m.MessageAnnotations, name); has && r.IsText() {
		return sqlfilter.StringValue(string(r.StringBytes()))
	}
	return sqlfilter.NullValue()
}
