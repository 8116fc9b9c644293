// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"strings"
	"testing"
	"time"

	"overdue/internal/amqp"
)

// cbs answers one put-token.
func (p *peer) cbs(answer func(request *amqp.Message) []byte) {
	p.begin(10)
	if a := p.attach(0); a.Role != amqp.RoleReceiver || a.Source.Address != "$cbs" {
		p.Errorf("first attach = %+v, want a receiver", a)
	}
	if f, _ := next[*amqp.Flow](p); f.LinkCredit != 1 || f.DeliveryCount != peerDeliveryCount {
		p.Errorf("flow = %+v, want one credit from delivery-count %d on", f, peerDeliveryCount)
	}
	a := p.attach(0)
	p.send(peerChannel, &amqp.Flow{IncomingWindow: 10, Handle: peerHandle + a.Handle, HasHandle: true, LinkCredit: 1, HasLinkCredit: true}, nil)
	_, f := next[*amqp.Transfer](p)
	m, err := amqp.ParseMessage(f.payload)
	if err != nil {
		p.Error(err)
	}
	p.send(peerChannel, &amqp.Disposition{Role: amqp.RoleReceiver, Settled: true, State: amqp.Accepted{}}, nil)
	half := answer(&m)
	for len(half) > 50 { // in frames
		p.send(peerChannel, &amqp.Transfer{Handle: peerHandle, HasDeliveryID: true, More: true}, half[:50])
		half = half[50:]
	}
	p.send(peerChannel, &amqp.Transfer{Handle: peerHandle, HasDeliveryID: true, DeliveryTag: []byte{1}, HasSettled: true, Settled: true}, half)
	for f := range p.frames {
		if _, ok := f.p.(*amqp.End); ok {
			p.send(peerChannel, &amqp.End{}, nil)
		}
	}
}

func TestATokenIsPutAndItsAnswerRead(t *testing.T) {
	token := &Token{Audience: "amqp://overdue.test/orders", Type: "jwt", Value: strings.Repeat("token", 100), Expires: time.Unix(1700000000, 0)}
	for _, tt := range []struct {
		status    int32
		condition amqp.Symbol
		other     bool // an answer to another request
	}{
		{status: 202},
		{status: 401, condition: "amqp:unauthorized-access"},
		{status: 200, other: true},
	} {
		play(t, plain, func(p *peer, c *Conn) {
			go p.cbs(func(m *amqp.Message) []byte {
				for key, want := range map[string]string{"operation": "put-token", "type": "jwt", "name": token.Audience, "expiration": "1700000000"} {
					if r, ok := amqp.MapLookup(m.ApplicationProperties, key); !ok || r.String() != want {
						t.Errorf("the request has no %s of %q", key, want)
					}
				}
				if r, ok := m.Value(); !ok || r.String() != token.Value {
					t.Error("the request has not the token")
				}
				properties, err := amqp.DecodeProperties(m.Properties)
				if err != nil || properties.ReplyTo == nil {
					t.Errorf("properties %+v, %v, want a reply-to", properties, err)
				}
				id, err := amqp.AppendValue(nil, properties.MessageID)
				if err != nil || tt.other {
					id = amqp.AppendString(nil, "other")
				}
				return amqp.Answer{CorrelationID: id, Status: tt.status, Condition: tt.condition, Description: "words"}.Append(nil)
			})
			got, err := c.PutToken(p.Context(), token)
			if tt.other != (err != nil) {
				t.Errorf("PutToken = %v", err)
			}
			if err == nil && (got.Status != tt.status || got.Condition != tt.condition || got.Description != "words") {
				t.Errorf("PutToken = %+v, want %d, %s, words", got, tt.status, tt.condition)
			}
		})
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		go p.cbs(func(*amqp.Message) []byte { return make([]byte, maxAnswer+100) })
		var ended *EndedError
		if _, err := c.PutToken(p.Context(), &Token{}); !errors.As(err, &ended) || ended.Scope != Connection {
			t.Errorf("PutToken = %v, want that the connection ends", err)
		}
	})
}
