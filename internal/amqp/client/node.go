// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"overdue/internal/amqp"
)

// maxPipelined bounds the requests to a node that wait for their answers.
const maxPipelined = 32

// answerCredit is granted for answers: there is always enough for all that may come.
const answerCredit = 2 * maxPipelined

// A Node is a pair of links to a node that answers requests, such as $cbs. It is for one goroutine,
// or for calls of Call alone.
type Node struct {
	requests *link
	answers  *Receiver
	replyTo  string
	sent     int            // requests so far
	waiting  map[string]int // requests without an answer, by message-id: which one it was
	underway []*delivery    // requests that are not accepted yet, in order

	mu      sync.Mutex // of what Call uses, and sent
	calls   map[string]chan amqp.Answer
	reading chan struct{} // has the token of the call that takes answers, for all
}

// Node attaches the links in a session of their own. A refusal by the peer is an *amqp.Error.
func (c *Conn) Node(ctx context.Context, address string) (*Node, error) {
	n := &Node{
		replyTo: "reply-" + rand.Text(),
		waiting: map[string]int{},
		calls:   map[string]chan amqp.Answer{},
		reading: make(chan struct{}, 1),
	}
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
	c.wire.Flush(writeUntil(ctx))
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
// answers are there. After any other error the Node cannot be used any more, since answers may
// still come. No request of Send may wait.
func (n *Node) CallEach(ctx context.Context, requests []Request, take func(i int, a *amqp.Answer) error) error {
	var taken error
	first := n.sent
	for sent := 0; sent < len(requests) || len(n.waiting) > 0; {
		for ; sent < len(requests) && len(n.waiting) < maxPipelined; sent++ {
			if err := n.Send(ctx, requests[sent]); err != nil {
				return err
			}
		}
		i, a, err := n.Answer(ctx)
		if err != nil {
			return err
		}
		if err := take(i-first, &a); err != nil && taken == nil {
			taken = err
		}
	}
	return taken
}

// Send sends a request. At most maxPipelined may wait for their answers. After an error the Node
// cannot be used any more.
func (n *Node) Send(ctx context.Context, r Request) error {
	id := n.id(n.sent)
	d, err := n.start(ctx, id, r)
	if err != nil {
		return err
	}
	n.waiting[id], n.underway = n.sent, append(n.underway, d)
	n.sent++
	return nil
}

func (n *Node) id(number int) string { return n.replyTo + "-" + strconv.Itoa(number) }

func (n *Node) start(ctx context.Context, id string, r Request) (*delivery, error) {
	p := amqp.Properties{MessageID: id, ReplyTo: &n.replyTo}
	request, err := amqp.AppendValue(amqp.AppendDescriptor(p.Append(nil), amqp.CodeApplicationProperties), r.Properties)
	if err != nil {
		return nil, fmt.Errorf("encode a request: %w", err)
	}
	return n.requests.start(ctx, 0, amqp.AppendValueSection(request, r.Body))
}

// Call sends a request and returns its answer. At most maxPipelined calls may be made at once.
func (n *Node) Call(ctx context.Context, r Request) (a amqp.Answer, err error) {
	own := make(chan amqp.Answer, 1)
	n.mu.Lock()
	id := n.id(n.sent)
	n.sent++
	n.calls[id] = own
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.calls, id)
		n.mu.Unlock()
	}()
	d, err := n.start(ctx, id, r)
	if err != nil {
		return a, err
	}
	if err := n.requests.finish(ctx, d); err != nil {
		return a, err
	}
	for {
		select {
		case a := <-own:
			return a, nil
		case <-ctx.Done():
			return a, context.Cause(ctx)
		case n.reading <- struct{}{}:
		}
		err := n.takeAnswers(ctx, own)
		<-n.reading
		if err != nil {
			return a, err
		}
	}
}

// takeAnswers hands answers to their calls until own has its own.
func (n *Node) takeAnswers(ctx context.Context, own chan amqp.Answer) error {
	for len(own) == 0 {
		a, id, err := n.receive(ctx)
		if err != nil {
			return err
		}
		n.mu.Lock()
		call := n.calls[id] // nil: it has given up
		delete(n.calls, id)
		n.mu.Unlock()
		if call != nil {
			call <- a // it has room
		}
	}
	return nil
}

// Answer waits for the next answer, and returns which request it is for, counted from 0 on since
// the Node was made. After an error the Node cannot be used any more.
func (n *Node) Answer(ctx context.Context) (i int, a amqp.Answer, err error) {
	// A request that is not accepted has no answer.
	first := n.underway[0]
	n.underway = n.underway[1:]
	if err := n.requests.finish(ctx, first); err != nil {
		return 0, a, err
	}
	a, id, err := n.receive(ctx)
	if err != nil {
		return 0, a, err
	}
	i, ok := n.waiting[id]
	if !ok {
		return 0, a, errors.New("the answer is for another request")
	}
	delete(n.waiting, id)
	return i, a, nil
}

// receive waits for an answer, and returns the id of its request.
func (n *Node) receive(ctx context.Context) (a amqp.Answer, id string, err error) {
	d, err := n.answers.Receive(ctx)
	if err != nil {
		return a, "", err
	}
	if left := n.answers.Credit(); left < maxPipelined {
		if err := n.answers.Grant(ctx, answerCredit-left); err != nil {
			return a, "", err
		}
	}
	return readAnswer(d.Payload)
}

// readAnswer reads an answer, and the id of its request.
func readAnswer(b []byte) (a amqp.Answer, id string, err error) {
	m, err := amqp.ParseMessage(b)
	if err != nil {
		return a, "", err
	}
	if a = amqp.ReadAnswer(&m); a.Status == 0 {
		return a, "", errors.New("the answer has no status code")
	}
	r := amqp.NewReader(a.CorrelationID)
	return a, r.String(), nil // an answer to nobody has another id, or none
}
