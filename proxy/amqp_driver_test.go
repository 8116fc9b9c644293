// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"testing"
	"testing/synctest"

	goamqp "github.com/Azure/go-amqp"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"overdue/internal/amqp"
	"overdue/internal/amqp/relay"
	"overdue/internal/servicebus/rights"
)

// driven is one delivery, driven as the relay drives it.
type driven struct {
	*testing.T
	payload []byte
	held    relay.DeliveryHandler
	refused *amqp.Error
	waits   bool
	ready   chan *amqp.Error
	answer  chan *amqp.Error
}

// A resumed is what the relay would do with a delivery that has waited.
type resumed func(*amqp.Error)

func (f resumed) Resume(err *amqp.Error) { f(err) }

func deliver(t *testing.T, w relay.Watcher, d *relay.Delivery) *driven {
	t.Helper()
	x := &driven{T: t, ready: make(chan *amqp.Error, 2), answer: make(chan *amqp.Error, 2)}
	x.held, x.refused = w.Deliver(d)
	if held, ok := x.held.(relay.QueuedDelivery); ok {
		x.waits = held.Before(resumed(func(err *amqp.Error) {
			x.payload = d.Payload
			x.ready <- err
		}))
	}
	if !x.waits {
		x.payload = d.Payload
	}
	return x
}

// settle tells the outcome and waits until the bubble has come to rest.
func (x *driven) settle(outcome amqp.DeliveryState) *driven {
	x.Helper()
	x.held.Settled(outcome, relay.AnswerFunc(func(err *amqp.Error) { x.answer <- err }))
	synctest.Wait()
	return x
}

// want fails the test unless c has seen condition; "" is no error, "-" is nothing yet.
func (x *driven) want(what string, c chan *amqp.Error, condition string) {
	x.Helper()
	synctest.Wait()
	select {
	case err := <-c:
		got := ""
		if err != nil {
			got = string(err.Condition)
		}
		if got != condition {
			x.Fatalf("%s with %v, want %q", what, err, condition)
		}
	default:
		if condition != "-" {
			x.Fatalf("no %s, want one with %q", what, condition)
		}
	}
}

func (x *driven) wantAnswer(condition string) { x.Helper(); x.want("answer", x.answer, condition) }
func (x *driven) wantReady(condition string) {
	x.Helper()
	x.want("word that it may go on", x.ready, condition)
}

func (x *driven) wantRefused(condition, text string) {
	x.Helper()
	if x.refused == nil || string(x.refused.Condition) != condition || !strings.Contains(x.refused.Description, text) {
		x.Fatalf("refused with %v, want %q with %q", x.refused, condition, text)
	}
}

func (x *driven) wantPassed() {
	x.Helper()
	if x.held != nil || x.refused != nil {
		x.Fatalf("held %v, refused %v, want it to pass", x.held, x.refused)
	}
}

// senderTo is the attach of a sender.
func senderTo(address string) *amqp.Attach {
	return &amqp.Attach{Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: address, HasAddress: true}}
}

// receiverFrom is the attach of a receiver.
func receiverFrom(address string) *amqp.Attach {
	return &amqp.Attach{Role: amqp.RoleReceiver, Source: &amqp.Source{Address: address, HasAddress: true}, Target: &amqp.Target{}}
}

// linkOf is a link as the relay shows it.
func linkOf(a *amqp.Attach) relay.Link {
	class, unlisted := rights.Classify(a)
	return relay.Link{Class: class, Unlisted: unlisted, Receiver: a.Role == amqp.RoleReceiver}
}

// watch is the watcher of a link to that address, detached when the test ends.
func (sc *scene) watch(address string) relay.Watcher {
	sc.Helper()
	w := sc.proxy.watch(linkOf(senderTo(address)))
	if w == nil {
		sc.Fatalf("a link to %q is not watched", address)
	}
	sc.Cleanup(w.Detached)
	return w
}

// within is an encoded message with an id and a deadline, or without one.
func (sc *scene) within(id, deadline string) *relay.Delivery {
	sc.Helper()
	m := goamqp.NewMessage([]byte("hello"))
	m.Properties = &goamqp.MessageProperties{MessageID: id}
	if deadline != "" {
		m.ApplicationProperties = map[string]any{"overdue-within": deadline}
	}
	return &relay.Delivery{Payload: sc.encode(m)}
}

func (sc *scene) encode(m *goamqp.Message) []byte {
	sc.Helper()
	b, err := m.MarshalBinary()
	if err != nil {
		sc.Fatal(err)
	}
	return b
}

// sendsByAMQP is the value of overdue_sends_total for the AMQP endpoint.
func (sc *scene) sendsByAMQP(entity, result string) float64 {
	return testutil.ToFloat64(sc.proxy.metrics.sends.WithLabelValues(entity, endpointAMQP, result))
}
