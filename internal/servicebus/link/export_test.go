// SPDX-License-Identifier: Apache-2.0

package link

import "context"

// PutTokens puts the tokens of some entities at once, and returns how many the broker has accepted.
func (n *Namespace) PutTokens(ctx context.Context, names ...string) (put int, err error) {
	c, err := n.receiving.connect(ctx)
	if err != nil {
		return 0, err
	}
	var claims []claim
	for _, name := range names {
		token, err := n.cfg.Tokens.Token(ctx, n.audience(name))
		if err != nil {
			return 0, err
		}
		claims = append(claims, claim{n.audience(name), token})
	}
	err = c.wire.putTokens(ctx, claims, func(_ int, err error) {
		if err == nil {
			put++
		}
	})
	return put, err
}

// Entities returns how many senders Send keeps.
func (n *Namespace) Entities() int {
	n.senders.mu.Lock()
	defer n.senders.mu.Unlock()
	return len(n.senders.byName)
}

// MaxSenders is how many it keeps at the most.
const MaxSenders = maxSenders
