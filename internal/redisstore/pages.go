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
	pageTime  = 250 * time.Millisecond // bound of a question that a page waits for
	partLife  = time.Minute
	sendLife  = 20 * time.Second // longer than the tries to send one page
	notesLife = 24 * time.Hour
)

// Pages makes one page of what rings at several processes: it is the alert.Pool of the fleet.
type Pages struct {
	c     *circuit
	token string // of this process
}

// Pages are those of the fleet.
func (s *Store) Pages() *Pages { return &Pages{s.circuit("pages"), rand.Text()} }

// keys of a group have one tag.
func (p *Pages) keys(group string) (claim, parts, note string) {
	sum := sha256.Sum256([]byte(group))
	tag := "{" + hex.EncodeToString(sum[:8]) + "}"
	return p.c.s.key("p", tag, "claim"), p.c.s.key("p", tag, "parts"), p.c.s.key("p", tag, "note")
}

func (p *Pages) do(ctx context.Context, f func(context.Context) error) error {
	return p.c.do(ctx, p.c.s.bound(pageTime), f)
}

// Add lays a part of a group's next page down.
func (p *Pages) Add(ctx context.Context, group, part string, body []byte) error {
	_, parts, _ := p.keys(group)
	return p.do(ctx, func(ctx context.Context) error { return lay(ctx, p.c.s.client, parts, part, string(body), partLife) })
}

// Claim asks to send the page of a group. mine: nobody else is sending, parts are those that lay
// there, and note is what was left last.
func (p *Pages) Claim(ctx context.Context, group string) (mine bool, parts map[string][]byte, note []byte, err error) {
	claimKey, partsKey, noteKey := p.keys(group)
	err = p.do(ctx, func(ctx context.Context) error {
		ours, all, text, err := take(ctx, p.c.s.client, claimKey, partsKey, noteKey, p.token, sendLife)
		mine, note, parts = ours, []byte(text), map[string][]byte{}
		for i := 0; i+1 < len(all); i += 2 {
			parts[all[i]] = []byte(all[i+1])
		}
		return err
	})
	return mine, parts, note, err
}

// Release ends a sending. told: nothing is left to do about the parts.
func (p *Pages) Release(ctx context.Context, group string, parts []string, told bool, note []byte) error {
	claimKey, _, noteKey := p.keys(group)
	return p.do(ctx, func(ctx context.Context) error {
		if told {
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
func (p *Pages) Notified(ctx context.Context, part string) (told bool, err error) {
	err = p.do(ctx, func(ctx context.Context) error {
		values, err := getAll(ctx, p.c.s.client, []string{p.c.s.key("t", part)})
		told = err == nil && values[0] == "="
		return err
	})
	return told, err
}
