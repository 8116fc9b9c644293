// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"overdue/internal/operator/dlq"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/address"
)

// ListOptions restrict a list.
type ListOptions struct {
	Entity string // a queue or topic, in any case, whose deadlines to name; "" counts those of all entities
	Limit  int    // how many of the next deadlines of Entity to name
}

// A Listing is what is outstanding. Its JSON form is the output of `overdue deadlines --json`.
type Listing struct {
	MonitorQueue string     `json:"monitorQueue"`
	Entities     []*Entity  `json:"entities"` // by name
	Upcoming     []Deadline `json:"upcoming,omitempty"`
	Unreadable   int        `json:"unreadable,omitempty"` // companions that cannot be read
	More         bool       `json:"more,omitempty"`       // there are more companions than were read

	// Failed counts the companions in Redis that no monitor could finish with, by reason. Those of
	// a monitor queue are in its dead-letter queue, which `overdue dlq` shows.
	Failed map[string]int `json:"failed,omitempty"`

	Fleet *Fleet `json:"fleet,omitempty"` // nil without Redis
}

// An Entity is a queue or topic with outstanding deadlines.
type Entity struct {
	Entity     string    `json:"entity"`
	Companions int       `json:"companions"`
	Deadlines  int       `json:"deadlines"` // of messages that a companion names
	Slots      int       `json:"slots"`     // companions of slots, which stand for any number of messages
	Due        int       `json:"due"`       // companions that are due, and with which no monitor has finished
	Next       time.Time `json:"nextDue"`
	Last       time.Time `json:"lastDue"`
}

// A Deadline is that of one message.
type Deadline struct {
	Deadline  time.Time `json:"deadline"`
	MessageID string    `json:"messageId,omitempty"`
	Number    int64     `json:"sequenceNumber,omitempty"` // of a missed message
	SessionID string    `json:"sessionId,omitempty"`
	Sent      time.Time `json:"sent"`
	Stated    string    `json:"stated"`           // how it was stated, as in [scheduler.Reference]
	Missed    bool      `json:"missed,omitempty"` // the message is expired, and the notification outstanding
}

// Name is that of the message, see [address.MessageName], or "" if the deadline is that of any
// number of messages without an id.
func (d *Deadline) Name() string {
	if d.MessageID == "" && d.Number == 0 {
		return ""
	}
	return address.MessageName(d.MessageID, d.Number)
}

// List reads the outstanding deadlines.
func List(ctx context.Context, s *Source, o ListOptions) (*Listing, error) {
	r := &Listing{MonitorQueue: s.MonitorQueue, Entities: []*Entity{}}
	byName := map[string]*Entity{}
	read := 0
	err := s.pending(ctx, func(c *stored) bool {
		if read++; read > maxMessages {
			r.More = true
			return false
		}
		if c.err != nil {
			r.Unreadable++
			return true
		}
		if o.Entity != "" && !strings.EqualFold(c.Entity, o.Entity) {
			return true
		}
		name := strings.ToLower(c.Entity)
		if byName[name] == nil {
			byName[name] = &Entity{Entity: c.Entity}
			r.Entities = append(r.Entities, byName[name])
		}
		byName[name].add(c)
		if o.Entity != "" {
			r.add(c, o.Limit)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	if s.CompanionsInRedis {
		r.Failed = map[string]int{}
		err := s.Redis.Companions().Dead(ctx, func(d redisstore.Dead) bool {
			r.Failed[d.Reason]++
			return true
		})
		if err != nil {
			return nil, wrapRedis(err)
		}
	}
	slices.SortFunc(r.Entities, func(a, b *Entity) int { return strings.Compare(a.Entity, b.Entity) })
	r.Upcoming = next(r.Upcoming, o.Limit)
	r.Fleet = readFleet(ctx, s.Redis, o.Entity)
	if known := len(r.Entities) > 0 || r.Fleet != nil && len(r.Fleet.Entities) > 0; o.Entity != "" && !known {
		return r, s.mustExist(ctx, dlq.Place{Entity: o.Entity})
	}
	return r, nil
}

// add counts one companion.
func (e *Entity) add(c *stored) {
	e.Companions++
	e.Deadlines += len(c.References)
	if c.IsSlot() {
		e.Slots++
	}
	if !c.pending {
		e.Due++
	}
	if e.Next.IsZero() || c.due.Before(e.Next) {
		e.Next = c.due
	}
	if c.due.After(e.Last) {
		e.Last = c.due
	}
}

// add keeps the deadlines that c names. It drops those that come too late for the limit now and
// then, to bound memory.
func (r *Listing) add(c *stored, limit int) {
	for i := range c.References {
		f := &c.References[i]
		d := Deadline{
			Deadline:  f.Deadline,
			MessageID: f.MessageID,
			SessionID: f.SessionID,
			Sent:      f.Sent,
			Stated:    f.Stated,
		}
		if f.Missed != nil {
			d.Number, d.Missed = f.Missed.SequenceNumber, true
		}
		r.Upcoming = append(r.Upcoming, d)
	}
	if len(r.Upcoming) > 4*limit+1000 {
		r.Upcoming = next(r.Upcoming, limit)
	}
}

// next returns the n earliest deadlines.
func next(all []Deadline, n int) []Deadline {
	slices.SortStableFunc(all, func(a, b Deadline) int {
		return cmp.Or(a.Deadline.Compare(b.Deadline), strings.Compare(a.MessageID, b.MessageID))
	})
	return all[:min(n, len(all))]
}
