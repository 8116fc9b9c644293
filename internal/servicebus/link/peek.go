// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/Azure/go-amqp"
)

// A Peeker peeks at one queue, or at a sub-queue, through its $management node: it opens no link
// to the queue itself. It is for one goroutine.
type Peeker struct {
	ns     *Namespace
	conn   *conn
	entity string
	rpc    *rpc
}

// Peeker opens a Peeker. entity may be a sub-queue's path.
func (n *Namespace) Peeker(ctx context.Context, entity string) (*Peeker, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	p := &Peeker{ns: n, conn: c, entity: entity}
	node := entity + "/$management"
	if err = n.claim(ctx, c, node); err == nil {
		p.rpc, err = openRPC(ctx, c.amqp, node)
	}
	if err != nil {
		if !refused(err) {
			n.drop(c)
		}
		return nil, fmt.Errorf("link: open %s: %w", node, err)
	}
	return p, nil
}

// Peek brings up to n messages, 250 at most, from sequence number from on, without their bodies.
// None means that there is none from there on. After an error the Peeker is closed.
func (p *Peeker) Peek(ctx context.Context, from int64, n int) ([]*Message, error) {
	reply, err := p.call(ctx, "com.microsoft:peek-message", map[string]any{
		"from-sequence-number": from, "message-count": int32(n), "omit-message-body": true,
	}, conditionMessageNotFound)
	if reply == nil || err != nil {
		return nil, err
	}
	return parsePage(reply)
}

// PeekEncoded is Peek for who reads the messages itself: it brings them as they are encoded, whole.
func (p *Peeker) PeekEncoded(ctx context.Context, from int64, n int) (page [][]byte, err error) {
	reply, err := p.call(ctx, "com.microsoft:peek-message", map[string]any{
		"from-sequence-number": from, "message-count": int32(n),
	}, conditionMessageNotFound)
	if reply == nil || err != nil {
		return nil, err
	}
	for encoded, err := range peeked(reply) {
		if err != nil {
			return nil, err
		}
		page = append(page, encoded)
	}
	return page, nil
}

// conditionMessageNotFound is how the broker says that a message which was asked for is not there to be had.
const conditionMessageNotFound = "com.microsoft:message-not-found"

// call makes one request. Where the broker refuses it with one of the conditions that are no error, the
// reply is nil. After an error the Peeker is closed.
func (p *Peeker) call(ctx context.Context, operation string, request map[string]any, noError ...string) (*amqp.Message, error) {
	err := p.ns.claim(ctx, p.conn, p.entity+"/$management")
	var reply *amqp.Message
	if err == nil {
		reply, err = p.rpc.call(ctx, map[string]any{"operation": operation}, request)
	}
	if answer := (*StatusError)(nil); errors.As(err, &answer) && slices.Contains(noError, answer.Condition) {
		return nil, nil
	}
	if err != nil {
		p.Close(ctx)
		return nil, fmt.Errorf("link: %s on %s: %w", operation, p.entity, err)
	}
	return reply, nil
}

func parsePage(reply *amqp.Message) (page []*Message, err error) {
	for encoded, err := range peeked(reply) {
		if err != nil {
			return nil, err
		}
		m, err := parseMessage(encoded)
		if err != nil {
			return nil, err
		}
		page = append(page, m)
	}
	return page, nil
}

// peeked reads {"messages": [{"message": binary}, …]}.
func peeked(reply *amqp.Message) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		body, _ := reply.Value.(map[string]any)
		list, _ := body["messages"].([]any)
		for _, item := range list {
			entry, _ := item.(map[string]any)
			encoded, ok := entry["message"].([]byte)
			if !ok {
				yield(nil, errors.New("link: a peeked message is not binary"))
				return
			}
			if !yield(encoded, nil) {
				return
			}
		}
	}
}

// Close closes the links.
func (p *Peeker) Close(ctx context.Context) {
	if err := p.rpc.close(ctx); err != nil {
		p.ns.drop(p.conn) // or the half-closed session would stay
	}
}
