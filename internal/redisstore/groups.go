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
	groupTime = 250 * time.Millisecond // bound of a question that a notification waits for
	partLife  = time.Minute
	sendLife  = 45 * time.Second // longer than a notification takes whose sink answers within 30 s
	notesLife = 24 * time.Hour
)

// Groups makes one notification of the events that several processes have in an alert group. It is
// the alert.Pool of the fleet.
type Groups struct {
	c     *circuit
	token string // of this process
}

// Groups returns the groups of the fleet.
func (s *Store) Groups() *Groups {
	p := &Groups{token: rand.Text()}
	claimKey, parts, note := s.groupKeys(p.token)
	part := s.key("t", p.token)
	p.c = s.circuit("groups", groupTime,
		func(ctx context.Context) error { return putExpiring(ctx, s.client, parts, "trial", "x", trialLife) },
		func(ctx context.Context) error {
			_, _, _, err := take(ctx, s.client, claimKey, parts, note, p.token, trialLife)
			return err
		},
		func(ctx context.Context) error { return putAll(ctx, s.client, []entry{{part, "=", trialLife}}) },
		func(ctx context.Context) error { _, err := getAll(ctx, s.client, []string{part}); return err },
		func(ctx context.Context) error {
			return leave(ctx, s.client, claimKey, note, p.token, "x", trialLife)
		},
	)
	return p
}

func (p *Groups) keys(group string) (claim, parts, note string) { return p.c.s.groupKeys(group) }

// groupKeys have one tag.
func (s *Store) groupKeys(group string) (claim, parts, note string) {
	sum := sha256.Sum256([]byte(group))
	tag := "{" + hex.EncodeToString(sum[:8]) + "}"
	return s.key("p", tag, "claim"), s.key("p", tag, "parts"), s.key("p", tag, "note")
}

// Add stores a part of a group's next notification.
func (p *Groups) Add(ctx context.Context, group, part string, body []byte) error {
	_, parts, _ := p.keys(group)
	return p.c.do(ctx, func(ctx context.Context) error {
		return putExpiring(ctx, p.c.s.client, parts, part, string(body), partLife)
	})
}

// Claim asks to send the notification of a group. mine: nobody else is sending, parts are those
// that lay there, and note is what was left last.
func (p *Groups) Claim(ctx context.Context, group string) (mine bool, parts map[string][]byte, note []byte, err error) {
	claimKey, partsKey, noteKey := p.keys(group)
	err = p.c.do(ctx, func(ctx context.Context) error {
		ours, all, text, err := take(ctx, p.c.s.client, claimKey, partsKey, noteKey, p.token, sendLife)
		mine, note, parts = ours, []byte(text), map[string][]byte{}
		for i := 0; i+1 < len(all); i += 2 {
			parts[all[i]] = []byte(all[i+1])
		}
		return err
	})
	return mine, parts, note, err
}

// Release ends a sending. notified: the parts need no further notification.
func (p *Groups) Release(ctx context.Context, group string, parts []string, notified bool, note []byte) error {
	claimKey, _, noteKey := p.keys(group)
	return p.c.do(ctx, func(ctx context.Context) error {
		if notified {
			entries := make([]entry, 0, len(parts))
			for _, part := range parts {
				entries = append(entries, entry{p.c.s.key("t", part), "=", partLife})
			}
			if len(entries) > 0 {
				if err := putAll(ctx, p.c.s.client, entries); err != nil {
					return err
				}
			}
		}
		return leave(ctx, p.c.s.client, claimKey, noteKey, p.token, string(note), notesLife)
	})
}

// Notified reports whether nothing is left to do about a part.
func (p *Groups) Notified(ctx context.Context, part string) (notified bool, err error) {
	err = p.c.do(ctx, func(ctx context.Context) error {
		values, err := getAll(ctx, p.c.s.client, []string{p.c.s.key("t", part)})
		notified = err == nil && values[0] == "="
		return err
	})
	return notified, err
}
