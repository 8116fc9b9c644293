// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"maps"
	"slices"
	"time"

	"overdue/internal/broker/filter"
	"overdue/internal/broker/message"
	"overdue/internal/broker/queue"
)

// DefaultRuleName is the rule that a subscription has when it is made without
// one. It lets everything through.
const DefaultRuleName = "$Default"

// RuleConfig says which messages of a topic a subscription gets, and how they
// are changed on the way.
type RuleConfig struct {
	Name   string
	Filter Filter
	Action Action
}

// A Filter is one of its fields. The zero value stands for True.
type Filter struct {
	True, False bool
	SQL         *SQLFilter
	Correlation *CorrelationFilter
}

// Values are those of a rule, by name, in the order in which they were stated. A value is nil,
// bool, string, time.Time, time.Duration, an integer, a float, or one of the types of package amqp.
// nil Values were not stated at all.
type Values []queue.Property

// ValuesOf returns the values of a map, by name.
func ValuesOf(m map[string]any) Values {
	var vs Values
	for _, name := range slices.Sorted(maps.Keys(m)) {
		vs = append(vs, queue.Property{Key: name, Value: m[name]})
	}
	return vs
}

// parameters are the values as expressions take them.
func (vs Values) parameters() map[string]filter.Value {
	m := make(map[string]filter.Value, len(vs))
	for _, v := range vs {
		m[v.Key] = message.FilterValue(v.Value)
	}
	return m
}

// SQLFilter is an expression of the SQL dialect of Service Bus.
type SQLFilter struct {
	Expression string
	Parameters Values // by name with the @
	// RequiresPreprocessing is kept for clients of the administration API.
	RequiresPreprocessing *bool
}

// CorrelationFilter matches messages whose properties equal all that it names.
type CorrelationFilter struct {
	CorrelationID, MessageID, To, ReplyTo, Label *string
	SessionID, ReplyToSessionID, ContentType     *string
	Properties                                   Values // application properties
}

// CorrelationFields are the system properties that a CorrelationFilter names: in
// the order of the service, and with the keys that they have over AMQP.
var CorrelationFields = [...]struct {
	Property filter.SysProperty
	Key      string
	Of       func(*CorrelationFilter) **string
}{
	{filter.CorrelationID, "correlation-id", func(f *CorrelationFilter) **string { return &f.CorrelationID }},
	{filter.MessageID, "message-id", func(f *CorrelationFilter) **string { return &f.MessageID }},
	{filter.To, "to", func(f *CorrelationFilter) **string { return &f.To }},
	{filter.ReplyTo, "reply-to", func(f *CorrelationFilter) **string { return &f.ReplyTo }},
	{filter.Label, "label", func(f *CorrelationFilter) **string { return &f.Label }},
	{filter.SessionID, "session-id", func(f *CorrelationFilter) **string { return &f.SessionID }},
	{filter.ReplyToSessionID, "reply-to-session-id", func(f *CorrelationFilter) **string { return &f.ReplyToSessionID }},
	{filter.ContentType, "content-type", func(f *CorrelationFilter) **string { return &f.ContentType }},
}

// condition of the filter.
func (f *CorrelationFilter) condition() *filter.Correlation {
	c := &filter.Correlation{}
	for _, field := range CorrelationFields {
		if want := *field.Of(f); want != nil {
			c.Sys = append(c.Sys, filter.SysEqual{Property: field.Property, Value: filter.StringValue(*want)})
		}
	}
	for _, p := range f.Properties {
		c.User = append(c.User, filter.UserEqual{Name: p.Key, Value: message.FilterValue(p.Value)})
	}
	return c
}

// An Action changes the copy that a rule lets through. The zero value does
// nothing.
type Action struct {
	SQL                   string
	Parameters            Values // as in SQLFilter
	RequiresPreprocessing *bool
}

// RuleInfo is a rule as it stands.
type RuleInfo struct {
	Config    RuleConfig
	CreatedAt time.Time
}
