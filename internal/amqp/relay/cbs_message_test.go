// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/sas"
)

// request encodes what a client sends to $cbs.
func request(t testing.TB, messageID any, replyTo string, properties amqp.Map, body any) []byte {
	t.Helper()
	p := amqp.Properties{MessageID: messageID}
	if replyTo != "" {
		p.ReplyTo = &replyTo
	}
	app, err := amqp.AppendValue(nil, properties)
	if err != nil {
		t.Fatal(err)
	}
	value, err := amqp.AppendValue(nil, body)
	if err != nil {
		t.Fatal(err)
	}
	m := amqp.Message{Properties: p.Raw(), ApplicationProperties: app, Body: amqp.AppendValueSection(nil, value)}
	return m.Append(nil)
}

// answerWith answers a request as the node of a connection does.
func answerWith(g *grants, payload []byte) ([]byte, *amqp.Error) {
	k := newKeeper(context.Background(), "h", func(context.Context, string) (Token, error) { return Token{}, nil },
		func(context.Context, string, Token) (response, error) { return response{status: 202}, nil }, nil)
	defer k.close()
	c := &conn{auth: auth{grants: g, keeper: k}}
	done := make(chan struct{})
	var reply []byte
	var rejected *amqp.Error
	c.answerToken(payload, func(b []byte, e *amqp.Error) { reply, rejected = b, e; close(done) })
	<-done
	return reply, rejected
}

func putProperties(audience string) amqp.Map {
	return amqp.Map{{Key: "operation", Value: "put-token"}, {Key: "type", Value: TokenSAS}, {Key: "name", Value: audience}}
}

func TestTheAnswerHasWhatEverySDKLooksFor(t *testing.T) {
	for _, id := range []any{"0f5c", uint64(7), amqp.UUID{1, 2, 3}, []byte("id")} {
		payload, rejected := answerWith(nil, request(t, id, "cbs-reply", putProperties("sb://h/orders"), "token"))
		if rejected != nil {
			t.Fatal(rejected)
		}
		m, err := amqp.ParseMessage(payload)
		if err != nil {
			t.Fatal(err)
		}
		p, err := amqp.DecodeProperties(m.Properties)
		if err != nil {
			t.Fatal(err)
		}
		if p.To == nil || *p.To != "cbs-reply" {
			t.Errorf("to = %v, want what reply-to said", p.To)
		}
		want, _ := amqp.AppendValue(nil, id)
		if got, _ := amqp.AppendValue(nil, p.CorrelationID); !bytes.Equal(got, want) {
			t.Errorf("correlation-id = %v, want %v in its type", p.CorrelationID, id)
		}
		for _, name := range []string{"status-code", "statusCode"} {
			r, ok := amqp.MapLookup(m.ApplicationProperties, name)
			if code := r.Int(); !ok || r.Err() != nil || code != 202 {
				t.Errorf("%s = %d, %v, want the int 202", name, code, r.Err())
			}
		}
		for _, name := range []string{"status-description", "statusDescription"} {
			if got := textProperty(m.ApplicationProperties, name); got != "Accepted" {
				t.Errorf("%s = %q, want Accepted", name, got)
			}
		}
	}
}

func TestRequestsThatAreNoneAreAnswered(t *testing.T) {
	for _, c := range []struct {
		name      string
		props     amqp.Map
		status    int32
		condition amqp.Symbol
	}{
		{"no operation", amqp.Map{}, 400, condArgumentError},
		{"another operation", amqp.Map{{Key: "operation", Value: "delete-token"}}, 501, amqp.ErrCondNotImplemented},
		{"no audience", amqp.Map{{Key: "operation", Value: "put-token"}}, 400, condArgumentError},
		{"an audience that is no string", amqp.Map{{Key: "operation", Value: "put-token"}, {Key: "name", Value: int32(7)}}, 400, condArgumentError},
	} {
		payload, rejected := answerWith(nil, request(t, "id", "r", c.props, "token"))
		if rejected != nil {
			t.Errorf("%s is rejected with %v, want an answer", c.name, rejected)
			continue
		}
		m, err := amqp.ParseMessage(payload)
		if err != nil {
			t.Fatal(err)
		}
		code, _ := amqp.MapLookup(m.ApplicationProperties, "status-code")
		if got := code.Int(); got != c.status {
			t.Errorf("%s: status %d, want %d", c.name, got, c.status)
		}
		for _, name := range []string{"error-condition", "errorCondition"} {
			r, _ := amqp.MapLookup(m.ApplicationProperties, name)
			if got := r.Symbol(); got != c.condition {
				t.Errorf("%s: %s = %q, want %q", c.name, name, got, c.condition)
			}
		}
	}
}

func FuzzTokenRequest(f *testing.F) {
	f.Add(request(f, "id", "reply", putProperties("sb://h/orders"), "token"))
	f.Add(request(f, uint64(1), "", amqp.Map{{Key: amqp.Symbol("operation"), Value: "\xc3"}}, []byte("token")))
	f.Add([]byte{0x00, 0x53, 0x73, 0xc0, 0x02, 0x01, 0x45})
	admit := Keys(sas.Key{Name: "app", Value: "hidden-key", Rights: sas.All})
	f.Fuzz(func(t *testing.T, payload []byte) {
		g := newGrants(admit, nil, nil)
		before := bytes.Clone(payload)
		out, rejected := answerWith(g, payload)
		if !bytes.Equal(payload, before) {
			t.Fatal("reading a request changes it")
		}
		if len(g.proven) != 0 {
			t.Fatalf("%q is admitted without the key", payload)
		}
		if rejected != nil {
			if strings.Contains(rejected.Error(), "hidden-key") {
				t.Fatalf("the rejection %v shows the key", rejected)
			}
			return
		}
		if len(out) > len(payload)+4096 {
			t.Fatalf("%d bytes are answered with %d", len(payload), len(out))
		}
		m, err := amqp.ParseMessage(out)
		if err != nil {
			t.Fatalf("the answer is malformed: %v", err)
		}
		if err := amqp.CheckProperties(m.Properties); err != nil {
			t.Fatalf("the properties of the answer: %v", err)
		}
		r := amqp.NewReader(m.ApplicationProperties)
		if r.Check(); r.Err() != nil {
			t.Fatalf("the answer: %v", r.Err())
		}
	})
}
