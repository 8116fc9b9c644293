// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"net/http"
	"strconv"

	"overdue/internal/amqp"
	"overdue/internal/amqp/client"
)

// A wire is a connection, and the links to its $cbs. They stay open: opening them costs two round
// trips, and a monitor claims an entity and its sub-queues one by one.
type wire struct {
	*client.Conn

	// Of whose turn it is to claim.
	cbs   *client.Node // nil: not open
	alone bool         // several requests at once have failed: one at a time from now on
}

// A claim is a token for an audience.
type claim struct {
	audience string
	token    Token
}

// putTokens makes a request to $cbs for each claim, all of them at once, and calls put with each
// outcome. The first claim matters most: if the broker does not take several at once, there is no
// request for the others. Service Bus detaches idle links after ten minutes, so links that fail are
// opened once more.
func (w *wire) putTokens(ctx context.Context, claims []claim, put func(i int, err error)) error {
	for {
		if w.alone {
			claims = claims[:1]
		}
		kept := w.cbs != nil
		err := w.request(ctx, claims, put)
		if err == nil {
			return nil
		}
		if !kept && len(claims) > 1 && ctx.Err() == nil {
			w.alone = true
		}
		// They cannot be used any more. A second pair on the connection is refused, so they have to be
		// closed.
		if w.cbs != nil {
			w.cbs.Close(ctx)
			w.cbs = nil
		}
		if !kept || ctx.Err() != nil {
			return err
		}
	}
}

// request puts tokens over the links that are open, or opens them.
func (w *wire) request(ctx context.Context, claims []claim, put func(i int, err error)) (err error) {
	if w.cbs == nil {
		if w.cbs, err = w.Node(ctx, "$cbs"); err != nil {
			return clientError(err)
		}
	}
	requests := make([]client.Request, len(claims))
	for i, c := range claims {
		expiry := "0" // unknown
		if !c.token.Expires.IsZero() {
			expiry = strconv.FormatInt(c.token.Expires.Unix(), 10)
		}
		requests[i] = client.Request{Properties: amqp.Map{
			{Key: "operation", Value: "put-token"}, {Key: "type", Value: c.token.Type},
			{Key: "name", Value: c.audience}, {Key: "expiration", Value: expiry},
		}, Body: amqp.AppendString(nil, c.token.Value)}
	}
	return clientError(w.cbs.CallEach(ctx, requests, func(i int, a *amqp.Answer) error {
		put(i, status(a))
		return nil
	}))
}

// status returns how a request ended, as an error.
func status(a *amqp.Answer) error {
	if a.Status/100 == http.StatusOK/100 {
		return nil
	}
	return &StatusError{Code: int(a.Status), Condition: string(a.Condition), Description: a.Description}
}
