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
	Name   string `json:"name"`
	Filter Filter `json:"filter,omitzero"`
	Action Action `json:"action,omitzero"`
}

// A Filter is one of its fields. The zero value stands for True.
type Filter struct {
	True        bool               `json:"true,omitempty"`
	False       bool               `json:"false,omitempty"`
	SQL         *SQLFilter         `json:"sql,omitempty"`
	Correlation *CorrelationFilter `json:"correlation,omitempty"`
}

// Values are those of a rule, by name, in the order in which they were stated. A value is nil,
// bool, string, time.Time, time.Duration, an integer, a float, or one of the types of package amqp.
// nil Values were not stated at all.
type Values []queue.Property

// NoZone is the zone of a time among Values that was stated without one. It is UTC.
var NoZone = time.FixedZone("none", 0)

// TimeWithoutZone is the layout of such a time.
const TimeWithoutZone = "2006-01-02T15:04:05.999999999"

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
	Expression string `json:"expression"`
	Parameters Values `json:"parameters,omitzero"` // by name with the @
	// RequiresPreprocessing is kept for clients of the administration API.
	RequiresPreprocessing *bool `json:"requiresPreprocessing,omitempty"`
}

// CorrelationFilter matches messages whose properties equal all that it names.
type CorrelationFilter struct {
	CorrelationID    *string `json:"correlationId,omitempty"`
	MessageID        *string `json:"messageId,omitempty"`
	To               *string `json:"to,omitempty"`
	ReplyTo          *string `json:"replyTo,omitempty"`
	Label            *string `json:"label,omitempty"`
	SessionID        *string `json:"sessionId,omitempty"`
	ReplyToSessionID *string `json:"replyToSessionId,omitempty"`
	ContentType      *string `json:"contentType,omitempty"`
	Properties       Values  `json:"properties,omitzero"` // application properties
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
	SQL                   string `json:"sql,omitempty"`
	Parameters            Values `json:"parameters,omitzero"` // as in SQLFilter
	RequiresPreprocessing *bool  `json:"requiresPreprocessing,omitempty"`
}

// RuleInfo is a rule as it stands.
type RuleInfo struct {
	Config    RuleConfig `json:"config"`
	CreatedAt time.Time  `json:"createdAt,omitzero"`
}
