// SPDX-License-Identifier: Apache-2.0

package filter

import "strings"

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
