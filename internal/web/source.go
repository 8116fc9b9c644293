// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"time"
)

// A Record is what outlives the process or is shared with others. Any field may be nil: then the
// pages say that they show this process alone, or leave the part out.
type Record struct {
	// Fleet reads the reports of all processes that share a Redis; nil without one.
	Fleet func(context.Context) (Fleet, error)
	// Counts are the deadlines of this process by entity and verdict, named as the label of
	// overdue_deadlines_total: those since 00:00 UTC of now, and those since the history begins.
	Counts func(now time.Time) (today, ever Verdicts, since time.Time)
	// Unknown are the latest deadlines whose outcome is not known, the latest first.
	Unknown func(limit int) []Unknown
	// Blind are the latest spans in which a monitor saw nothing, the latest first.
	Blind func(limit int) []Blind
	// Mutes are those in force.
	Mutes func(context.Context) ([]Mute, error)
}

// Verdicts are numbers of deadlines by entity, then by verdict.
type Verdicts map[string]map[string]uint64

// A Fleet is what the processes that share a Redis report, with this one among them.
type Fleet struct {
	Processes   []FleetProcess
	Outstanding map[string]uint64 // by entity
	Today, Ever Verdicts
	Since       time.Time // of Ever
}

// A FleetProcess is the latest report of a process.
type FleetProcess struct {
	ID, Host, Role, Version string
	Started, Seen           time.Time
	Gone                    bool   // it has not reported lately, and did not say that it ends
	NotReady                string // why, in words; "" = ready
	Outstanding             uint64
	Own                     bool // this process
}

// An Unknown is a deadline of which nobody can tell whether it was met.
type Unknown struct {
	Entity   string    // or topic/Subscriptions/name
	Message  string    // its name as that of an event; "" = all of a window
	From     time.Time // the begin of the window; zero = there is none
	Deadline time.Time // or the end of the window
	Judged   time.Time
	Why      string
}

// A Blind is a span in which a monitor saw nothing, as it says once it sees again.
type Blind struct {
	From, To time.Time
	Reason   string // in words
	Host     string
	SoFar    bool // what was due in the span is not dealt with yet
	Entities []BlindEntity
}

// A BlindEntity has the deadlines of one entity that fell into a span.
type BlindEntity struct {
	Entity                         string
	Deadlines, Late, Unknown, Lost uint64
}

// A Mute keeps the alerts of an entity from sinks until its end.
type Mute struct {
	Entity     string
	Until      time.Time
	By, Reason string
}
