// SPDX-License-Identifier: Apache-2.0

// Package proven remembers the tokens of clients whose sends the namespace has accepted.
package proven

import (
	"crypto/sha256"
	"strings"
	"sync"
	"time"
)

const (
	// Time is how long a token is trusted after the namespace has accepted it.
	Time = 5 * time.Minute
	// Most bounds the number of tokens that are remembered.
	Most = 4096
)

// A Key is a token and the entity that it was shown for.
type Key [sha256.Size]byte

// Tokens are those whose sends the namespace has accepted. The zero value is ready.
type Tokens struct {
	mu    sync.Mutex
	until map[Key]time.Time
}

// KeyOf returns the Key of an Authorization header.
func KeyOf(header, entity string) Key {
	return sha256.Sum256([]byte(strings.ToLower(entity) + "\x00" + header))
}

// Holds reports whether the namespace has accepted the token not long before now.
func (t *Tokens) Holds(token Key, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Before(t.until[token])
}

// Note remembers a token that the namespace has accepted, and forgets one that it has not.
func (t *Tokens) Note(token Key, taken bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !taken {
		delete(t.until, token)
		return
	}
	if len(t.until) >= Most {
		clear(t.until) // clients prove them again
	}
	if t.until == nil {
		t.until = map[Key]time.Time{}
	}
	t.until[token] = now.Add(Time)
}
