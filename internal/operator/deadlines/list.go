// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"overdue/internal/escape"
	"overdue/internal/operator/dlq"
	"overdue/internal/plural"
	"overdue/internal/redisstore"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/duration"
	"overdue/internal/terminal"
	"overdue/scheduler"
)

// ListOptions restrict a list.
type ListOptions struct {
	Entity string // a queue or topic, in any case, whose deadlines to name; "" counts those of all entities
	Limit  int    // how many of the next deadlines of Entity to name
}

// A Listing is the deadlines with which no monitor has finished. Its JSON form is the output of `overdue deadlines --json`.
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

// An Entity is a queue or topic with such deadlines.
type Entity struct {
	Entity     string    `json:"entity"`
	Companions int       `json:"companions"`
	Deadlines  int       `json:"deadlines"`        // of messages that a companion names
	Slots      int       `json:"slots"`            // companions of slots, which stand for any number of messages
	Due        int       `json:"due"`              // companions that are due, and with which no monitor has finished
	Missed     int       `json:"missed"`           // messages that are expired, of which a sink has not been notified; not in Deadlines
	Next       time.Time `json:"nextDue,omitzero"` // zero: all are missed
	Last       time.Time `json:"lastDue,omitzero"`
}

// A Deadline is that of one message.
type Deadline struct {
	Deadline  time.Time `json:"deadline"`
	MessageID string    `json:"messageId,omitempty"`
	Number    int64     `json:"sequenceNumber,omitempty"` // of a missed message
	SessionID string    `json:"sessionId,omitempty"`
	Sent      time.Time `json:"sent"`
	Stated    string    `json:"stated"`           // how it was stated, as in [scheduler.Reference]
	Missed    bool      `json:"missed,omitempty"` // the message is expired, and sinks have yet to get its event
}

// Name is that of the message, see [address.MessageName], or "" if the deadline is that of any
// number of messages without an id.
func (d *Deadline) Name() string {
	if d.MessageID == "" && d.Number == 0 {
		return ""
	}
	return address.MessageName(d.MessageID, d.Number)
}

// List reads the deadlines with which no monitor has finished.
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
		if c.IsNotice() || o.Entity != "" && !strings.EqualFold(c.Entity, o.Entity) {
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
		return r, s.MustExist(ctx, dlq.Place{Entity: o.Entity})
	}
	return r, nil
}

// add counts one companion.
func (e *Entity) add(c *stored) {
	e.Companions++
	missed := 0
	for i := range c.References {
		if isMissed(&c.References[i]) {
			missed++
		}
	}
	e.Missed += missed
	e.Deadlines += len(c.References) - missed
	if missed > 0 && missed == len(c.References) {
		return // it comes again for the notifications alone
	}
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

// isMissed reports whether the message of f is expired. Other events are those of reminders.
func isMissed(f *scheduler.Reference) bool { return f.Missed != nil && f.Missed.Type == "" }

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
		if isMissed(f) {
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

// timeFormat has the precision of the broker's stamps.
const timeFormat = "2006-01-02T15:04:05.000Z"

// stuckAfter is how long a companion may be due before the listing asks why.
const stuckAfter = time.Minute

// WriteText writes the listing for people. width is that of the terminal, 0 without one: lines are
// not cut then.
func (r *Listing) WriteText(w io.Writer, now time.Time, width int) error {
	var b bytes.Buffer
	r.writeTables(&b, now, width)
	r.Fleet.write(&b, width)
	r.writeRemarks(&b, now, width)
	_, err := b.WriteTo(w)
	return err
}

func (r *Listing) writeTables(b *bytes.Buffer, now time.Time, width int) {
	if len(r.Entities) == 0 {
		fmt.Fprintf(b, "No deadlines are pending in %s.\n", escape.Text(r.MonitorQueue))
		return
	}
	t := terminal.NewTable(width, "ENTITY:12", "DEADLINES", "SLOTS", "DUE", "MISSED", "NEXT DUE", "LAST DUE")
	for _, e := range r.Entities {
		t.Add(e.Entity, e.Deadlines, e.Slots, e.Due, e.Missed, until(e.Next, now), until(e.Last, now))
	}
	_ = t.Flush(b) // a buffer takes everything
	if len(r.Upcoming) == 0 {
		return
	}
	b.WriteByte('\n')
	t = terminal.NewTable(width, "DEADLINE", "IN", "MESSAGE-ID:12", "SESSION:12", "STATED")
	for i := range r.Upcoming {
		d := &r.Upcoming[i]
		in := until(d.Deadline, now)
		if d.Missed {
			in = "missed"
		}
		t.Add(d.Deadline.UTC().Format(timeFormat), in, d.Name(), d.SessionID, d.Stated)
	}
	_ = t.Flush(b) // as above
}

// writeRemarks writes what the tables leave out.
func (r *Listing) writeRemarks(b *bytes.Buffer, now time.Time, width int) {
	remark := func(format string, args ...any) {
		fmt.Fprintln(b, terminal.Wrap(fmt.Sprintf(format, args...), width, 0))
	}
	if r.Unreadable > 0 {
		remark("%s to the dead-letter queue of %s.", plural.Of(r.Unreadable, "companion cannot be read. The monitor moves it", "companions cannot be read. The monitor moves them"), escape.Text(r.MonitorQueue))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Failed)) {
		remark("%s failed: %s.", plural.Of(r.Failed[reason], "companion", "companions"), escape.Text(reason))
	}
	if r.More {
		remark("There are more companions: only the first %d were read.", maxMessages)
	}
	for _, e := range r.Entities {
		if e.Due > 0 && now.Sub(e.Next) > stuckAfter {
			remark("%s has companions that have been due for more than a minute: consumers hold the messages, or no monitor is running.", escape.Text(e.Entity))
		}
	}
}

// write writes what the monitors reported, if there is a Redis.
func (f *Fleet) write(b *bytes.Buffer, width int) {
	if f == nil {
		return
	}
	b.WriteByte('\n')
	switch {
	case f.Error != "":
		fmt.Fprintln(b, terminal.Wrap(fmt.Sprintf("The totals of all monitors are unknown: %s.", escape.Text(f.Error)), width, 0))
		return
	case f.Monitors == 0:
		fmt.Fprintln(b, "No monitor has reported to Redis lately.")
	case f.Monitors == 1:
		fmt.Fprintln(b, "One monitor reported to Redis:")
	default:
		fmt.Fprintf(b, "%d monitors reported to Redis. Their totals:\n", f.Monitors)
	}
	if len(f.Entities) == 0 {
		return
	}
	t := terminal.NewTable(width, "ENTITY:12", "IN PROGRESS", "MISSED")
	for _, e := range f.Entities {
		t.Add(e.Entity, e.InProgress, e.Missed)
	}
	_ = t.Flush(b) // a buffer takes everything
}

// until returns how far t is from now.
func until(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case t.IsZero():
		return "-"
	case d < 0:
		return duration.FormatRounded(d.Round(time.Second).Abs()) + " ago"
	}
	return duration.FormatRounded(d.Round(100 * time.Millisecond))
}

// A Fleet is what all monitors reported to Redis, added up.
type Fleet struct {
	Monitors int           `json:"monitors"` // that reported lately
	Entities []FleetEntity `json:"entities"` // by name
	Error    string        `json:"error,omitempty"`
}

// A FleetEntity is what they reported of one entity.
type FleetEntity struct {
	Entity     string `json:"entity"`
	InProgress int64  `json:"inProgress"` // due deadlines with which no monitor has finished
	Missed     int64  `json:"missed"`     // since Redis began to count
}

// readFleet asks Redis for one entity, or for all of them. It returns nil without Redis. If Redis
// does not answer, it says so in Error: everything else is still worth showing.
func readFleet(ctx context.Context, redis *redisstore.Store, entity string) *Fleet {
	if redis == nil {
		return nil
	}
	f := &Fleet{Entities: []FleetEntity{}}
	totals, err := redis.View().Read(ctx)
	if err != nil {
		f.Error = err.Error()
		return f
	}
	f.Monitors = totals.Monitors()
	byName := map[string]*FleetEntity{}
	of := func(name string) *FleetEntity {
		if byName[name] == nil {
			byName[name] = &FleetEntity{Entity: name}
		}
		return byName[name]
	}
	for name, n := range totals.Outstanding {
		of(name).InProgress = n
	}
	for name, byVerdict := range totals.Ever {
		if n := byVerdict["missed"]; n > 0 {
			of(name).Missed = int64(n)
		}
	}
	for name, e := range byName {
		if entity == "" || strings.EqualFold(name, entity) {
			f.Entities = append(f.Entities, *e)
		}
	}
	slices.SortFunc(f.Entities, func(a, b FleetEntity) int { return strings.Compare(a.Entity, b.Entity) })
	return f
}
