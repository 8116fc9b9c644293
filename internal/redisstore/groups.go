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
	claimKey, parts, _ := s.groupKeys(token)
	return &Groups{s.circuit("groups", groupTime,
		func(ctx context.Context) error {
			_, err := claim(ctx, s.client, claimKey, token, trialLife)
			return err
		},
		func(ctx context.Context) error { return settle(ctx, s.client, claimKey, token, 0) },
		func(ctx context.Context) error { return put(ctx, s.client, parts, "trial", "x", trialLife) },
		func(ctx context.Context) error { _, err := fresh(ctx, s.client, parts, trialLife); return err },
	), token}
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
