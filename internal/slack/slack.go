// SPDX-License-Identifier: Apache-2.0

// Package slack measures how much time was left before their deadlines when messages were settled,
// and how long after their enqueue that was. The first says how near the deadlines are, the second
// which deadline would have been met.
//
// A [Meter] counts in memory, as metrics and in cells. The history reads the cells and keeps their
// increases by the minute as [Counts].
package slack

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"overdue/internal/lag"
)

const (
	// maxEntities bounds the entities that are measured apart: their names come from clients.
	maxEntities = 256
	// others is the name of all beyond the bound.
	others = "(other)"
)

// A Meter measures the settlements of a process. nil measures none.
type Meter struct {
	left, taken *prometheus.HistogramVec

	mu       sync.RWMutex
	entities map[string]*Entity // by name in lower case
}

// NewMeter makes the metrics and registers them with r, unless that is nil.
func NewMeter(r prometheus.Registerer) *Meter {
	m := &Meter{
		left: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "overdue_deadline_slack_seconds",
			Help:    "How much time was left before the deadline when a message was settled through the AMQP endpoint. Settlements after the deadline are in the bucket 0.",
			Buckets: append([]float64{0}, lag.Buckets()...),
		}, []string{"entity"}),
		taken: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "overdue_settled_after_seconds",
			Help:    "How long after its enqueue a message with a deadline was settled through the AMQP endpoint.",
			Buckets: lag.Buckets(),
		}, []string{"entity"}),
		entities: map[string]*Entity{},
	}
	if r != nil {
		r.MustRegister(m.left, m.taken)
	}
	return m
}

// An Entity measures the settlements of one queue. nil measures none.
type Entity struct {
	name        string
	left, taken prometheus.Observer
	late        atomic.Uint64
	cells       struct{ left, taken [cells]atomic.Uint64 }
}

// Of returns the entity with a name, which is spelled in any case.
func (m *Meter) Of(name string) *Entity {
	if m == nil {
		return nil
	}
	key := strings.ToLower(name)
	m.mu.RLock()
	e := m.entities[key]
	m.mu.RUnlock()
	if e != nil {
		return e
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.entities) >= maxEntities {
		key, name = others, others
	}
	if e = m.entities[key]; e == nil {
		e = &Entity{name: name, left: m.left.WithLabelValues(name), taken: m.taken.WithLabelValues(name)}
		m.entities[key] = e
	}
	return e
}

// Settled counts n messages, of which one was enqueued, was settled and had its deadline at these
// instants of the broker's clock.
func (e *Entity) Settled(enqueued, settled, deadline time.Time, n uint64) {
	if e == nil {
		return
	}
	left, taken := max(deadline.Sub(settled), 0), max(settled.Sub(enqueued), 0)
	for range n {
		e.left.Observe(left.Seconds())
		e.taken.Observe(taken.Seconds())
	}
	if left == 0 {
		e.late.Add(n)
	}
	e.cells.left[cellOf(left)].Add(n)
	e.cells.taken[cellOf(taken)].Add(n)
}

// Counts are settlements of one entity.
type Counts struct {
	Left  Spread // time that was left; what was late has none
	Taken Spread // time from the enqueue to the settlement
	Late  uint64 // settlements after the deadline
}

// NewCounts returns counts to which others can be added.
func NewCounts() Counts { return Counts{Left: Spread{}, Taken: Spread{}} }

// Merge adds other counts.
func (c *Counts) Merge(other Counts) {
	c.Left.merge(other.Left)
	c.Taken.merge(other.Taken)
	c.Late += other.Late
}

// Since returns what has been counted after an earlier reading of the same meter.
func (c Counts) Since(earlier Counts) Counts {
	return Counts{Left: c.Left.since(earlier.Left), Taken: c.Taken.since(earlier.Taken), Late: c.Late - earlier.Late}
}

func (s Spread) since(earlier Spread) Spread {
	more := Spread{}
	for cell, n := range s {
		if n > earlier[cell] {
			more[cell] = n - earlier[cell]
		}
	}
	return more
}

// Append encodes counts.
func (c Counts) Append(b []byte) []byte {
	e := Spread{0: c.Late}
	return c.Taken.append(c.Left.append(e.append(b)))
}

// Parse reads encoded counts. What b contains beyond them is an error.
func Parse(b []byte) (Counts, error) {
	c, late := NewCounts(), Spread{}
	for _, s := range []Spread{late, c.Left, c.Taken} {
		var err error
		if b, err = s.read(b); err != nil {
			return Counts{}, err
		}
	}
	if len(b) > 0 {
		return Counts{}, errUnreadable
	}
	c.Late = late[0]
	return c, nil
}

// Read returns what each entity has counted since the start of the process.
func (m *Meter) Read() map[string]Counts {
	all := map[string]Counts{}
	if m == nil {
		return all
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, e := range m.entities {
		c := NewCounts()
		c.Late = e.late.Load()
		for i := range cells {
			if n := e.cells.left[i].Load(); n > 0 {
				c.Left[uint16(i)] = n
			}
			if n := e.cells.taken[i].Load(); n > 0 {
				c.Taken[uint16(i)] = n
			}
		}
		all[e.name] = c
	}
	return all
}

// A Summary is what people read of the settlements of one entity.
type Summary struct {
	Entity string `json:"entity"`
	Count  uint64 `json:"count"`
	Late   uint64 `json:"late"` // settled after the deadline
	// 99 and 50 of 100 settlements had at least this much time left, in milliseconds.
	LeftP1  int64 `json:"leftP1Ms"`
	LeftP50 int64 `json:"leftP50Ms"`
	// Half of the settlements came within this time after the enqueue, and 99 of 100.
	TakenP50 int64 `json:"takenP50Ms"`
	TakenP99 int64 `json:"takenP99Ms"` // the deadline that 99 of 100 would meet
}

// Summarize sums up the counts of an entity.
func (c Counts) Summarize(entity string) Summary {
	return Summary{
		Entity: entity, Count: c.Left.Count(), Late: c.Late,
		LeftP1: c.Left.AtLeast(0.01).Milliseconds(), LeftP50: c.Left.AtLeast(0.5).Milliseconds(),
		TakenP50: c.Taken.AtMost(0.5).Milliseconds(), TakenP99: c.Taken.AtMost(0.99).Milliseconds(),
	}
}

// Each calls f with every number of the counts under a name, for stores that add up numbers.
func (c Counts) Each(f func(name string, n uint64)) {
	if c.Late > 0 {
		f("late", c.Late)
	}
	for prefix, s := range map[string]Spread{"left": c.Left, "taken": c.Taken} {
		for cell, n := range s {
			f(prefix+strconv.Itoa(int(cell)), n)
		}
	}
}

// Add adds a number that Each has named. It ignores other names.
func (c *Counts) Add(name string, n uint64) {
	if name == "late" {
		c.Late += n
		return
	}
	for prefix, s := range map[string]Spread{"left": c.Left, "taken": c.Taken} {
		if text, ok := strings.CutPrefix(name, prefix); ok {
			if cell, err := strconv.ParseUint(text, 10, 16); err == nil && cell < cells {
				s[uint16(cell)] += n
			}
		}
	}
}
