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
	conn   *conn[*receiving]
	entity string
	rpc    *rpc
}

// Peeker opens a Peeker. entity may be a sub-queue's path.
func (n *Namespace) Peeker(ctx context.Context, entity string) (*Peeker, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := n.receiving.connect(ctx)
	if err != nil {
		return nil, err
	}
	p := &Peeker{ns: n, conn: c, entity: entity}
	node := entity + "/$management"
	if err = c.claim(ctx, n.cfg.Tokens, n.audience(node)); err == nil {
		p.rpc, err = openRPC(ctx, c.wire.Conn, node)
	}
	if err != nil {
		if !refused(err) {
			n.receiving.drop(c)
		}
		return nil, fmt.Errorf("link: open %s: %w", node, err)
	}
	return p, nil
}

// Peek brings up to n messages, 250 at most, from sequence number from on, without their bodies.
// None means that there is none from there on. After an error the Peeker is closed.
func (p *Peeker) Peek(ctx context.Context, from int64, n int) ([]*Message, error) {
	pages, err := p.PeekEach(ctx, []PeekRange{{from, n}})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}

// A PeekRange asks for up to N messages, 250 at most, from a sequence number on.
type PeekRange struct {
	From int64
	N    int
}

// PeekEach is Peek for several ranges: it sends the requests before it waits for the answers, so
// that together they take hardly longer than one. pages[i] is for ranges[i].
func (p *Peeker) PeekEach(ctx context.Context, ranges []PeekRange) (pages [][]*Message, err error) {
	requests := make([]any, len(ranges))
	for i, r := range ranges {
		requests[i] = peekRequest(r)
	}
	pages = make([][]*Message, len(ranges))
	err = p.callEach(ctx, operationPeek, requests, func(i int, reply *amqp.Message) (err error) {
		pages[i], err = parsePage(reply)
		return err
	}, conditionMessageNotFound)
	if err != nil {
		return nil, err
	}
	return pages, nil
}

const operationPeek = "com.microsoft:peek-message"

func peekRequest(r PeekRange) map[string]any {
	return map[string]any{
		"from-sequence-number": r.From, "message-count": int32(r.N), "omit-message-body": true,
	}
}

// PeekEncoded is like Peek, but brings the messages as they are encoded, whole.
func (p *Peeker) PeekEncoded(ctx context.Context, from int64, n int) (page [][]byte, err error) {
	reply, err := p.call(ctx, operationPeek, map[string]any{
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

// conditionMessageNotFound is how the broker says that a message which was asked for is not there
// to be had.
const conditionMessageNotFound = "com.microsoft:message-not-found"

// call makes one request. Where the broker refuses it with one of the conditions that are no error,
// the reply is nil. After an error the Peeker is closed.
func (p *Peeker) call(ctx context.Context, operation string, request map[string]any, noError ...string) (reply *amqp.Message, err error) {
	err = p.callEach(ctx, operation, []any{request}, func(_ int, m *amqp.Message) error {
		reply = m
		return nil
	}, noError...)
	return reply, err
}

// callEach is call for several requests, see rpc.callEach. take gets the answers of those that
// were not refused.
func (p *Peeker) callEach(ctx context.Context, operation string, requests []any, take func(i int, reply *amqp.Message) error, noError ...string) error {
	err := p.conn.claim(ctx, p.ns.cfg.Tokens, p.ns.audience(p.entity+"/$management"))
	if err == nil {
		err = p.rpc.callEach(ctx, map[string]any{"operation": operation}, requests, func(i int, reply *amqp.Message) error {
			err := status(reply)
			if answer := (*StatusError)(nil); errors.As(err, &answer) && slices.Contains(noError, answer.Condition) {
				return nil
			}
			if err != nil {
				return err
			}
			return take(i, reply)
		})
	}
	if err != nil {
		p.Close(ctx)
		return fmt.Errorf("link: %s on %s: %w", operation, p.entity, err)
	}
	return nil
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
		p.ns.receiving.drop(p.conn) // or the half-closed session would stay
	}
}
