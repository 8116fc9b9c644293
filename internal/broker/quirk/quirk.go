// SPDX-License-Identifier: Apache-2.0

// Package quirk names the ways in which the embedded broker can differ from what is
// assumed of Service Bus. Each quirk stands for one assumption that nobody has confirmed, so that a
// test can show what the program does if the service is otherwise.
package quirk

import (
	"slices"
	"strings"
)

// A Set is the quirks that a broker has. The zero value is a broker that behaves as assumed.
type Set uint32

// The quirks, in the order of All.
const (
	FlushHead Set = 1 << iota
	CleanupLate
	ExpiresAlone
	ReleaseCounts
	ReleaseLast
	DeadLettersRenumbered
	DeadLettersRestamped
	DeadLettersLate
	PeekHidesExpired
	PeekHidesLocked
	PeekShort
	ScheduleLate
	BatchUnscheduled
	CancelPartial
	StampsSeconds
	DrainUnanswered
)

// A Quirk is one of them, with its name in a configuration.
type Quirk struct {
	Set  Set
	Name string
	Help string // what such a broker does
}

// All has every quirk.
var All = []Quirk{
	{FlushHead, "flush-head", "a receive expires only messages before the first live one"},
	{CleanupLate, "cleanup-late", "a receive starts to move expired messages, and is answered up to 2 s before the last of them has left its queue"},
	{ExpiresAlone, "expires-alone", "messages expire although nobody receives"},
	{ReleaseCounts, "release-counts", "the outcome released counts a delivery"},
	{ReleaseLast, "release-last", "a released message goes to the end of its queue"},
	{DeadLettersRenumbered, "dead-letters-renumbered", "a dead letter gets a new sequence number"},
	{DeadLettersRestamped, "dead-letters-restamped", "a dead letter gets a new enqueued time"},
	{DeadLettersLate, "dead-letters-late", "a dead letter can be read half a second after its message has left its queue"},
	{PeekHidesExpired, "peek-hides-expired", "a peek does not show expired messages"},
	{PeekHidesLocked, "peek-hides-locked", "a peek does not show locked messages"},
	{PeekShort, "peek-short", "a peek returns at most 10 messages"},
	{ScheduleLate, "schedule-late", "scheduled messages become active up to 1 s late"},
	{BatchUnscheduled, "batch-unscheduled", "messages of a batch are not scheduled, but active at once"},
	{CancelPartial, "cancel-partial", "a request to cancel scheduled messages cancels those that exist, and succeeds"},
	{StampsSeconds, "stamps-seconds", "the enqueued time has a resolution of a second"},
	{DrainUnanswered, "drain-unanswered", "a receiver that drains its credit gets no answer"},
}

// Has reports whether s has all of q.
func (s Set) Has(q Set) bool { return s&q == q }

// Names are those of s, in the order of All.
func (s Set) Names() []string {
	var names []string
	for _, q := range All {
		if s.Has(q.Set) {
			names = append(names, q.Name)
		}
	}
	return names
}

// String is the names, separated by commas.
func (s Set) String() string { return strings.Join(s.Names(), ",") }

// Names are those of all quirks.
func Names() []string {
	names := make([]string, len(All))
	for i, q := range All {
		names[i] = q.Name
	}
	return names
}

// Of is the set with these names. Only those of Names have a quirk.
func Of(names ...string) (s Set) {
	for _, q := range All {
		if slices.Contains(names, q.Name) {
			s |= q.Set
		}
	}
	return s
}
