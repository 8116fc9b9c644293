// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"overdue/internal/amqp"
	amqpclient "overdue/internal/amqp/client"
)

// errPairLost is wrapped by the error of a put whose links ended before the answer came.
var errPairLost = errors.New("the links to $cbs were lost")

const (
	addressCBS = "$cbs"
	opPutToken = "put-token"
)

// A pair is the relay's own pair of links to $cbs on one upstream connection, on a session that
// no client sees. The first token opens it. The service ends links that idle; the next token
// opens the pair again.
type pair struct {
	conn *amqpclient.Conn // over the transport of upstream
	turn chan struct{}    // has the token of the put that opens or drops the links
	node *amqpclient.Node // nil: the links are not open
}

func newPair(conn *amqpclient.Conn) *pair { return &pair{conn: conn, turn: make(chan struct{}, 1)} }

// put puts a token for audience and returns the answer. The error wraps
// errPairLost when the links ended meanwhile.
//
// The relay puts a token of its own for each that a client puts, and the client gets this answer:
// SDKs learn from $cbs that an entity does not exist. That of Go has an error code for it there,
// and none for a link that is refused with amqp:not-found.
func (p *pair) put(ctx context.Context, audience string, t Token) (response, error) {
	node, err := p.open(ctx)
	if err != nil {
		return response{}, err
	}
	expiry := "0" // unknown
	if !t.Expires.IsZero() {
		expiry = strconv.FormatInt(t.Expires.Unix(), 10)
	}
	a, err := node.Call(ctx, amqpclient.Request{
		Properties: amqp.Map{
			{Key: "operation", Value: opPutToken},
			{Key: "type", Value: t.Type},
			{Key: "name", Value: audience},
			{Key: "expiration", Value: expiry},
		},
		Body: amqp.AppendString(nil, t.Text),
	})
	if err == nil {
		return response{a.Status, a.Description, a.Condition}, nil
	}
	return response{}, p.lost(ctx, node, err)
}

// open returns the links, and attaches them if they are not there.
func (p *pair) open(ctx context.Context) (*amqpclient.Node, error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.turn }()
	for p.node == nil {
		var err error
		p.node, err = p.conn.Node(ctx, addressCBS)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, amqpclient.ErrNoChannel):
			return nil, fmt.Errorf("%w: %w", errPairLost, err)
		default: // upstream has yet to end the session of the links before
			select {
			case <-p.conn.Freed():
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return p.node, nil
}

// lost returns the error of a put, and drops the links if they have ended.
func (p *pair) lost(ctx context.Context, node *amqpclient.Node, err error) error {
	var ended *amqpclient.EndedError
	var rejected *amqp.Error
	switch {
	case errors.As(err, &ended):
		p.turn <- struct{}{} // the put that has it does not wait for this one
		if p.node == node {
			p.node = nil
			node.Close(ctx)
		}
		<-p.turn
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &rejected):
		return err
	}
	return fmt.Errorf("%w: %w", errPairLost, err)
}
