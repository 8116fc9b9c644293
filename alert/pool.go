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

// A Pool makes one page of what rings at several processes. What it loses costs a page. Its calls are bounded in time; with an error each
// process pages for itself.
type Pool interface {
	// Lay lays a part of the group's next page down.
	Add(ctx context.Context, group, part string, body []byte) error
	// Claim asks to send the page. mine: nobody else is sending, parts are those that lie there, and note is what was left last.
	Claim(ctx context.Context, group string) (mine bool, parts map[string][]byte, note []byte, err error)
	// Leave ends a sending. told: nothing is left to do about the parts.
	Release(ctx context.Context, group string, parts []string, told bool, note []byte) error
	// Told reports whether nothing is left to do about a part.
	Notified(ctx context.Context, part string) (bool, error)
}

const (
	// poolWait is how long a process waits for another that sends a page, and poolTick how often it looks whether that is over.
	poolWait = pageTime + 5*time.Second
	poolTick = 250 * time.Millisecond
)

// note is what is known of a group by all processes.
type note struct {
	Since, Last time.Time
	Total       int
	Next        time.Time // when the next page may be sent
	Reminder    time.Time // when the reminder on the outbox is due
}

// turn is how a process may send a page: alone, for others as well, or not, because another has.
type turn struct {
	pooled bool
	done   bool     // another process has told of everything
	others []string // parts of other processes
	known  *note
}

// join waits for the turn to send what is in d, and puts in what other processes have laid down.
func (g *Groups) join(gr *group, d *Digest) (t turn) {
	if g.cfg.Pool == nil {
		return turn{}
	}
	defer func() {
		if g.ctx.Err() == nil && !t.pooled && !t.done {
			g.cfg.Log.Debug("page is sent by this process alone", zap.String("sink", g.Name()))
		}
	}()
	group, part := g.Name()+"\x00"+key(gr.labels), rand.Text()
	body, err := json.Marshal(d)
	if err != nil || g.cfg.Pool.Add(g.ctx, group, part, body) != nil {
		return turn{}
	}
	wait := gather // for what the same instant brings to others
	for end := time.Now().Add(poolWait); time.Now().Before(end); wait = poolTick {
		select {
		case <-time.After(wait):
		case <-g.ctx.Done():
			return turn{}
		}
		if told, err := g.cfg.Pool.Notified(g.ctx, part); err != nil || told {
			return turn{done: told && err == nil}
		}
		mine, parts, text, err := g.cfg.Pool.Claim(g.ctx, group)
		if err != nil {
			return turn{}
		}
		if !mine {
			continue
		}
		if _, lies := parts[part]; !lies {
			// Another took ours with its own, and may have been done between our two questions.
			told, err := g.cfg.Pool.Notified(g.ctx, part)
			if told && err == nil {
				g.hand(group, parts, text)
				return turn{done: true}
			}
		}
		t = turn{pooled: true}
		for name, body := range parts {
			other, err := ParseDigest(body)
			if name == part || err != nil || other.Sink != d.Sink {
				continue
			}
			d.merge(other)
			t.others = append(t.others, name)
		}
		var known note
		if json.Unmarshal(text, &known) == nil {
			t.known = &known
		}
		return t
	}
	return turn{}
}

// hand gives a claim back that was not needed, with what others have laid down.
func (g *Groups) hand(group string, parts map[string][]byte, text []byte) {
	ctx := context.WithoutCancel(g.ctx)
	var err error
	for name, body := range parts {
		err = errors.Join(err, g.cfg.Pool.Add(ctx, group, name, body))
	}
	if err = errors.Join(err, g.cfg.Pool.Release(ctx, group, nil, false, text)); err != nil {
		g.cfg.Log.Debug("a page waits until its claim is over", zap.String("sink", g.Name()), zap.Error(err))
	}
}

// learn takes over what all processes know.
func (gr *group) learn(n *note) {
	if n == nil {
		return
	}
	gr.since, gr.last, gr.total = n.Since, n.Last, n.Total
	gr.next, gr.reminder = latest(gr.next, n.Next), n.Reminder
}

// leave tells the others how it went.
func (g *Groups) leave(gr *group, t turn, told bool) {
	if !t.pooled {
		return
	}
	g.mu.Lock()
	n := note{Since: gr.since, Last: gr.last, Total: gr.total, Next: gr.next, Reminder: gr.reminder}
	g.mu.Unlock()
	text, err := json.Marshal(n)
	if err == nil {
		err = g.cfg.Pool.Release(context.WithoutCancel(g.ctx), g.Name()+"\x00"+key(gr.labels), t.others, told, text)
	}
	if err != nil {
		g.cfg.Log.Debug("other processes do not know of a page", zap.String("sink", g.Name()), zap.Error(err))
	}
}

// early reports whether another process has sent the group's last page so lately that the events of d are for the next.
func (g *Groups) early(gr *group, d *Digest, t turn) (next time.Time, yes bool) {
	if t.known == nil || d.Count == 0 || gr.since.IsZero() {
		return time.Time{}, false
	}
	return t.known.Next, t.known.Next.After(g.cfg.Outbox.Now().Add(time.Second))
}
