// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/sas"
)

// A receiver whose target is a transaction coordinator is classified as a receiver.
func TestAReceiverIsNoCoordinator(t *testing.T) {
	for name, proven := range map[string]bool{"nothing proven": false, "a key that may only send": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := rightsScene(t, sas.Send, "")
				s.fill("orders")
				p := s.unauthenticated()
				if proven {
					p.prove("orders")
				}
				p.write(0, &amqp.Attach{
					Name: "thief", Handle: 5, Role: amqp.RoleReceiver, SndSettleMode: amqp.SndSettled,
					Source: &amqp.Source{Address: "orders", HasAddress: true}, Coordinator: &amqp.Coordinator{},
				}, nil)
				p.write(0, &amqp.Flow{
					IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: 5,
					HasLinkCredit: true, LinkCredit: 10, HasDeliveryCount: true,
				}, nil)
				if got := p.expect("transfer", "detach"); !strings.HasPrefix(got, "detach") {
					t.Errorf("the receiver got %q, want it to be detached", got)
				}
				if waiting := s.waiting(); len(waiting) != 1 {
					t.Errorf("the queue holds %q, want the message that was there", waiting)
				}
			})
		})
	}
}

// unauthenticated is a peer that has come in by SASL ANONYMOUS and has proven nothing.
func (s *scene) unauthenticated() *peer {
	s.Helper()
	return s.peerAt(func(ctx context.Context) (net.Conn, error) {
		nc, err := s.dial(ctx)
		if err != nil {
			return nil, err
		}
		if code := speaker(s.T, nc).login(&amqp.SASLInit{Mechanism: "ANONYMOUS"}); code != amqp.SASLOK {
			return nil, fmt.Errorf("outcome = %d, want ok", code)
		}
		return nc, nil
	})
}

// prove puts a token of the app's key, over links that it leaves.
func (p *peer) prove(entity string) {
	p.s.Helper()
	audience := "amqp://" + endpoint + "/" + entity
	p.attachSender("tokens", 0, "$cbs")
	p.write(0, &amqp.Attach{
		Name: "answers", Handle: 1, Role: amqp.RoleReceiver,
		Source: &amqp.Source{Address: "$cbs", HasAddress: true}, Target: &amqp.Target{Address: "reply", HasAddress: true},
	}, nil)
	p.expect("attach")
	p.write(0, &amqp.Flow{
		IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: 1, HasLinkCredit: true, LinkCredit: 1, HasDeliveryCount: true,
	}, nil)
	p.write(0, &amqp.Transfer{Handle: 0, HasDeliveryID: true, DeliveryTag: []byte("t"), Settled: true, HasSettled: true},
		request(p.s.T, "1", "reply", amqp.Map{
			{Key: "operation", Value: "put-token"}, {Key: "type", Value: TokenSAS}, {Key: "name", Value: audience},
		}, sas.Make(appKey, appValue, audience, time.Now().Add(time.Hour))))
	p.expect("transfer")
}

// A key that may only send gets no other operation by spelling the management node in another way
// than the relay expects. The namespace may or may not understand that spelling.
func TestAKeyThatMaySendManagesNothing(t *testing.T) {
	for _, node := range []string{
		"orders/$management", "orders/$management/", "/orders/$management", "/orders/$management/", "ORDERS/$MANAGEMENT",
		"sb://h/orders/$management/", "sb://h/orders/$management", "amqps://h:5671/orders/$Management/", "sb://h//orders/$management/",
		"orders/$MANAGEMENT//", "orders//$management", "//orders/$management", "orders/./$management", "x/../orders/$management",
		"orders/%24management", "orders\\$management", "orders/$management?x", "orders/$management#x", "orders/$management\x00",
		"orders/$DeadLetterQueue/$management/", "$management", "orders/$managemen\u212a",
	} {
		t.Run(node, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := rightsScene(t, sas.Send, "")
				s.fill("orders")
				session, err := s.connect(goamqp.SASLTypePlain(appKey, appValue)).NewSession(t.Context(), nil)
				s.must(err)
				for _, operation := range []string{"com.microsoft:peek-message", "com.microsoft:batch-delete-messages"} {
					replyTo := "reply-" + operation
					receiver, err := session.NewReceiver(t.Context(), "orders/$management", &goamqp.ReceiverOptions{TargetAddress: replyTo, Credit: 10})
					s.must(err)
					sender, err := session.NewSender(t.Context(), node, nil)
					if err != nil {
						continue // refused as a whole
					}
					err = sender.Send(t.Context(), &goamqp.Message{
						Value:                 map[string]any{"from-sequence-number": int64(0), "message-count": int32(10), "enqueued-time-utc": time.Now().Add(time.Hour)},
						Properties:            &goamqp.MessageProperties{MessageID: "1", ReplyTo: &replyTo},
						ApplicationProperties: map[string]any{"operation": operation},
					}, nil)
					if err != nil {
						continue
					}
					m, err := receiver.Receive(t.Context(), nil)
					s.must(err)
					if status := fmt.Sprint(m.ApplicationProperties["statusCode"], m.ApplicationProperties["status-code"]); !strings.Contains(status, "401") {
						t.Errorf("%s = status %s, want 401: %v", operation, status, m.ApplicationProperties)
					}
				}
				if waiting := s.waiting(); len(waiting) != 1 {
					t.Errorf("the queue holds %q, want the message that was there", waiting)
				}
			})
		})
	}
}
