// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/testing/brokertest"
)

// operationTimeout is how long an app waits for one operation.
const operationTimeout = 20 * time.Second

// An app is one of the clients of a soak. It runs in one goroutine: the SDK dials with locks held,
// and a goroutine that waits for a lock stops fake time.
type app struct {
	*soaking
	name string
	rng  *rand.Rand
	n    int
}

// bodies are n that nobody has sent.
func (a *app) bodies(n int) []string {
	out := make([]string, n)
	for i := range out {
		a.n++
		out[i] = fmt.Sprint(a.name, "-", a.n)
	}
	return out
}

// pause rests between two operations. It reports false when the app is to stop.
func (a *app) pause(most time.Duration) bool {
	select {
	case <-a.over.Done():
		return false
	case <-time.After(time.Duration(a.rng.Int64N(int64(most)))):
		return a.over.Err() == nil
	}
}

// connect makes a client of the SDK that comes through the endpoint.
func (a *app) connect(retries int32) *azservicebus.Client {
	c, err := azservicebus.NewClientFromConnectionString(a.ns.ConnectionString(), &azservicebus.ClientOptions{
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return a.dial(ctx) },
		RetryOptions:     azservicebus.RetryOptions{MaxRetries: retries, RetryDelay: 100 * time.Millisecond, MaxRetryDelay: time.Second},
	})
	if err != nil {
		a.Errorf("client: %v", err)
	}
	return c
}

func (a *app) close(c *azservicebus.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	_ = c.Close(ctx) // its connection may be broken
}

// sdk sends without retries, over a new connection after each failure.
func (a *app) sdk() {
	for a.pause(time.Second) {
		c := a.connect(-1)
		if s, err := c.NewSender("orders", nil); err != nil {
			a.Errorf("NewSender: %v", err)
		} else {
			for a.sendOne(s, false) == nil && a.pause(3*time.Second) {
			}
		}
		a.close(c)
	}
}

// retrier leaves recovery to the SDK.
func (a *app) retrier() {
	c := a.connect(10)
	defer a.close(c)
	s, err := c.NewSender("orders", nil)
	if err != nil {
		a.Errorf("NewSender: %v", err)
		return
	}
	for a.pause(3 * time.Second) {
		_ = a.sendOne(s, true) // the ledger knows
	}
	<-a.calm
	a.worksOver(s, a.name)
}

// lasting is a message with a deadline that no soak lives to see.
func lasting(body string) *azservicebus.Message {
	return &azservicebus.Message{MessageID: &body, Body: []byte(body), ApplicationProperties: map[string]any{"overdue-within": "24h"}}
}

// sendOne sends one message, a batch or something scheduled.
func (a *app) sendOne(s *azservicebus.Sender, repeats bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	at := time.Now().Add(time.Duration(a.rng.IntN(48)) * time.Hour)
	bodies := a.bodies(1)
	kind := a.rng.IntN(4)
	if kind > 1 {
		bodies = append(bodies, a.bodies(a.rng.IntN(4))...)
	}
	ms := make([]*azservicebus.Message, len(bodies))
	for i, b := range bodies {
		ms[i] = lasting(b)
	}
	a.send(repeats, bodies...)
	var err error
	switch kind {
	case 0:
		err = s.SendMessage(ctx, ms[0], nil)
	case 1:
		ms[0].ScheduledEnqueueTime = &at
		err = s.SendMessage(ctx, ms[0], nil)
	case 2:
		var b *azservicebus.MessageBatch
		if b, err = s.NewMessageBatch(ctx, nil); err == nil {
			for _, m := range ms {
				err = errors.Join(err, b.AddMessage(m, nil))
			}
			if err == nil {
				err = s.SendMessageBatch(ctx, b, nil)
			}
		}
	case 3:
		_, err = s.ScheduleMessages(ctx, ms, at, nil)
	}
	if err == nil {
		a.acked(bodies...)
	}
	return err
}

// pipeline sends many messages at once, without the SDK.
func (a *app) pipeline() {
	for a.pause(time.Second) {
		_ = a.pipelineOnce() // the ledger knows
	}
}

func (a *app) pipelineOnce() error {
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	nc, err := a.dial(ctx)
	if err != nil {
		return err
	}
	key := brokertest.Key()
	conn, err := goamqp.NewConn(ctx, nc, &goamqp.ConnOptions{HostName: endpointName, SASLType: goamqp.SASLTypePlain(key.KeyName, key.PrimaryKey)})
	if err != nil {
		nc.Close()
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, "orders", nil)
	if err != nil {
		return err
	}
	for a.pause(2 * time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
		defer cancel()
		bodies := a.bodies(1 + a.rng.IntN(10))
		receipts := make([]goamqp.SendReceipt, 0, len(bodies))
		for _, b := range bodies {
			a.send(false, b)
			r, err := sender.SendWithReceipt(ctx, pipelined(b), nil)
			if err != nil {
				return err
			}
			receipts = append(receipts, r)
		}
		for i, r := range receipts {
			state, err := r.Wait(ctx)
			if err != nil {
				return err
			}
			if _, accepted := state.(*goamqp.StateAccepted); accepted {
				a.acked(bodies[i])
			}
		}
	}
	return nil
}

// pipelined is a message of a few frames.
func pipelined(body string) *goamqp.Message {
	return &goamqp.Message{
		Properties:            &goamqp.MessageProperties{MessageID: body},
		ApplicationProperties: map[string]any{"overdue-within": "24h", "filling": string(make([]byte, 1000))},
		Data:                  [][]byte{[]byte(body)},
	}
}

// receiver settles what comes, in any way.
func (a *app) receiver() {
	c := a.connect(3)
	defer a.close(c)
	r, err := c.NewReceiverForQueue("orders", nil)
	if err != nil {
		a.Errorf("NewReceiver: %v", err)
		return
	}
	for a.pause(3 * time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
		ms, _ := r.ReceiveMessages(ctx, 1+a.rng.IntN(5), nil) // what fails comes again
		for _, m := range ms {
			switch body := string(m.Body); a.rng.IntN(4) {
			case 0:
				_ = r.AbandonMessage(ctx, m, nil)
			case 1: // its lock lapses
			default:
				a.note(a.settling, body)
				if r.CompleteMessage(ctx, m, nil) == nil {
					a.note(a.gone, body)
				}
			}
		}
		cancel()
	}
}

// transactor sends in transactions, which no Go library does: it speaks AMQP itself, one thing
// after the other.
func (a *app) transactor() {
	for a.pause(3 * time.Second) {
		_ = a.transact() // the ledger knows
	}
}

func (a *app) transact() error {
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	nc, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(operationTimeout)); err != nil {
		return err
	}
	w := &wire{nc: nc, in: amqp.NewFrameReader(nc, 65536)}
	if err := w.open(); err != nil {
		return err
	}
	if err := w.attach(0, &amqp.Attach{Name: "coordinator", Role: amqp.RoleSender, Source: &amqp.Source{}, Coordinator: &amqp.Coordinator{}}); err != nil {
		return err
	}
	if err := w.attach(1, &amqp.Attach{Name: "orders", Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true}}); err != nil {
		return err
	}
	state, err := w.transfer(0, nil, amqp.AppendValueSection(nil, new(amqp.Declare).Append(nil)))
	if err != nil {
		return err
	}
	declared, ok := state.(*amqp.Declared)
	if !ok {
		return fmt.Errorf("declare: %v", state)
	}
	bodies := a.bodies(1 + a.rng.IntN(3))
	for _, b := range bodies {
		payload, err := pipelined(b).MarshalBinary()
		if err != nil {
			return err
		}
		a.send(false, b)
		state, err := w.transfer(1, &amqp.TransactionalState{TxnID: declared.TxnID}, payload)
		if err != nil {
			return err
		}
		if part, ok := state.(*amqp.TransactionalState); !ok || part.Outcome != (amqp.Accepted{}) {
			return fmt.Errorf("send in a transaction: %v", state)
		}
	}
	state, err = w.transfer(0, nil, amqp.AppendValueSection(nil, (&amqp.Discharge{TxnID: declared.TxnID}).Append(nil)))
	if err != nil {
		return err
	}
	if state == (amqp.Accepted{}) {
		a.acked(bodies...)
	}
	return nil
}
