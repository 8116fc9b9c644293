// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"
)

// A Pool lets several processes send one notification together. Losing its content costs a further
// notification and no event. Its calls are bounded in time; after an error, each process sends its
// own.
type Pool interface {
	// Add adds a part to the next notification of the group.
	Add(ctx context.Context, group, part string, body []byte) error
	// Claim asks for the turn to send the notification. If mine, no other process sends it, parts
	// are those added so far, and note is the one of the latest Release.
	Claim(ctx context.Context, group string) (mine bool, parts map[string][]byte, note []byte, err error)
	// Release ends the turn. If notified, the parts are done with.
	Release(ctx context.Context, group string, parts []string, notified bool, note []byte) error
	// Notified reports whether a part is done with.
	Notified(ctx context.Context, part string) (bool, error)
}

const (
	// poolWait is how long a process waits for the turn of another, which sends a notification in 30 s
	// at most by default, and poolTick how often it checks.
	poolWait = 40 * time.Second
	poolTick = 250 * time.Millisecond
)

// note is the state of a group that all processes share.
type note struct {
	Since, Last time.Time
	Total       int
	Arrived     time.Time // the latest event
	Next        time.Time // the next notification, at the earliest
	Reminder    time.Time // when the reminder on the outbox is due
}

// turn is a process's turn to send a notification.
type turn struct {
	pooled bool     // false: without the pool
	done   bool     // another process has sent everything
	others []string // parts of other processes
	known  *note
}

// join waits for the turn to send d and merges the digests that other processes added.
func (g *Groups) join(gr *group, d *Digest) (t turn) {
	if g.cfg.Pool == nil {
		return turn{}
	}
	defer func() {
		if g.ctx.Err() == nil && !t.pooled && !t.done {
			g.cfg.Log.Debug("notification sent without other processes", zap.String("sink", g.Name()))
		}
	}()
	group, part := g.Name()+"\x00"+key(gr.labels), rand.Text()
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
		if notified, err := g.cfg.Pool.Notified(g.ctx, part); err != nil || notified {
			return turn{done: notified && err == nil}
		}
		mine, parts, text, err := g.cfg.Pool.Claim(g.ctx, group)
		if err != nil {
			return turn{}
		}
		if !mine {
			continue
		}
		if _, ok := parts[part]; !ok {
			// Another process took our part, and may have finished between the two calls.
			notified, err := g.cfg.Pool.Notified(g.ctx, part)
			if notified && err == nil {
				g.returnClaim(group, parts, text)
				return turn{done: true}
			}
		}
		t = turn{pooled: true, others: d.mergeParts(parts, part)}
		var known note
		if json.Unmarshal(text, &known) == nil {
			t.known = &known
		}
		return t
	}
	return turn{}
}

// mergeParts merges the digests that other processes added, and returns the names of their parts.
func (d *Digest) mergeParts(parts map[string][]byte, own string) (others []string) {
	for name, body := range parts {
		other, err := ParseDigest(body)
		if name == own || err != nil || other.Sink != d.Sink {
			continue
		}
		d.merge(other)
		others = append(others, name)
	}
	return others
}

// returnClaim gives back a claim that is not needed, with the parts that came with it.
func (g *Groups) returnClaim(group string, parts map[string][]byte, text []byte) {
	ctx := context.WithoutCancel(g.ctx)
	var err error
	for name, body := range parts {
		err = errors.Join(err, g.cfg.Pool.Add(ctx, group, name, body))
	}
	if err = errors.Join(err, g.cfg.Pool.Release(ctx, group, nil, false, text)); err != nil {
		g.cfg.Log.Debug("notification waits until a claim ends", zap.String("sink", g.Name()), zap.Error(err))
	}
}

// learn takes over the shared state.
func (gr *group) learn(n *note) {
	if n == nil {
		return
	}
	gr.since, gr.last, gr.total = n.Since, n.Last, n.Total
	gr.arrived, gr.earliest, gr.reminder = latest(gr.arrived, n.Arrived), n.Next, n.Reminder
}

// publish shares the result with the other processes.
func (g *Groups) publish(gr *group, t turn, notified bool) {
	if !t.pooled {
		return
	}
	g.mu.Lock()
	n := note{Since: gr.since, Last: gr.last, Total: gr.total, Arrived: gr.arrived, Next: gr.earliest, Reminder: gr.reminder}
	g.mu.Unlock()
	text, err := json.Marshal(n)
	if err == nil {
		err = g.cfg.Pool.Release(context.WithoutCancel(g.ctx), g.Name()+"\x00"+key(gr.labels), t.others, notified, text)
	}
	if err != nil {
		g.cfg.Log.Debug("notification not shared with other processes", zap.String("sink", g.Name()), zap.Error(err))
	}
}
