// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

const (
	notifyTime = 25 * time.Millisecond // bound of a question that a notification waits for
	// ClaimLife is longer than a notification takes whose sinks answer within 30 s. notifiedLife is
	// longer than the longest lock: a process that finds the event again within one knows that it was
	// notified.
	ClaimLife    = 45 * time.Second
	notifiedLife = 10 * time.Minute
)

// Notified is which events the monitors of the fleet have notified.
type Notified struct {
	c     *circuit
	token string // of this process
}

// Notified returns the record of the fleet.
func (s *Store) Notified() *Notified {
	token := rand.Text()
	return &Notified{s.circuit("notified", notifyTime, s.key("e", token), "get", "set", "del", "eval", "evalsha"), token}
}

func (t *Notified) key(event string) string {
	sum := sha256.Sum256([]byte(event))
	return t.c.s.key("e", string(sum[:16]))
}

// Begin claims the notification of an event. notified: another process has sent it. Neither mine
// nor notified: another is about to. With an error nobody knows.
func (t *Notified) Begin(ctx context.Context, event string) (mine, notified bool, err error) {
	var state string
	err = t.c.do(ctx, func(ctx context.Context) error {
		state, err = claim(ctx, t.c.s.client, t.key(event), t.token, ClaimLife)
		return err
	})
	return state == claimMine, state == claimDone, err
}

// End records how a claimed notification ended.
func (t *Notified) End(ctx context.Context, event string, notified bool) error {
	var done time.Duration
	if notified {
		done = notifiedLife
	}
	return t.c.do(ctx, func(ctx context.Context) error {
		return settle(ctx, t.c.s.client, t.key(event), t.token, done)
	})
}

const (
	groupTime = 250 * time.Millisecond // bound of a question that a notification waits for
	partLife  = time.Minute
	sendLife  = 45 * time.Second // longer than a notification takes whose sink answers within 30 s
	notesLife = 24 * time.Hour
	noteField = "note"
)

// Groups makes one notification of the events that several processes have in an alert group. It is
// the alert.Pool of the fleet.
type Groups struct {
	c     *circuit
	token string // of this process
}

// Groups returns the groups of the fleet.
func (s *Store) Groups() *Groups {
	token := rand.Text()
	claimKey, _, _ := s.groupKeys(token)
	return &Groups{s.circuit("groups", groupTime, claimKey, "get", "set", "del", "time", "hset", "hgetall", "hdel", "pexpire", "eval", "evalsha"), token}
}

// groupKeys are the keys of a group: who sends, the digests to send, and the state after the last
// one.
func (s *Store) groupKeys(group string) (claim, parts, note string) {
	sum := sha256.Sum256([]byte(group))
	tag := "{" + hex.EncodeToString(sum[:8]) + "}"
	return s.key("p", tag, "turn"), s.key("p", tag, "digests"), s.key("p", tag, "state")
}

// Add stores a part of a group's next notification, for a minute.
func (p *Groups) Add(ctx context.Context, group, part string, body []byte) error {
	_, parts, _ := p.c.s.groupKeys(group)
	return p.c.do(ctx, func(ctx context.Context) error {
		return put(ctx, p.c.s.client, parts, part, string(body), partLife)
	})
}

// Claim asks to send the notification of a group. mine: nobody else is sending, parts are those of
// the last minute, and note is what was left last.
func (p *Groups) Claim(ctx context.Context, group string) (mine bool, parts map[string]string, note string, err error) {
	claimKey, partsKey, noteKey := p.c.s.groupKeys(group)
	err = p.c.do(ctx, func(ctx context.Context) error {
		state, err := claim(ctx, p.c.s.client, claimKey, p.token, sendLife)
		if mine = state == claimMine; err != nil || !mine {
			return err
		}
		if parts, err = fresh(ctx, p.c.s.client, partsKey, partLife); err != nil {
			return err
		}
		notes, err := fresh(ctx, p.c.s.client, noteKey, notesLife)
		note = notes[noteField]
		return err
	})
	return mine, parts, note, err
}

// Release leaves a note and ends a sending, unless another process has claimed that by now.
func (p *Groups) Release(ctx context.Context, group, note string) error {
	claimKey, _, noteKey := p.c.s.groupKeys(group)
	return p.c.do(ctx, func(ctx context.Context) error {
		if state, err := claim(ctx, p.c.s.client, claimKey, p.token, sendLife); err != nil || state != claimMine {
			return err
		}
		if err := put(ctx, p.c.s.client, noteKey, noteField, note, notesLife); err != nil {
			return err
		}
		return settle(ctx, p.c.s.client, claimKey, p.token, 0)
	})
}

const (
	historyTime = 2 * time.Second // bound of a question: an operator waits for those that read
	// MostMissed bounds the missed deadlines that the fleet keeps: all together fit into one answer.
	MostMissed = 2000
	// MostRecord bounds each of them, in bytes.
	MostRecord = 8 << 10
)

// History is the latest missed deadlines and unknown verdicts of the fleet, as the processes wrote
// them.
type History struct{ c *circuit }

// History is that of the fleet.
func (s *Store) History() *History {
	return &History{s.circuit("history", historyTime, s.key("h", "trial"), "rpush", "ltrim", "pexpire", "lrange", "eval", "evalsha")}
}

// A Record is a kind of records.
type Record string

// Kinds of records.
const (
	MissedRecord  Record = "missed"  // a missed deadline
	UnknownRecord Record = "unknown" // an unknown verdict
)

// Add adds records, which are kept for a while.
func (h *History) Add(ctx context.Context, of Record, records []string, keep time.Duration) error {
	return h.c.do(ctx, func(ctx context.Context) error {
		return deliver(ctx, h.c.s.client, h.c.s.key("h", string(of)), MostMissed, keep, records[max(0, len(records)-MostMissed):])
	})
}

// Latest returns the latest records up to a limit, the oldest first.
func (h *History) Latest(ctx context.Context, of Record, limit int) (records []string, err error) {
	err = h.c.do(ctx, func(ctx context.Context) (err error) {
		records, err = latest(ctx, h.c.s.client, h.c.s.key("h", string(of)), limit)
		return err
	})
	return records, err
}
