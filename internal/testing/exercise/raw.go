// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"context"
	"errors"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"overdue/internal/testing/brokertest"
)

// Features that the SDK hides: drain, released, and addresses other than its own.

// session opens a connection of go-amqp and a session on it.
func (s rawLinks) session() *amqp.Session {
	s.Helper()
	nc, err := s.target.Dial(s.ctx)
	s.must(err)
	credentials := amqp.SASLTypeAnonymous()
	if s.target.Secured {
		credentials = amqp.SASLTypePlain(s.keys.key())
	}
	c, err := amqp.NewConn(s.ctx, nc, &amqp.ConnOptions{SASLType: credentials, HostName: brokertest.Host})
	s.must(err)
	s.Cleanup(func() { _ = c.Close() }) // a test may have cut it
	session, err := c.NewSession(s.ctx, nil)
	s.must(err)
	return session
}

// link opens a receiver with manual credit.
func (s rawLinks) link(session *amqp.Session, address string) *amqp.Receiver {
	s.Helper()
	r, err := session.NewReceiver(s.ctx, address, &amqp.ReceiverOptions{
		Credit:         -1,
		SettlementMode: amqp.ReceiverSettleModeSecond.Ptr(),
	})
	s.must(err)
	return r
}

// nudge receives with n credits, drains what is left of them and returns the
// messages, still locked. It expects some of them.
//
// go-amqp drains with a link-credit of zero, and forgets credit that is issued
// right before. So the credit gets a moment to be answered first.
func (s rawLinks) nudge(r *amqp.Receiver, n uint32, expect int) []*amqp.Message {
	s.Helper()
	const timeout, moment = time.Minute, 100 * time.Millisecond
	var all []*amqp.Message
	if n > 0 {
		s.must(r.IssueCredit(n))
		for len(all) < int(n) {
			wait := timeout
			if len(all) >= expect {
				wait = moment
			}
			ctx, cancel := context.WithTimeout(s.ctx, wait)
			m, err := r.Receive(ctx, nil)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			s.must(err)
			all = append(all, m)
		}
	}
	s.must(r.DrainCredit(s.ctx, nil))
	for m := r.Prefetched(); m != nil; m = r.Prefetched() {
		all = append(all, m)
	}
	return all
}

// take is nudge with as many credits as bodies are expected, at least one.
func (s rawLinks) take(r *amqp.Receiver, want ...string) []*amqp.Message {
	s.Helper()
	ms := s.nudge(r, uint32(max(len(want), 1)), len(want))
	s.wantBodiesRaw("received", ms, want...)
	return ms
}

// wantBodiesRaw checks messages by their bodies, in order.
func (s rawLinks) wantBodiesRaw(what string, ms []*amqp.Message, want ...string) {
	s.Helper()
	got := make([]*azservicebus.ReceivedMessage, len(ms))
	for i, m := range ms {
		got[i] = &azservicebus.ReceivedMessage{Body: m.GetData()}
	}
	s.wantBodies(what, got, want...)
}

// wantDeliverable checks what a receive would get right now. Everything is
// given back, uncounted.
func (s *scene) wantDeliverable(what string, want ...string) {
	s.Helper()
	session := s.raw.session()
	r := s.raw.link(session, s.queue)
	ms := s.raw.nudge(r, 100, len(want))
	for _, m := range ms {
		s.must(r.ReleaseMessage(s.ctx, m))
	}
	s.must(r.Close(s.ctx))
	s.raw.wantBodiesRaw(what, ms, want...)
}

// wantCode checks the code of an error of the SDK.
func (s *scene) wantCode(what string, err error, want azservicebus.Code) {
	s.Helper()
	var e *azservicebus.Error
	if !errors.As(err, &e) || e.Code != want {
		s.Errorf("%s = %v, want an error with code %s", what, err, want)
	}
}

// wantCondition checks the condition of an AMQP error.
func (s *scene) wantCondition(what string, err error, want amqp.ErrCond) {
	s.Helper()
	var e *amqp.Error
	if !errors.As(err, &e) || e.Condition != want {
		s.Errorf("%s = %v, want condition %s", what, err, want)
	}
}

// soon is a context for calls that have to fail fast.
func (s *scene) soon() context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	s.Cleanup(cancel)
	return ctx
}
