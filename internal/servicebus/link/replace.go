// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"sync"
)

// ReplaceableTokens is a TokenSource whose key can be replaced while it is used. A connection puts a
// token of the new key before it uses an entity again, so its users notice nothing.
type ReplaceableTokens struct {
	mu       sync.Mutex
	source   TokenSource
	replaced chan struct{} // closed with the next source
}

// NewReplaceableTokens returns one that begins with source.
func NewReplaceableTokens(source TokenSource) *ReplaceableTokens {
	return &ReplaceableTokens{source: source, replaced: make(chan struct{})}
}

// Token returns a token of the source in use.
func (r *ReplaceableTokens) Token(ctx context.Context, audience string) (Token, error) {
	r.mu.Lock()
	source, replaced := r.source, r.replaced
	r.mu.Unlock()
	t, err := source.Token(ctx, audience)
	t.Replaced = replaced
	return t, err
}

// Replace puts another source in the place of the present one.
func (r *ReplaceableTokens) Replace(source TokenSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.replaced)
	r.source, r.replaced = source, make(chan struct{})
}
