// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"overdue/internal/amqp"
)

// addressCBS is the node that takes tokens.
const addressCBS = "$cbs"

// maxAnswer bounds an answer of $cbs, in bytes.
const maxAnswer = 64 << 10

// A Token is a token for an audience.
type Token struct {
	Audience, Type, Value string
	Expires               time.Time // zero: unknown
}

// PutToken puts t to $cbs, over a pair of links that it closes afterwards, and returns the answer. A
// second pair on the connection is refused, so no two calls may overlap.
func (c *Conn) PutToken(ctx context.Context, t *Token) (answer amqp.Answer, err error) {
	s, err := c.begin(ctx)
	if err != nil {
		return answer, err
	}
	answer, err = s.putToken(ctx, t)
	if closeErr := s.close(ctx); err == nil {
		err = closeErr
	}
	return answer, err
}

func (s *session) putToken(ctx context.Context, t *Token) (answer amqp.Answer, err error) {
	id, replyTo := rand.Text(), "reply-"+rand.Text()
	node := func(address string) (*amqp.Source, *amqp.Target) {
		return &amqp.Source{Address: address, HasAddress: true}, &amqp.Target{Address: address, HasAddress: true}
	}
	source, _ := node(addressCBS)
	_, target := node(replyTo)
	receiver, err := s.attach(ctx, &amqp.Attach{Role: amqp.RoleReceiver, SndSettleMode: amqp.SndSettled, Source: source, Target: target})
	if err != nil {
		return answer, err
	}
	s.c.mu.Lock()
	receiver.credit = 1
	s.answerFlowLocked(receiver, false)
	s.c.flushLocked(writeUntil(ctx))
	_, target = node(addressCBS)
	sender, err := s.attach(ctx, &amqp.Attach{Role: amqp.RoleSender, SndSettleMode: amqp.SndMixed, Source: &amqp.Source{}, Target: target})
	if err != nil {
		return answer, err
	}
	if err := (&Sender{sender}).Send(ctx, 0, t.request(id, replyTo)); err != nil {
		return answer, err
	}
	if err := s.wait(ctx, func() bool { return receiver.answered || receiver.err != nil }); err != nil {
		return answer, err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !receiver.answered {
		return answer, receiver.err
	}
	return readAnswer(receiver.answer, id)
}

// request is the message that puts t. The expiry is a string of seconds; "0" means unknown.
func (t *Token) request(id, replyTo string) []byte {
	p := amqp.Properties{MessageID: id, ReplyTo: &replyTo}
	out := p.Append(make([]byte, 0, 320+len(t.Value)+len(t.Audience)))
	expiry := "0"
	if !t.Expires.IsZero() {
		expiry = strconv.FormatInt(t.Expires.Unix(), 10)
	}
	out, start := amqp.BeginMap(amqp.AppendDescriptor(out, amqp.CodeApplicationProperties))
	pairs := [...][2]string{{"operation", "put-token"}, {"type", t.Type}, {"name", t.Audience}, {"expiration", expiry}}
	for _, p := range pairs {
		out = amqp.AppendString(amqp.AppendString(out, p[0]), p[1])
	}
	out = amqp.EndMap(out, start, len(pairs))
	return amqp.AppendValueSection(out, amqp.AppendString(nil, t.Value))
}

// transferLocked takes a part of an answer.
func (s *session) transferLocked(p *amqp.Transfer, payload []byte) error {
	s.nextIncoming++
	l := s.linkLocked(p.Handle)
	switch {
	case s.ending:
		return nil
	case l == nil || l.role != amqp.RoleReceiver || l.credit == 0:
		return violation("an unrequested transfer")
	case len(l.answer)+len(payload) > maxAnswer:
		return violation("an answer of more than %d bytes", maxAnswer)
	}
	l.answer = append(l.answer, payload...)
	if p.Aborted {
		l.answer = nil
	}
	if !p.More {
		l.credit--
		l.deliveryCount++
		l.answered = true
		s.notifyLocked()
	}
	return nil
}

// readAnswer reads the answer to the request with this id. The service spells the keys with hyphens;
// other nodes in camel case.
func readAnswer(b []byte, id string) (a amqp.Answer, err error) {
	m, err := amqp.ParseMessage(b)
	if err != nil {
		return a, err
	}
	if r, _ := amqp.ListField(m.Properties, amqp.PropertyCorrelationID); r.Value() != id {
		return a, errors.New("the answer is for another request")
	}
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
		return a, errors.New("the answer has no status code")
	}
	a.Description, _ = find("statusDescription", "status-description").(string)
	switch condition := find("errorCondition", "error-condition").(type) {
	case string:
		a.Condition = amqp.Symbol(condition)
	case amqp.Symbol:
		a.Condition = condition
	}
	return a, nil
}
