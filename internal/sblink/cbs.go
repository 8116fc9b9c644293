// SPDX-License-Identifier: Apache-2.0

package sblink

import (
	"context"
	"crypto/rand"
	"errors"
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
		return fmt.Errorf("sblink: get a token for %s: %w", audience, err)
	}
	if err := putToken(ctx, c.amqp, audience, token); err != nil {
		return fmt.Errorf("sblink: put a token for %s: %w", audience, err)
	}
	var until time.Time
	if !token.Expires.IsZero() {
		until = token.Expires.Add(-claimMargin)
	}
	c.claims[audience] = until
	return nil
}

// putToken is one request and its response on a pair of $cbs links in a session of
// their own, closed again afterwards: a second pair on the connection is refused.
func putToken(ctx context.Context, c *amqp.Conn, audience string, token Token) (err error) {
	session, err := c.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := session.Close(context.WithoutCancel(ctx)); err == nil {
			err = closeErr
		}
	}()
	id := rand.Text()
	replyTo := "cbs-reply-" + id
	receiver, err := session.NewReceiver(ctx, "$cbs", &amqp.ReceiverOptions{
		TargetAddress:             replyTo,
		RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
		Credit:                    1,
	})
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, "$cbs", nil)
	if err != nil {
		return err
	}
	expiry := "0"
	if !token.Expires.IsZero() {
		expiry = strconv.FormatInt(token.Expires.Unix(), 10)
	}
	err = sender.Send(ctx, &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: id, ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{
			"operation": "put-token", "type": token.Type, "name": audience, "expiration": expiry,
		},
		Value: token.Value,
	}, nil)
	if err != nil {
		return err
	}
	reply, err := receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	return claimStatus(reply)
}

// claimStatus reads the outcome of a put-token. The service spells the keys with
// hyphens here and in camel case on $management; either will do.
func claimStatus(reply *amqp.Message) error {
	get := func(keys ...string) any {
		for _, k := range keys {
			if v, ok := reply.ApplicationProperties[k]; ok {
				return v
			}
		}
		return nil
	}
	code, ok := get("status-code", "statusCode").(int32)
	if !ok {
		return errors.New("the answer of $cbs has no status code")
	}
	if code/100 == 2 {
		return nil
	}
	description, _ := get("status-description", "statusDescription").(string)
	return &ClaimError{Code: int(code), Description: description}
}

// ClaimError is the refusal of a token: Code is 401 where the token is not good and
// 404 where the entity is not known.
type ClaimError struct {
	Code        int
	Description string
}

func (e *ClaimError) Error() string { return fmt.Sprintf("refused with %d: %s", e.Code, e.Description) }
