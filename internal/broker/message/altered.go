// SPDX-License-Identifier: Apache-2.0

package message

import (
	"slices"
	"strings"

	"overdue/internal/amqp"
	"overdue/internal/broker/filter"
	"overdue/internal/broker/queue"
)

// Altered is a subject with the changes that an action makes for one copy. What
// is set is laid over the sender's bytes, which the copies go on to share; only
// what is removed, and system properties, need bytes of their own.
type Altered struct {
	*Subject
	set  []queue.Property
	gone []string // names, as the action spells them
	sys  map[filter.SysProperty]filter.Value
}

// NewAltered returns s without a change.
func NewAltered(s *Subject) *Altered { return &Altered{Subject: s} }

// User implements filter.Message.
func (a *Altered) User(name string) filter.Value {
	if i := indexFold(a.set, name); i >= 0 {
		return FilterValue(a.set[i].Value)
	}
	if containsFold(a.gone, name) {
		return filter.Value{}
	}
	return a.Subject.User(name)
}

// Sys implements filter.Message.
func (a *Altered) Sys(p filter.SysProperty) filter.Value {
	if v, ok := a.sys[p]; ok {
		return v
	}
	return a.Subject.Sys(p)
}

// SetUser implements filter.Mutable.
func (a *Altered) SetUser(name string, v filter.Value) {
	if i := indexFold(a.set, name); i >= 0 {
		a.set[i].Value = WireValue(v, a.set[i].Value)
		return
	}
	var was any
	if p := a.find(name); p != nil && !containsFold(a.gone, name) {
		name, was = p.name, p.was()
	}
	a.set = append(a.set, queue.Property{Key: name, Value: WireValue(v, was)})
}

// RemoveUser implements filter.Mutable.
func (a *Altered) RemoveUser(name string) {
	if i := indexFold(a.set, name); i >= 0 {
		a.set = slices.Delete(a.set, i, i+1)
	}
	a.gone = append(a.gone, name)
}

// SetSys implements filter.Mutable.
func (a *Altered) SetSys(p filter.SysProperty, v filter.Value) error {
	if len(v.Text()) > MaxIDLength {
		switch p {
		case filter.MessageID, filter.SessionID, filter.PartitionKey, filter.ViaPartitionKey:
			return errTooLong(p.String())
		}
	}
	if a.sys == nil {
		a.sys = make(map[filter.SysProperty]filter.Value)
	}
	a.sys[p] = v
	return nil
}

func indexFold(ps []queue.Property, name string) int {
	return slices.IndexFunc(ps, func(p queue.Property) bool { return strings.EqualFold(p.Key, name) })
}

func containsFold(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// Message returns m with the changes, and whether its properties are within the
// bounds; where they are not, m is as it was.
func (a *Altered) Message(m queue.Message, ruleName string) (_ queue.Message, fits bool, err error) {
	out := m
	out.Properties = slices.Clone(m.Properties)
	out.Properties = slices.DeleteFunc(out.Properties, func(p queue.Property) bool {
		return containsFold(a.gone, p.Key) || indexFold(a.set, p.Key) >= 0 || p.Key == PropRuleName
	})
	if a.changes(PropDeadLetterReason) {
		out.DeadLetterReason = ""
	}
	if a.changes(PropDeadLetterDescription) {
		out.DeadLetterErrorDescription = ""
	}
	out.Properties = append(out.Properties, a.set...)
	if indexFold(a.set, PropRuleName) < 0 {
		out.Properties = append(out.Properties, queue.Property{Key: PropRuleName, Value: ruleName})
	}
	size := 0
	for _, p := range out.Properties {
		size += len(p.Key)
		switch v := p.Value.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
	}
	for _, v := range a.sys {
		size += len(v.Text())
	}
	if size > queue.MaxPropertiesSize {
		return m, false, nil
	}
	if len(a.gone) > 0 || len(a.sys) > 0 {
		err = a.rebuild(&out)
	}
	return out, true, err
}

func (a *Altered) changes(name string) bool {
	return indexFold(a.set, name) >= 0 || containsFold(a.gone, name)
}

// rebuild gives the copy bytes of its own.
func (a *Altered) rebuild(out *queue.Message) error {
	a.load()
	m := a.m
	m.ApplicationProperties = a.remaining(m.ApplicationProperties)
	if err := a.rebuildHeader(&m, out); err != nil {
		return err
	}
	if err := a.rebuildAnnotations(&m); err != nil {
		return err
	}
	a.rebuildProperties(&m, out)
	out.Body = m.Append(make([]byte, 0, len(out.Body)+256))
	return nil
}

// remaining returns the sender's properties without those that were removed.
func (a *Altered) remaining(raw amqp.Raw) amqp.Raw {
	if raw == nil || len(a.gone) == 0 {
		return raw
	}
	r := amqp.NewReader(raw)
	pairs, n := r.Map()
	out, start := amqp.BeginMap(make([]byte, 0, len(raw)))
	kept := 0
	for range n {
		pair := pairs.Rest()
		name := pairs.StringBytes()
		pairs.Skip()
		if pairs.Err() == nil && !containsFold(a.gone, string(name)) {
			out = append(out, pair[:len(pair)-pairs.Len()]...)
			kept++
		}
	}
	return amqp.EndMap(out, start, kept)
}

func (a *Altered) rebuildHeader(m *amqp.Message, out *queue.Message) error {
	v, ok := a.sys[filter.TimeToLive]
	if !ok {
		return nil
	}
	h, err := amqp.DecodeHeader(m.Header)
	if err != nil {
		return err
	}
	out.TTL = 0
	if v.Kind() == filter.Duration && v != filter.Forever {
		out.TTL = max(v.Duration(), 0)
	}
	h.TTL, h.HasTTL = Milliseconds(out.TTL), out.TTL > 0
	m.Header = h.Raw()
	return nil
}

// rebuildAnnotations writes the partition keys, and the time for which the
// message was scheduled: that it waits for it is over.
func (a *Altered) rebuildAnnotations(m *amqp.Message) error {
	var over amqp.Map
	for _, f := range [...]struct {
		property filter.SysProperty
		name     amqp.Symbol
	}{
		{filter.PartitionKey, AnnPartitionKey}, {filter.ViaPartitionKey, AnnViaPartitionKey},
		{filter.ScheduledEnqueueTime, AnnScheduledEnqueueTime},
	} {
		v, ok := a.sys[f.property]
		if !ok {
			continue
		}
		if v.Kind() == filter.Null && f.property == filter.ScheduledEnqueueTime {
			v = filter.TimeValue(a.view.EnqueuedTime) // clients fail on a null here
		}
		over = append(over, amqp.Pair{Key: f.name, Value: WireValue(v, nil)})
	}
	if over == nil {
		return nil
	}
	annotations, err := amqp.OverlayMap(nil, m.MessageAnnotations, over)
	m.MessageAnnotations = annotations
	return err
}

// rebuildProperties writes the fields of the properties section.
func (a *Altered) rebuildProperties(m *amqp.Message, out *queue.Message) {
	fields := make(map[int]filter.Value)
	for p, v := range a.sys {
		switch p {
		case filter.MessageID:
			fields[amqp.PropertyMessageID] = v
			if out.MessageID = v.Text(); v.Kind() == filter.Null {
				out.MessageID = NewID() // none, and clients need one
			}
		case filter.SessionID:
			fields[amqp.PropertyGroupID] = v
			out.SessionID, out.HasSession = v.Text(), v.Kind() == filter.String
		case filter.CorrelationID:
			fields[amqp.PropertyCorrelationID] = v
		default:
			if i, ok := sysFields[p]; ok {
				fields[i] = v
			}
		}
	}
	if len(fields) == 0 {
		return
	}
	var old amqp.Reader
	n := 0
	if m.Properties != nil {
		r := amqp.NewReader(m.Properties)
		old, n = r.List()
	}
	list, start := amqp.BeginList(make([]byte, 0, len(m.Properties)+64))
	count := max(n, amqp.PropertyReplyToGroupID+1)
	for i := range count {
		var raw amqp.Raw
		if i < n {
			raw = old.Raw()
		}
		v, changed := fields[i]
		switch {
		case !changed:
			list = amqp.AppendRaw(list, raw)
		case v.Kind() == filter.Null:
			list = amqp.AppendNull(list)
		case i == amqp.PropertyContentType:
			list = amqp.AppendSymbol(list, amqp.Symbol(v.Text()))
		default:
			list = amqp.AppendString(list, v.Text())
		}
	}
	m.Properties = amqp.EndList(list, start, count)
}
