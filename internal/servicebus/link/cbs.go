// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"overdue/internal/amqp/client"
)

// putToken is one request on a pair of $cbs links, which stays open: opening it costs five round
// trips and the memory of three links, and a monitor claims an entity and its sub-queues one by one.
// Service Bus detaches idle links after ten minutes, so a pair that fails is opened once more.
func (r *receiving) putToken(ctx context.Context, audience string, token Token) error {
	for {
		kept := r.cbs != nil
		err := r.request(ctx, audience, token)
		var answer *StatusError
		if err == nil || errors.As(err, &answer) {
			return err
		}
		// It cannot be used any more. A second pair on the connection is refused, so it has to be closed.
		if r.cbs != nil {
			err = errors.Join(err, r.cbs.close(ctx))
			r.cbs = nil
		}
		if !kept || ctx.Err() != nil {
			return err
		}
	}
}

// request puts a token over the pair that is open, or opens one.
func (r *receiving) request(ctx context.Context, audience string, token Token) (err error) {
	if r.cbs == nil {
		if r.cbs, err = openRPC(ctx, r.Conn, "$cbs"); err != nil {
			return err
		}
	}
	expiry := "0"
	if !token.Expires.IsZero() {
		expiry = strconv.FormatInt(token.Expires.Unix(), 10)
	}
	_, err = r.cbs.call(ctx, map[string]any{
		"operation": "put-token", "type": token.Type, "name": audience, "expiration": expiry,
	}, token.Value)
	return err
}

func (s *sending) putToken(ctx context.Context, audience string, token Token) error {
	answer, err := s.PutToken(ctx, &client.Token{Audience: audience, Type: token.Type, Value: token.Value, Expires: token.Expires})
	if err != nil {
		return sendingError(err)
	}
	if answer.Status/100 != http.StatusOK/100 {
		return &StatusError{Code: int(answer.Status), Condition: string(answer.Condition), Description: answer.Description}
	}
	return nil
}
