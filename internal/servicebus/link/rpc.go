// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"
)

// maxPipelined bounds the requests of one rpc that wait for their answers.
const maxPipelined = 32

// rpc is a pair of links to a node that answers requests, such as $cbs, in a session of its
// own. It is for one goroutine.
type rpc struct {
	session  *amqp.Session
	sender   *amqp.Sender
	receiver *amqp.Receiver
	replyTo  string
}

func openRPC(ctx context.Context, c *amqp.Conn, node string) (*rpc, error) {
	session, err := c.NewSession(ctx, nil)
	if err != nil {
		return nil, err
	}
	p := &rpc{session: session, replyTo: "reply-" + rand.Text()}
	p.receiver, err = session.NewReceiver(ctx, node, &amqp.ReceiverOptions{
		TargetAddress:             p.replyTo,
		RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
		Credit:                    maxPipelined,
	})
	if err == nil {
		p.sender, err = session.NewSender(ctx, node, nil)
	}
	if err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	return p, nil
}

func (p *rpc) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return p.session.Close(ctx)
}

// call sends a request and returns its answer. A status other than 2xx is a StatusError. After
// another error the pair cannot be used any more: an answer may still be on its way.
func (p *rpc) call(ctx context.Context, properties map[string]any, value any) (reply *amqp.Message, err error) {
	err = p.callEach(ctx, properties, []any{value}, func(_ int, m *amqp.Message) error {
		reply = m
		return status(m)
	})
	return reply, err
}

// callEach sends several requests before it waits for their answers, and calls take with each
// answer, in any order. Service Bus does not say that it answers in order. An error of take ends
// callEach when all answers are there. After any other error the pair cannot be used any more.
func (p *rpc) callEach(ctx context.Context, properties map[string]any, values []any, take func(i int, reply *amqp.Message) error) error {
	waiting := map[string]int{}
	var receipts []amqp.SendReceipt
	var taken error
	for sent := 0; sent < len(values) || len(waiting) > 0; {
		for ; sent < len(values) && len(waiting) < maxPipelined; sent++ {
			id := rand.Text()
			receipt, err := p.sender.SendWithReceipt(ctx, &amqp.Message{
				Properties:            &amqp.MessageProperties{MessageID: id, ReplyTo: &p.replyTo},
				ApplicationProperties: properties,
				Value:                 values[sent],
			}, nil)
			if err != nil {
				return err
			}
			receipts, waiting[id] = append(receipts, receipt), sent
		}
		// A request that is not accepted has no answer.
		state, err := receipts[0].Wait(ctx)
		if err != nil {
			return err
		}
		if rejected, ok := state.(*amqp.StateRejected); ok && rejected.Error != nil {
			return rejected.Error
		}
		if _, ok := state.(*amqp.StateAccepted); !ok {
			return fmt.Errorf("a request was settled with %T", state)
		}
		receipts = receipts[1:]
		reply, err := p.receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		id, _ := correlationID(reply).(string)
		i, ok := waiting[id]
		if !ok {
			return errors.New("the answer is for another request")
		}
		delete(waiting, id)
		if err := take(i, reply); err != nil && taken == nil {
			taken = err
		}
	}
	return taken
}

func correlationID(m *amqp.Message) any {
	if m.Properties == nil {
		return nil
	}
	return m.Properties.CorrelationID
}

// status reads how a request ended. The service spells the keys with hyphens on $cbs and in
// camel case on $management; either will do.
func status(reply *amqp.Message) error {
	get := func(keys ...string) any {
		for _, k := range keys {
			if v, ok := reply.ApplicationProperties[k]; ok {
				return v
			}
		}
		return nil
	}
	code, ok := get("statusCode", "status-code").(int32)
	if !ok {
		return errors.New("the answer has no status code")
	}
	if code/100 == 2 {
		return nil
	}
	e := &StatusError{Code: int(code)}
	e.Description, _ = get("statusDescription", "status-description").(string)
	switch condition := get("errorCondition", "error-condition").(type) {
	case string:
		e.Condition = condition
	case amqp.ErrCond:
		e.Condition = string(condition)
	}
	return e
}

// StatusError is a request that $cbs or $management has answered with a failure.
type StatusError struct {
	Code        int    // as of HTTP: 401 where the token is not good, 404 where the entity is not known
	Condition   string // of AMQP, "" where the answer has none
	Description string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("refused with %d: %s", e.Code, e.Description)
}
