// SPDX-License-Identifier: Apache-2.0

package broker

import "time"

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
	// Unknown is a filter of a type that this broker does not know, as the
	// administration API was given it. It is kept and matches nothing.
	Unknown []byte
}

// SQLFilter is an expression of the SQL dialect of Service Bus.
type SQLFilter struct {
	Expression         string
	Parameters         map[string]any // by name with the @; string, int64, float64, bool, time.Time, …
	CompatibilityLevel int
}

// CorrelationFilter matches messages whose properties equal all that it names.
type CorrelationFilter struct {
	CorrelationID, MessageID, To, ReplyTo, Label *string
	SessionID, ReplyToSessionID, ContentType     *string
	Properties                                   map[string]any // application properties
}

// An Action changes the copy that a rule lets through. The zero value does
// nothing.
type Action struct {
	SQL        string
	Parameters map[string]any
	Unknown    []byte // as in Filter; it does nothing
}

// RuleInfo is a rule as it stands.
type RuleInfo struct {
	Config    RuleConfig
	CreatedAt time.Time
}
