// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"overdue/internal/amqp"
	"overdue/internal/amqp/client"
)

// A Peeker peeks at one queue, or at a sub-queue, through its $management node: it opens no link
// to the queue itself. It is for one goroutine.
type Peeker struct {
	ns     *Namespace
	conn   *conn
	entity string
	node   *client.Node
}

// Peeker opens a Peeker. entity may be a sub-queue's path. With its audience, Peeker claims those
// that the caller will use next, which are paths of entities or of nodes.
func (n *Namespace) Peeker(ctx context.Context, entity string, next ...string) (*Peeker, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c, err := n.receiving.connect(ctx)
	if err != nil {
		return nil, err
	}
	p := &Peeker{ns: n, conn: c, entity: entity}
	node := entity + "/$management"
	others := make([]string, len(next))
	for i, path := range next {
		others[i] = n.audience(path)
	}
	if err = c.claim(ctx, n.cfg.Tokens, n.audience(node), others...); err == nil {
		p.node, err = c.wire.Node(ctx, node)
		err = clientError(err)
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
	requests := make([]amqp.Map, len(ranges))
	for i, r := range ranges {
		requests[i] = append(peekRequest(r), amqp.Pair{Key: "omit-message-body", Value: true})
	}
	pages = make([][]*Message, len(ranges))
	err = p.call(ctx, operationPeek, requests, func(i int, body amqp.Raw) error {
		for encoded, err := range peeked(body) {
			if err != nil {
				return err
			}
			m, err := parseMessage(encoded)
			if err != nil {
				return err
			}
			pages[i] = append(pages[i], m)
		}
		return nil
	}, conditionMessageNotFound)
	if err != nil {
		return nil, err
	}
	return pages, nil
}

const operationPeek = "com.microsoft:peek-message"

func peekRequest(r PeekRange) amqp.Map {
	return amqp.Map{{Key: "from-sequence-number", Value: r.From}, {Key: "message-count", Value: int32(r.N)}}
}

// PeekEncoded is like Peek, but brings the messages as they are encoded, whole.
func (p *Peeker) PeekEncoded(ctx context.Context, from int64, n int) (page [][]byte, err error) {
	err = p.call(ctx, operationPeek, []amqp.Map{peekRequest(PeekRange{from, n})}, func(_ int, body amqp.Raw) error {
		for encoded, err := range peeked(body) {
			if err != nil {
				return err
			}
			page = append(page, encoded)
		}
		return nil
	}, conditionMessageNotFound)
	return page, err
}

// call sends several requests before it waits for their answers, and calls take with the body of
// each answer, unless the broker refuses the request with one of the conditions that are no error.
// After an error the Peeker is closed.
func (p *Peeker) call(ctx context.Context, operation string, requests []amqp.Map, take func(i int, body amqp.Raw) error, noError ...string) error {
	err := p.callEach(ctx, operation, requests, take, noError)
	if err != nil {
		p.Close(ctx)
		return fmt.Errorf("link: %s on %s: %w", operation, p.entity, clientError(err))
	}
	return nil
}

func (p *Peeker) callEach(ctx context.Context, operation string, requests []amqp.Map, take func(i int, body amqp.Raw) error, noError []string) error {
	if err := p.conn.claim(ctx, p.ns.cfg.Tokens, p.ns.audience(p.entity+"/$management")); err != nil {
		return err
	}
	properties := amqp.Map{{Key: "operation", Value: operation}}
	all := make([]client.Request, len(requests))
	for i, r := range requests {
		body, err := amqp.AppendValue(nil, r)
		if err != nil {
			return err
		}
		all[i] = client.Request{Properties: properties, Body: body}
	}
	return p.node.CallEach(ctx, all, func(i int, a *amqp.Answer) error {
		if slices.Contains(noError, string(a.Condition)) {
			return nil
		}
		if err := status(a); err != nil {
			return err
		}
		return take(i, a.Body)
	})
}

// listed yields the elements of {"messages": [{…}, …]}.
func listed(body amqp.Raw) iter.Seq2[amqp.Raw, error] {
	return func(yield func(amqp.Raw, error) bool) {
		r, ok := amqp.MapLookup(body, "messages")
		if !ok {
			return
		}
		list, n := r.List()
		for range n {
			entry := list.Raw()
			if err := list.Err(); err != nil {
				yield(nil, fmt.Errorf("link: messages of an answer: %w", err))
				return
			}
			if !yield(entry, nil) {
				return
			}
		}
	}
}

// peeked yields the encoded messages of {"messages": [{"message": binary}, …]}.
func peeked(body amqp.Raw) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for entry, err := range listed(body) {
			var encoded []byte
			if err == nil {
				r, _ := amqp.MapLookup(entry, "message")
				encoded, err = r.Binary(), r.Err()
			}
			if !yield(encoded, err) || err != nil {
				return
			}
		}
	}
}

// Close closes the links.
func (p *Peeker) Close(ctx context.Context) { p.node.Close(ctx) }
