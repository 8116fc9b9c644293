// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"overdue/internal/amqp"
)

// maxPipelined bounds the requests to a node that wait for their answers.
const maxPipelined = 32

// answerCredit is granted for answers: there is always enough for all that may come.
const answerCredit = 2 * maxPipelined

// A Node is a pair of links to a node that answers requests, such as $cbs. It is for one goroutine.
type Node struct {
	requests *link
	answers  *Receiver
	replyTo  string
	sent     uint64 // requests
}

// Node attaches the links in a session of their own. A refusal by the peer is an *amqp.Error.
func (c *Conn) Node(ctx context.Context, address string) (*Node, error) {
	n := &Node{replyTo: "reply-" + rand.Text()}
	at := amqp.Source{Address: address, HasAddress: true}
	to := amqp.Target{Address: address, HasAddress: true}
	reply := amqp.Target{Address: n.replyTo, HasAddress: true}
	c.mu.Lock()
	s, err := c.beginLocked()
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	n.answers = &Receiver{s.attachLocked(&amqp.Attach{Role: amqp.RoleReceiver, SndSettleMode: amqp.SndSettled, Source: &at, Target: &reply}, 0)}
	n.requests = s.attachLocked(&amqp.Attach{Role: amqp.RoleSender, SndSettleMode: amqp.SndMixed, Source: &amqp.Source{}, Target: &to}, 0)
	c.flushLocked(writeUntil(ctx))
	err = s.attached(ctx, n.answers.link)
	if err == nil {
		err = s.attached(ctx, n.requests)
	}
	if err == nil {
		err = n.answers.Grant(ctx, answerCredit)
	}
	if err != nil {
		s.abandon(ctx, err)
		return nil, err
	}
	return n, nil
}

// Close ends the links and their session.
func (n *Node) Close(ctx context.Context) { n.requests.session.close(ctx) }

// A Request is what a Node is asked.
type Request struct {
	Properties amqp.Map // application properties
	Body       amqp.Raw
}

// CallEach sends requests before it waits for their answers. It calls take with each answer, in any
// order: Service Bus does not say that it answers in order. An error of take ends CallEach when all
// answers are there. After any other error the Node cannot be used any more, since answers may still
// come.
func (n *Node) CallEach(ctx context.Context, requests []Request, take func(i int, a *amqp.Answer) error) error {
	waiting := map[string]int{}
	var taken error
	var underway []*delivery
	defer func() {
		for _, d := range underway {
			n.requests.forget(d)
		}
	}()
	for sent := 0; sent < len(requests) || len(waiting) > 0; {
		for ; sent < len(requests) && len(waiting) < maxPipelined; sent++ {
			n.sent++
			id := n.replyTo + "-" + strconv.FormatUint(n.sent, 10)
			p := amqp.Properties{MessageID: id, ReplyTo: &n.replyTo}
			request, err := amqp.AppendValue(amqp.AppendDescriptor(p.Append(nil), amqp.CodeApplicationProperties), requests[sent].Properties)
			if err != nil {
				return fmt.Errorf("encode a request: %w", err)
			}
			d, err := n.requests.start(ctx, 0, amqp.AppendValueSection(request, requests[sent].Body))
			if err != nil {
				return err
			}
			waiting[id], underway = sent, append(underway, d)
		}
		// A request that is not accepted has no answer.
		first := underway[0]
		underway = underway[1:]
		if err := n.requests.finish(ctx, first); err != nil {
			return err
		}
		d, err := n.answers.Receive(ctx)
		if err != nil {
			return err
		}
		if left := n.answers.Credit(); left < maxPipelined {
			if err := n.answers.Grant(ctx, answerCredit-left); err != nil {
				return err
			}
		}
		a, id, err := readAnswer(d.Payload)
		if err != nil {
			return err
		}
		i, ok := waiting[id]
		if !ok {
			return errors.New("the answer is for another request")
		}
		delete(waiting, id)
		if err := take(i, &a); err != nil && taken == nil {
			taken = err
		}
	}
	return taken
}

// readAnswer reads an answer, and the id of its request. The service spells the keys with hyphens
// on $cbs and in camel case on $management.
func readAnswer(b []byte) (a amqp.Answer, id string, err error) {
	m, err := amqp.ParseMessage(b)
	if err != nil {
		return a, "", err
	}
	r, _ := amqp.ListField(m.Properties, amqp.PropertyCorrelationID)
	id, _ = r.Value().(string)
	find := func(keys ...string) any {
		for _, k := range keys {
			if r, ok := amqp.MapLookup(m.ApplicationProperties, k); ok {
				return r.Value()
			}
		}
		return nil
	}
	var ok bool
	if a.Status, ok = find("statusCode", "status-code").(int32); !ok {
		return a, "", errors.New("the answer has no status code")
	}
	a.Description, _ = find("statusDescription", "status-description").(string)
	switch condition := find("errorCondition", "error-condition").(type) {
	case string:
		a.Condition = amqp.Symbol(condition)
	case amqp.Symbol:
		a.Condition = condition
	}
	if r, ok := m.Value(); ok {
		a.Body = r.Rest()
	}
	return a, id, nil
}
