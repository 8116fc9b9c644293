// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"overdue/internal/servicebus/duration"
)

// A Pool lets several processes send one notification together. Losing its content costs a further
// notification and no event. Its calls are bounded in time; after an error, each process sends its
// own.
type Pool interface {
	// Add adds a part to the next notification of the group, for a minute.
	Add(ctx context.Context, group, part string, body []byte) error
	// Claim asks for the turn to send the notification. If mine, no other process sends it, parts
	// are those that were added, and note is the one of the latest Release.
	Claim(ctx context.Context, group string) (mine bool, parts map[string]string, note string, err error)
	// Release ends the turn.
	Release(ctx context.Context, group, note string) error
}

const (
	// poolWait is how long a process waits for the turn of another, which sends a notification in 30 s
	// at most by default, and poolTick how often it asks.
	poolWait = 40 * time.Second
	poolTick = 250 * time.Millisecond
	// maxDone is how many parts a note names: far more than processes add in the minute that parts
	// last.
	maxDone = 200
)

// note is the state of a group that all processes share.
type note struct {
	Since, Last time.Time
	Total       int
	Arrived     time.Time // the latest event
	Next        time.Time // the next notification, at the earliest
	Reminder    time.Time // when the reminder on the outbox is due
	Done        []string  // the latest parts that need no further notification
}

// turn is a process's turn to send a notification.
type turn struct {
	isPooled bool // false: without the pool
	isDone   bool // another process has sent everything
	own      string
	others   []string // parts of other processes
	known    *note    // nil: there was none
}

// join waits for the turn to send d and merges the digests that other processes added.
func (g *Groups) join(gr *group, d *Digest) (t turn) {
	if g.cfg.Pool == nil {
		return turn{}
	}
	defer func() {
		if g.ctx.Err() == nil && !t.isPooled {
			g.cfg.Log.Debug("notification sent without other processes", zap.String("sink", g.Name()))
		}
	}()
	group, part := g.poolKey(gr), rand.Text()
	body, err := json.Marshal(d)
	if err != nil || g.cfg.Pool.Add(g.ctx, group, part, body) != nil {
		return turn{}
	}
	wait := collectTime // other processes add the same moment's events
	for end := time.Now().Add(poolWait); time.Now().Before(end); wait = poolTick {
		select {
		case <-time.After(wait):
		case <-g.ctx.Done():
			return turn{}
		}
		mine, parts, text, err := g.cfg.Pool.Claim(g.ctx, group)
		switch {
		case err != nil:
			return turn{}
		case mine:
			return newTurn(part, parts, text, d)
		}
	}
	return turn{}
}

func (g *Groups) poolKey(gr *group) string { return g.Name() + "\x00" + key(gr.labels) }

// newTurn merges into d the parts that are not done with.
func newTurn(own string, parts map[string]string, text string, d *Digest) turn {
	t := turn{isPooled: true, own: own, known: &note{}}
	if json.Unmarshal([]byte(text), t.known) != nil {
		t.known = nil
		t.others = d.mergeParts(parts, []string{own})
		return t
	}
	if t.isDone = slices.Contains(t.known.Done, own); !t.isDone {
		t.others = d.mergeParts(parts, append(t.known.Done, own))
	}
	return t
}

// mergeParts merges the digests that other processes added, and returns the names of their parts.
func (d *Digest) mergeParts(parts map[string]string, skip []string) (merged []string) {
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		other, err := ParseDigest([]byte(parts[name]))
		if err != nil || other.Sink != d.Sink || slices.Contains(skip, name) {
			continue
		}
		d.merge(other)
		merged = append(merged, name)
	}
	return merged
}

// learn takes over the shared state.
func (gr *group) learn(n *note) {
	if n == nil {
		return
	}
	gr.since, gr.last, gr.total = n.Since, n.Last, n.Total
	gr.arrived, gr.earliest, gr.reminder = duration.Later(gr.arrived, n.Arrived), n.Next, n.Reminder
}

// publish ends the turn and shares its result with the other processes. If it was not notified,
// they still have to send their parts.
func (g *Groups) publish(gr *group, t turn, notified bool) {
	if !t.isPooled {
		return
	}
	g.mu.Lock()
	n := note{Since: gr.since, Last: gr.last, Total: gr.total, Arrived: gr.arrived, Next: gr.earliest, Reminder: gr.reminder}
	g.mu.Unlock()
	if t.known != nil {
		n.Done = t.known.Done
	}
	n.Done = append(n.Done, t.own)
	if notified {
		n.Done = append(n.Done, t.others...)
	}
	n.Done = n.Done[max(0, len(n.Done)-maxDone):]
	text, err := json.Marshal(n)
	if err == nil {
		err = g.cfg.Pool.Release(context.WithoutCancel(g.ctx), g.poolKey(gr), string(text))
	}
	if err != nil {
		g.cfg.Log.Debug("notification not shared with other processes", zap.String("sink", g.Name()), zap.Error(err))
	}
}
