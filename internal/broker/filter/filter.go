// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"fmt"
	"strings"
)

// A Filter is a condition, ready to be put to messages.
type Filter struct{ root predicate }

// ParseFilter reads a condition of at most [MaxLength] characters. params are
// what its @parameters stand for; keys may have the @ or not. The error is a
// [*SyntaxError].
func ParseFilter(text string, params map[string]Value) (*Filter, error) {
	return parseFilter(text, params, MaxLength)
}

func parseFilter(text string, params map[string]Value, most int) (*Filter, error) {
	p := newParser(text, params, most)
	root := p.predicate(p.or())
	if p.tok.kind != tokenEnd {
		p.fail("an operator or the end")
	}
	if p.err != nil {
		return nil, p.err
	}
	return &Filter{root}, nil
}

// Match reports whether the condition is true of m, which what is unknown is
// not. The error is an [*EvalError].
func (f *Filter) Match(m Message) (bool, error) {
	t, err := f.root.test(m)
	return t == isTrue && err == nil, err
}

// A Correlation is a condition: all that it names has to be equal. Strings are
// compared with case. Numbers are equal when they are, whatever their width: the
// service is not clear about that, and clients cannot choose the width everywhere.
// A number never equals a string.
type Correlation struct {
	Sys  []SysEqual
	User []UserEqual
}

// A SysEqual is what a system property has to be.
type SysEqual struct {
	Property SysProperty
	Value    Value
}

// A UserEqual is what an application property has to be.
type UserEqual struct {
	Name  string
	Value Value
}

// Match reports whether m has all of it.
func (c *Correlation) Match(m Message) (bool, error) {
	for i := range c.Sys {
		if !Equal(m.Sys(c.Sys[i].Property), c.Sys[i].Value) {
			return false, nil
		}
	}
	for i := range c.User {
		if !Equal(m.User(c.User[i].Name), c.User[i].Value) {
			return false, nil
		}
	}
	return true, nil
}

// Bounds of an expression.
const (
	MaxLength     = 1024 // characters, as the service has it
	MaxStatements = 32   // of an action, as its quotas have it
	MaxDepth      = 64   // of parentheses, NOT and signs in one another
)

// maxText bounds in bytes what + makes of strings. All properties of a message
// together have no more, and no expression makes a large message a huge one.
const maxText = 64 << 10

// A SyntaxError says where an expression is not what it has to be.
type SyntaxError struct {
	Position int    // of the first character that is wrong, from 1
	Expected string // what could have stood there
	Found    string // what does
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("at character %d: expected %s, found %s", e.Position, e.Expected, e.Found)
}

// An EvalError is an expression that has no value for a message. The service
// calls it a filter exception.
type EvalError struct{ Problem string }

func (e *EvalError) Error() string { return e.Problem }

func evalErrorf(format string, args ...any) error {
	return &EvalError{fmt.Sprintf(format, args...)}
}

// A Message is what a filter looks at.
type Message interface {
	// User returns an application property, whatever the case of its name, and
	// the zero Value where there is none.
	User(name string) Value
	// Sys returns a system property. One that the message does not have is null.
	Sys(p SysProperty) Value
}

// A Mutable is a message that an action changes.
type Mutable interface {
	Message
	SetUser(name string, v Value)
	RemoveUser(name string)
	// SetSys sets a property that is settable, to a value of its kind or null.
	SetSys(p SysProperty, v Value) error
}

// SysProperty is a system property of a message.
type SysProperty uint8

// The system properties.
const (
	MessageID SysProperty = iota
	CorrelationID
	Label
	To
	ReplyTo
	ReplyToSessionID
	SessionID
	ContentType
	PartitionKey
	ViaPartitionKey
	EnqueuedTime
	ScheduledEnqueueTime
	ExpiresAt
	TimeToLive
	DeliveryCount
	SequenceNumber
	EnqueuedSequenceNumber
	Size
)

var sysProperties = [...]struct {
	name     string // first of all, and the one that is printed
	alias    string // its name in newer libraries
	kind     Kind
	settable bool
}{
	MessageID:              {"MessageId", "", String, true},
	CorrelationID:          {"CorrelationId", "", String, true},
	Label:                  {"Label", "Subject", String, true},
	To:                     {"To", "", String, true},
	ReplyTo:                {"ReplyTo", "", String, true},
	ReplyToSessionID:       {"ReplyToSessionId", "", String, true},
	SessionID:              {"SessionId", "", String, true},
	ContentType:            {"ContentType", "", String, true},
	PartitionKey:           {"PartitionKey", "", String, true},
	ViaPartitionKey:        {"ViaPartitionKey", "TransactionPartitionKey", String, true},
	EnqueuedTime:           {"EnqueuedTimeUtc", "EnqueuedTime", Time, false},
	ScheduledEnqueueTime:   {"ScheduledEnqueueTimeUtc", "ScheduledEnqueueTime", Time, true},
	ExpiresAt:              {"ExpiresAtUtc", "ExpiresAt", Time, false},
	TimeToLive:             {"TimeToLive", "", Duration, true},
	DeliveryCount:          {"DeliveryCount", "", Int, false},
	SequenceNumber:         {"SequenceNumber", "", Int, false},
	EnqueuedSequenceNumber: {"EnqueuedSequenceNumber", "", Int, false},
	Size:                   {"Size", "", Int, false},
}

// String returns the name that the service has for it.
func (p SysProperty) String() string { return sysProperties[p].name }

// Kind is the type of its values.
func (p SysProperty) Kind() Kind { return sysProperties[p].kind }

// sysPropertyOf finds a system property by a name of any case.
func sysPropertyOf(name string) (SysProperty, bool) {
	for i, p := range sysProperties {
		if strings.EqualFold(name, p.name) || p.alias != "" && strings.EqualFold(name, p.alias) {
			return SysProperty(i), true
		}
	}
	return 0, false
}
