// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"net/http"
	"strconv"

	"overdue/internal/amqp/client"
)

// putToken is one request on a pair of $cbs links, closed again afterwards: a second pair on
// the connection is refused.
func (r *receiving) putToken(ctx context.Context, audience string, token Token) error {
	cbs, err := openRPC(ctx, r.Conn, "$cbs")
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
