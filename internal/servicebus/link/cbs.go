// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"
)

// claim makes sure that c may use entity: it puts a token to $cbs unless one that
// still lasts was put before.
func (n *Namespace) claim(ctx context.Context, c *conn, entity string) error {
	audience := n.audience(entity)
	if err := c.claiming.take(ctx); err != nil {
		return err
	}
	defer c.claiming.give()
	if until, ok := c.claims[audience]; ok && (until.IsZero() || time.Now().Before(until)) {
		return nil
	}
	token, err := n.cfg.Tokens.Token(ctx, audience)
	if err != nil {
		return fmt.Errorf("%w for %s: %w", errNoToken, audience, err)
	}
	if err := putToken(ctx, c.amqp, audience, token); err != nil {
		return fmt.Errorf("link: put a token for %s: %w", audience, err)
	}
	var until time.Time
	if !token.Expires.IsZero() {
		until = token.Expires.Add(-claimMargin)
	}
	c.claims[audience] = until
	return nil
}

// putToken is one request on a pair of $cbs links, closed again afterwards: a second pair on
// the connection is refused.
func putToken(ctx context.Context, c *amqp.Conn, audience string, token Token) error {
	cbs, err := openRPC(ctx, c, "$cbs")
	if err != nil {
		return err
	}
	expiry := "0"
	if !token.Expires.IsZero() {
		expiry = strconv.FormatInt(token.Expires.Unix(), 10)
	}
	_, err = cbs.call(ctx, map[string]any{
		"operation": "put-token", "type": token.Type, "name": audience, "expiration": expiry,
	}, token.Value)
	if closeErr := cbs.close(ctx); err == nil {
		err = closeErr
	}
	return err
}
