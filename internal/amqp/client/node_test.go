// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
)

// node answers the attaches of a Node, and then its requests with answer. It stops at the first
// that gets nil.
func (p *peer) node(address string, answer func(request *amqp.Message, id amqp.Raw) []byte) {
	p.begin(100)
	if a := p.attach(0); a.Role != amqp.RoleReceiver || a.Source.Address != address {
		p.Errorf("first attach = %+v, want a receiver from %s", a, address)
	}
	a := p.attach(0)
	if a.Role != amqp.RoleSender || a.Target.Address != address {
		p.Errorf("second attach = %+v, want a sender to %s", a, address)
	}
	if f, _ := next[*amqp.Flow](p); f.LinkCredit != answerCredit || f.DeliveryCount != peerDeliveryCount {
		p.Errorf("flow = %+v, want credit for answers from delivery-count %d on", f, peerDeliveryCount)
	}
	p.send(peerChannel, &amqp.Flow{IncomingWindow: 1000, Handle: peerHandle + a.Handle, HasHandle: true, LinkCredit: 1000, HasLinkCredit: true}, nil)
	for n := uint32(0); ; n++ {
		var f frame
		for asked := false; !asked; {
			var more bool
			if f, more = <-p.frames; !more {
				return
			}
			_, asked = f.p.(*amqp.Transfer)
		}
		m, err := amqp.ParseMessage(f.payload)
		if err != nil {
			p.Error(err)
		}
		id, _ := amqp.ListField(m.Properties, amqp.PropertyMessageID)
		p.send(peerChannel, &amqp.Disposition{Role: amqp.RoleReceiver, First: n, Last: n, Settled: true, State: amqp.Accepted{}}, nil)
		whole := answer(&m, id.Rest())
		if whole == nil {
			return
		}
		for len(whole) > 50 { // in frames
			p.send(peerChannel, &amqp.Transfer{Handle: peerHandle, HasDeliveryID: true, DeliveryID: n, More: true}, whole[:50])
			whole = whole[50:]
		}
		p.send(peerChannel, &amqp.Transfer{Handle: peerHandle, HasDeliveryID: true, DeliveryID: n, DeliveryTag: []byte{1}, HasSettled: true, Settled: true}, whole)
	}
}

func requests(n int) (all []Request) {
	for i := range n {
		all = append(all, Request{amqp.Map{{Key: "operation", Value: "put-token"}}, amqp.AppendString(nil, fmt.Sprint("request ", i))})
	}
	return all
}

func TestEachRequestGetsItsAnswer(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		go p.node("$cbs", func(m *amqp.Message, id amqp.Raw) []byte {
			if r, ok := amqp.MapLookup(m.ApplicationProperties, "operation"); !ok || r.String() != "put-token" {
				t.Error("the request has no operation put-token")
			}
			if properties, err := amqp.DecodeProperties(m.Properties); err != nil || properties.ReplyTo == nil {
				t.Errorf("properties %+v, %v, want a reply-to", properties, err)
			}
			body, _ := m.Value()
			return amqp.Answer{CorrelationID: id, Status: 401, Condition: "amqp:unauthorized-access", Description: "words", Body: body.Rest()}.Append(nil)
		})
		n, err := c.Node(p.Context(), "$cbs")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // the links can be used again
			const many = 2*maxPipelined + 5
			var got []int
			err = n.CallEach(p.Context(), requests(many), func(i int, a *amqp.Answer) error {
				r := amqp.NewReader(a.Body)
				if s := r.String(); s != fmt.Sprint("request ", i) || a.Status != 401 || a.Condition != "amqp:unauthorized-access" || a.Description != "words" {
					t.Errorf("answer %d = %+v to %q", i, a, s)
				}
				got = append(got, i)
				return nil
			})
			slices.Sort(got)
			if err != nil || len(slices.Compact(got)) != many {
				t.Errorf("CallEach: %v, %d answers, want %d", err, len(got), many)
			}
		}
	})
}

// Each request gets the answer to the one before it, and the last none.
func TestCallsOfSeveralGoroutinesGetTheirAnswers(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		before := amqp.Answer{CorrelationID: amqp.AppendString(nil, "nobody"), Status: 200}
		go p.node("$cbs", func(m *amqp.Message, id amqp.Raw) []byte {
			answer := before.Append(nil)
			body, _ := m.Value()
			before.CorrelationID, before.Body = bytes.Clone(id), bytes.Clone(body.Rest())
			return answer
		})
		n, err := c.Node(p.Context(), "$cbs")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i, r := range requests(maxPipelined - 1) {
			all.Go(func() {
				a, err := n.Call(p.Context(), r)
				answered := amqp.NewReader(a.Body)
				if got, want := answered.String(), fmt.Sprint("request ", i); err != nil || got != want {
					t.Errorf("Call = the answer to %q, %v, want to %q", got, err, want)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(p.Context(), time.Second)
		defer cancel()
		if _, err := n.Call(ctx, requests(1)[0]); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call without an answer = %v, want the deadline", err)
		}
		all.Wait()
	})
}

func TestAnAnswerThatIsOfNoUseIsAnError(t *testing.T) {
	for name, answer := range map[string]func(amqp.Raw) []byte{
		"to another request": func(amqp.Raw) []byte {
			return amqp.Answer{CorrelationID: amqp.AppendString(nil, "other"), Status: 200}.Append(nil)
		},
		"without a status": func(id amqp.Raw) []byte {
			return (&amqp.Properties{CorrelationID: "other"}).Append(nil)
		},
		"no message": func(amqp.Raw) []byte { return []byte("anything") },
	} {
		play(t, plain, func(p *peer, c *Conn) {
			go p.node("$cbs", func(_ *amqp.Message, id amqp.Raw) []byte { return answer(id) })
			n, err := c.Node(p.Context(), "$cbs")
			if err != nil {
				t.Fatal(err)
			}
			err = n.CallEach(p.Context(), requests(3), func(int, *amqp.Answer) error {
				t.Errorf("%s: taken", name)
				return nil
			})
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		})
	}
}

func TestAnEndReachesWhoWaitsForAnAnswer(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		go p.node("$cbs", func(*amqp.Message, amqp.Raw) []byte {
			p.send(peerChannel, &amqp.Detach{Handle: peerHandle, Closed: true, Error: amqp.Errorf("amqp:link:detach-forced", "idle")}, nil)
			return nil
		})
		n, err := c.Node(p.Context(), "$cbs")
		if err != nil {
			t.Fatal(err)
		}
		var ended *EndedError
		if err := n.CallEach(p.Context(), requests(1), nil); !errors.As(err, &ended) || ended.Scope != Link || ended.Remote == nil {
			t.Errorf("CallEach = %v, want what the peer says of the link", err)
		}
		select {
		case <-c.Done():
			t.Error("the connection has ended with it")
		default:
		}
	})
}

func TestARefusedNodeLeavesTheConnectionAlone(t *testing.T) {
	play(t, plain, func(p *peer, c *Conn) {
		go func() {
			p.begin(10)
			for range 2 {
				a, _ := next[*amqp.Attach](p)
				p.send(peerChannel, &amqp.Attach{Name: a.Name, Handle: 3 + a.Handle, Role: !a.Role}, nil)
				p.send(peerChannel, &amqp.Detach{Handle: 3 + a.Handle, Closed: true, Error: amqp.Errorf(amqp.ErrCondNotFound, "no such thing")}, nil)
			}
			for f := range p.frames {
				if _, ok := f.p.(*amqp.End); ok {
					p.send(peerChannel, &amqp.End{}, nil)
					return
				}
			}
		}()
		_, err := c.Node(p.Context(), "orders/$management")
		var refused *amqp.Error
		if !errors.As(err, &refused) || refused.Condition != amqp.ErrCondNotFound {
			t.Errorf("Node = %v, want what the peer says", err)
		}
		synctest.Wait()
		attachSender(p, c, 0, 1) // the connection lives on
	})
}
