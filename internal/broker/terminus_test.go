// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

func TestLinksThatAskForMoreThanThereIsAreRefused(t *testing.T) {
	filter := func(names ...any) amqp.Raw {
		var m amqp.Map
		for _, name := range names {
			m = append(m, amqp.Pair{Key: name, Value: amqp.Described{Descriptor: name, Value: "x = 1"}})
		}
		return encoded(t, m)
	}
	for _, tc := range []struct {
		name string
		role amqp.Role
		ask  func(*amqp.Attach)
		want amqp.Symbol
	}{
		{"a queue browser", amqp.RoleReceiver, func(a *amqp.Attach) { a.Source.DistributionMode = "copy" }, amqp.ErrCondNotImplemented},
		{"a queue browser that is sent settled", amqp.RoleReceiver, func(a *amqp.Attach) {
			a.Source.DistributionMode, a.SndSettleMode = "copy", amqp.SndSettled
		}, amqp.ErrCondNotImplemented},
		{"another mode", amqp.RoleReceiver, func(a *amqp.Attach) { a.Source.DistributionMode = "other" }, amqp.ErrCondNotImplemented},
		{"a selector of JMS", amqp.RoleReceiver, func(a *amqp.Attach) { a.Source.Filter = filter(amqp.Symbol("jms-selector")) }, amqp.ErrCondNotImplemented},
		{"a selector by its type", amqp.RoleReceiver, func(a *amqp.Attach) { a.Source.Filter = filter("apache.org:selector-filter:string") }, amqp.ErrCondNotImplemented},
		{"no-local", amqp.RoleReceiver, func(a *amqp.Attach) { a.Source.Filter = filter(amqp.Symbol("no-local")) }, amqp.ErrCondNotImplemented},
		{"a session and a selector", amqp.RoleReceiver, func(a *amqp.Attach) {
			a.Source.Filter = filter(amqp.Symbol("com.microsoft:session-filter"), amqp.Symbol("jms-selector"))
		}, amqp.ErrCondNotImplemented},
		{"filters that are no map", amqp.RoleReceiver, func(a *amqp.Attach) { a.Source.Filter = filter(uint64(1)) }, amqp.ErrCondInvalidField},
		{"a temporary queue to receive from", amqp.RoleReceiver, func(a *amqp.Attach) { a.Source = &amqp.Source{Dynamic: true} }, amqp.ErrCondNotImplemented},
		{"a source without an address", amqp.RoleReceiver, func(a *amqp.Attach) { a.Source = &amqp.Source{} }, amqp.ErrCondInvalidField},
		{"a temporary queue to send to", amqp.RoleSender, func(a *amqp.Attach) { a.Target = &amqp.Target{Dynamic: true} }, amqp.ErrCondNotImplemented},
		{"a sender without an address", amqp.RoleSender, func(a *amqp.Attach) { a.Target = &amqp.Target{} }, amqp.ErrCondNotImplemented},
		{"a sender to nothing", amqp.RoleSender, func(a *amqp.Attach) { a.Target.Address = "" }, amqp.ErrCondNotImplemented},
	} {
		for _, keys := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, keys=%v", tc.name, keys), func(t *testing.T) {
				configure := func(c *broker.Config) {
					if keys {
						c.Keys = []broker.AuthorizationRule{{KeyName: "k", PrimaryKey: "a2V5", Send: true, Listen: true}}
					}
				}
				bubble(t, configure, func(t *testing.T, ns *brokertest.Namespace) {
					r := rawOver(t, ns, opens)
					a, _ := r.attach(0, tc.role, "q", tc.ask)
					if tc.role == amqp.RoleReceiver && a.Source != nil || tc.role == amqp.RoleSender && a.Target != nil {
						t.Errorf("attached with %s, want no terminus", amqp.Trace(a, 0))
					}
					want := tc.want
					asked := amqp.Attach{Source: &amqp.Source{Address: "q"}, Target: &amqp.Target{Address: "q"}}
					tc.ask(&asked)
					if keys && tc.role == amqp.RoleReceiver && asked.Source.Address != "" {
						want = amqp.ErrCondUnauthorizedAccess // without a token, a client learns nothing of what exists
					}
					if d, _ := await[*amqp.Detach](r); d.Error == nil || d.Error.Condition != want || d.Error.Description == "" {
						t.Errorf("detached with %v, want %s and a sentence", d.Error, want)
					}
				})
			})
		}
	}
}

// A client believes what the answer says is in place.
func TestAnAttachIsAnsweredWithWhatIsInPlace(t *testing.T) {
	outcomes := encoded(t, amqp.Array{amqp.Symbol("amqp:accepted:list"), amqp.Symbol("amqp:released:list")})
	capabilities := encoded(t, amqp.Array{amqp.Symbol("topic"), amqp.Symbol("shared")})
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		a, _ := r.attach(0, amqp.RoleReceiver, "q", func(a *amqp.Attach) {
			a.Source.Durable, a.Source.ExpiryPolicy, a.Source.Timeout = 2, "never", 9
			a.Source.DistributionMode, a.Source.Outcomes, a.Source.Capabilities = "move", outcomes, capabilities
			a.Source.DynamicNodeProperties = encoded(t, amqp.Map{{Key: amqp.Symbol("x"), Value: "y"}})
		})
		s := a.Source
		if s == nil || s.Address != "q" || s.DistributionMode != "move" || !slices.Equal(s.Outcomes, outcomes) {
			t.Errorf("source %+v, want the address, the mode and the outcomes that were asked for", s)
		}
		if s.Durable != 0 || s.ExpiryPolicy != "" || s.Timeout != 0 || s.Capabilities != nil || s.DynamicNodeProperties != nil {
			t.Errorf("source %+v states what is not in place", s)
		}
		a, _ = r.attach(1, amqp.RoleSender, "q", func(a *amqp.Attach) {
			a.Target.Durable, a.Target.ExpiryPolicy, a.Target.Capabilities = 2, "never", capabilities
		})
		if g := a.Target; g == nil || g.Address != "q" || g.Durable != 0 || g.ExpiryPolicy != "" || g.Capabilities != nil {
			t.Errorf("target %+v, want the address alone", g)
		}
	})
}

// Qpid JMS settles what it acknowledges in a transaction, and forgets it.
func TestARollbackGivesBackWhatWasSettled(t *testing.T) {
	modified := (&amqp.Modified{DeliveryFailed: true}).Append(nil)
	for _, tc := range []struct {
		name           string
		settled        bool
		defaultOutcome amqp.Raw
		wrong          bool // the transaction is none
		count          uint32
	}{
		{"by the default outcome", true, modified, false, 1},
		{"released without one", true, nil, false, 0},
		{"never as accepted", true, amqp.Raw(amqp.Accepted{}.Append(nil)), false, 0},
		{"with a transaction that is none", true, nil, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
				r := rawOver(t, ns, opens)
				r.attach(0, amqp.RoleSender, "q")
				r.attach(1, amqp.RoleReceiver, "q", func(a *amqp.Attach) { a.Source.DefaultOutcome = tc.defaultOutcome })
				r.attach(2, amqp.RoleSender, "", func(a *amqp.Attach) { a.Target, a.Coordinator = nil, &amqp.Coordinator{} })
				r.sent(0, amqp.AppendData(nil, []byte("x")))
				d, _ := r.delivery(1, 0)
				declared, _ := r.transfer(2, 0, amqp.AppendValueSection(nil, (&amqp.Declare{}).Append(nil))).(*amqp.Declared)
				if declared == nil {
					t.Fatal("no transaction was declared")
				}
				id := declared.TxnID
				if tc.wrong {
					id = []byte("none")
				}
				began := time.Now()
				r.send(&amqp.Disposition{
					Role: amqp.RoleReceiver, First: d.DeliveryID, Last: d.DeliveryID, Settled: tc.settled,
					State: &amqp.TransactionalState{TxnID: id, Outcome: amqp.Accepted{}},
				}, nil)
				r.transfer(2, 0, amqp.AppendValueSection(nil, (&amqp.Discharge{TxnID: declared.TxnID, Fail: true}).Append(nil)))
				_, m := r.delivery(1, 1)
				h, err := amqp.DecodeHeader(m.Header)
				if err != nil || h.DeliveryCount != tc.count {
					t.Errorf("delivered again with the count %d, %v; want %d", h.DeliveryCount, err, tc.count)
				}
				if waited := time.Since(began); waited > time.Second {
					t.Errorf("it came again after %v, want at once", waited)
				}
			})
		})
	}
}
