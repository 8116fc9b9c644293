// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"
)

// rpc is a pair of links to a node that answers requests, such as $cbs, in a session of its
// own. It is for one request at a time.
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
		Credit:                    1,
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
func (p *rpc) call(ctx context.Context, properties map[string]any, value any) (*amqp.Message, error) {
	id := rand.Text()
	err := p.sender.Send(ctx, &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: id, ReplyTo: &p.replyTo},
		ApplicationProperties: properties,
		Value:                 value,
	}, nil)
	if err != nil {
		return nil, err
	}
	reply, err := p.receiver.Receive(ctx, nil)
	if err != nil {
		return nil, err
	}
	if reply.Properties == nil || reply.Properties.CorrelationID != id {
		return nil, errors.New("the answer is for another request")
	}
	return reply, status(reply)
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
