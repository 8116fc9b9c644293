// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"strings"

	"github.com/Azure/go-amqp"

	"overdue/internal/testing/brokertest"
)

var linkSpecs = []spec{
	{name: "a drain of nothing is answered", check: func(s *scene) {
		r := s.raw.link(s.raw.session(), s.queue)
		s.raw.wantBodiesRaw("drained without credit", s.raw.nudge(r, 0, 0))
		s.raw.wantBodiesRaw("drained with one credit", s.raw.nudge(r, 1, 0))
		s.text("x")
		s.raw.wantBodiesRaw("drained without credit", s.raw.nudge(r, 0, 0))
		s.raw.wantBodiesRaw("drained with one credit", s.raw.nudge(r, 1, 1), "x")
	}},
	{name: "a drain returns what is there and no more than the credit", check: func(s *scene) {
		s.text("a", "b", "c")
		r := s.raw.link(s.raw.session(), s.queue)
		s.raw.wantBodiesRaw("two credits", s.raw.nudge(r, 2, 2), "a", "b")
		s.raw.wantBodiesRaw("ten credits", s.raw.nudge(r, 10, 1), "c")
		s.text("d") // the credit is spent
		s.wantDeliverable("after the drain", "d")
		s.raw.wantBodiesRaw("one credit", s.raw.nudge(r, 1, 1), "d")
	}},
	{name: "an address is compared without case and with its decoration", check: func(s *scene) {
		s.text("x")
		session := s.raw.session()
		for _, address := range []string{
			"/" + s.queue,
			strings.ToUpper(s.queue),
			"amqps://" + brokertest.Host + "/" + s.queue,
			"sb://" + brokertest.Host + "/" + s.queue + "/",
		} {
			r := s.raw.link(session, address)
			ms := s.raw.take(r, "x")
			s.must(r.ReleaseMessage(s.ctx, ms[0]))
			s.must(r.Close(s.ctx))
		}
		for _, address := range []string{"/$deadletterqueue", "/$DeadLetterQueue"} {
			s.raw.take(s.raw.link(session, s.queue+address))
		}
	}},
	{name: "a queue is refused a link by the name of none", check: func(s *scene) {
		session := s.raw.session()
		for _, address := range []string{"no-such-queue", "no-such-queue/$DeadLetterQueue", "no-such-queue/$management", s.queue + "/$nonsense"} {
			_, err := session.NewReceiver(s.soon(), address, nil)
			s.wantCondition("receiver on "+address, err, amqp.ErrCondNotFound)
			_, err = session.NewSender(s.soon(), address, nil)
			s.wantCondition("sender to "+address, err, amqp.ErrCondNotFound)
		}
	}},
	{name: "a dead-letter queue takes no messages", check: func(s *scene) {
		if _, err := s.raw.session().NewSender(s.soon(), s.queue+"/$DeadLetterQueue", nil); err == nil {
			s.Error("a sender was opened to the dead-letter queue")
		}
	}},
	{name: "a connection has one pair of $cbs links", check: func(s *scene) {
		session := s.raw.session()
		_, err := session.NewSender(s.ctx, "$cbs", nil)
		s.must(err)
		_, err = session.NewSender(s.soon(), "$cbs", nil)
		s.wantCondition("second sender", err, amqp.ErrCondNotAllowed)
	}},
	{name: "an operation that does not exist is not implemented", check: func(s *scene) {
		reply := s.ask(s.raw.session(), s.queue+"/$management", "com.microsoft:make-coffee", map[string]any{})
		if got := reply.ApplicationProperties["statusCode"]; got != int32(501) {
			s.Errorf("statusCode = %v (%T), want int32 501", got, got)
		}
		if got := reply.ApplicationProperties["errorCondition"]; got != "amqp:not-implemented" {
			s.Errorf("errorCondition = %v, want amqp:not-implemented", got)
		}
	}},
	{name: "a response goes to the link of that name where there is no such address", check: func(s *scene) {
		// rhea gives its links no target address and names the link instead.
		session := s.raw.session()
		receiver, err := session.NewReceiver(s.ctx, s.queue+"/$management", &amqp.ReceiverOptions{Name: "by-name", Credit: 1})
		s.must(err)
		sender, err := session.NewSender(s.ctx, s.queue+"/$management", nil)
		s.must(err)
		s.must(sender.Send(s.ctx, request("by-name", uint64(7), "com.microsoft:peek-message",
			map[string]any{"from-sequence-number": int64(1), "message-count": int32(1)}), nil))
		reply, err := receiver.Receive(s.soon(), nil)
		s.must(err)
		if got := reply.Properties.CorrelationID; got != uint64(7) {
			s.Errorf("correlation-id = %v (%T), want the ulong 7 of the request", got, got)
		}
		if got := reply.ApplicationProperties["statusCode"]; got != int32(204) {
			s.Errorf("statusCode = %v, want 204", got)
		}
	}},
	{name: "a malformed request is an argument error", check: func(s *scene) {
		session := s.raw.session()
		for operation, body := range map[string]any{
			"com.microsoft:peek-message":               map[string]any{"message-count": "many"},
			"com.microsoft:schedule-message":           map[string]any{"messages": []any{map[string]any{"message": []byte("junk")}}},
			"com.microsoft:cancel-scheduled-message":   map[string]any{},
			"com.microsoft:renew-lock":                 map[string]any{"lock-tokens": []string{"x"}},
			"com.microsoft:update-disposition":         "no map",
			"com.microsoft:receive-by-sequence-number": map[string]any{"sequence-numbers": []any{}},
		} {
			reply := s.ask(session, s.queue+"/$management", operation, body)
			if got := reply.ApplicationProperties["statusCode"]; got != int32(400) {
				s.Errorf("%s with %v: statusCode = %v, want 400", operation, body, got)
			}
		}
	}},
}

func request(replyTo string, id any, operation string, body any) *amqp.Message {
	return &amqp.Message{
		Properties:            &amqp.MessageProperties{MessageID: id, ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{"operation": operation},
		Value:                 body,
	}
}

// ask sends one request and returns the response.
func (s *scene) ask(session *amqp.Session, address, operation string, body any) *amqp.Message {
	s.Helper()
	const replyTo = "reply-here"
	receiver, err := session.NewReceiver(s.ctx, address, &amqp.ReceiverOptions{
		TargetAddress:             replyTo,
		RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
		Credit:                    1,
	})
	s.must(err)
	sender, err := session.NewSender(s.ctx, address, nil)
	s.must(err)
	s.must(sender.Send(s.ctx, request(replyTo, "id", operation, body), nil))
	reply, err := receiver.Receive(s.soon(), nil)
	s.must(err)
	s.must(sender.Close(s.ctx))
	s.must(receiver.Close(s.ctx))
	return reply
}
