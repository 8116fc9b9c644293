// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// The parts of a delivery and its settlement, as the SDKs take them apart.

// .NET fails on a delivery-count that is absent, Go on a time that is no
// timestamp and a number that is no long.
func TestDeliveriesHaveTheTypesThatSDKsInsistOn(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		r.sent(0, amqp.AppendData(nil, []byte("locked")))
		r.sent(0, amqp.AppendData(nil, []byte("deleted")))
		r.attach(1, amqp.RoleReceiver, "q", func(a *amqp.Attach) { a.RcvSettleMode = amqp.RcvSecond })
		r.attach(2, amqp.RoleReceiver, "q", func(a *amqp.Attach) { a.SndSettleMode = amqp.SndSettled })
		for i, locked := range []bool{true, false} {
			tr, m := r.delivery(uint32(i+1), 0)
			what := string(m.Body[len(m.Body)-6:])
			if !tr.HasDeliveryID || !tr.HasMessageFormat || len(tr.DeliveryTag) == 0 || tr.Settled == locked {
				t.Errorf("%s: transfer = %s, want id, format, tag and settled %v", what, amqp.Trace(tr, 0), !locked)
			}
			h := amqp.NewReader(m.Header)
			if header := listed(t, &h); len(header) != 5 || header[4][0] == null {
				t.Errorf("%s: header = %x, want five fields, delivery-count among them", what, header)
			}
			annotations := values(t, m.MessageAnnotations)
			if n, ok := annotations["x-opt-sequence-number"].(int64); !ok || n != int64(i+1) {
				t.Errorf("%s: sequence number = %[2]v (%[2]T), want the long %d", what, annotations["x-opt-sequence-number"], i+1)
			}
			if at, ok := annotations["x-opt-enqueued-time"].(amqp.Timestamp); !ok || at.Time().After(time.Now()) {
				t.Errorf("%s: enqueued-time = %[2]v (%[2]T), want a timestamp", what, annotations["x-opt-enqueued-time"])
			}
			if state, said := annotations["x-opt-message-state"]; said {
				t.Errorf("%s: the state is said to be %v, want it unsaid", what, state)
			}
			until, isTime := annotations["x-opt-locked-until"].(amqp.Timestamp)
			token, isUUID := values(t, m.DeliveryAnnotations)["x-opt-lock-token"].(amqp.UUID)
			if isTime != locked || isUUID != locked {
				t.Errorf("%s: locked until %v with token %v, want both or none: %v", what, until, token, locked)
			}
			if locked && !bytes.Equal(tr.DeliveryTag, dotNet(token)) {
				t.Errorf("%s: tag %x, want the token %v in the order of .NET", what, tr.DeliveryTag, token)
			}
		}
	})
}

// dotNet is a UUID as .NET lays a GUID out in memory.
func dotNet(u amqp.UUID) (b []byte) {
	for _, i := range [...]int{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15} {
		b = append(b, u[i])
	}
	return b
}

// The state of a message is an int where it is said, and a peek shows the end of the last lock,
// whether or not that is over.
func TestPeeksSayTheStatesThatAreNotActiveAndTheLastLock(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		scheduled := amqp.Message{MessageAnnotations: encoded(t, amqp.Map{
			{Key: amqp.Symbol("x-opt-scheduled-enqueue-time"), Value: amqp.TimestampOf(time.Now().Add(time.Hour))},
		})}
		r.sent(0, amqp.AppendData(nil, nil))
		r.sent(0, scheduled.Append(nil))
		r.sent(0, amqp.AppendData(nil, nil))
		r.attach(1, amqp.RoleReceiver, "q", func(a *amqp.Attach) { a.RcvSettleMode = amqp.RcvSecond })
		tr, _ := r.delivery(1, 0)
		r.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID, Last: tr.DeliveryID, State: &amqp.Modified{UndeliverableHere: true}}, nil)
		await[*amqp.Disposition](r)
		r.delivery(1, 1) // locks the third
		_, answer := r.requester(2, "q/$management").manage("com.microsoft:peek-message",
			amqp.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(10)}})
		list, _ := answer["messages"].(amqp.List)
		if len(list) != 3 {
			t.Fatalf("%d messages were peeked, want 3", len(list))
		}
		for i, want := range []any{int32(1), int32(2), nil} {
			entry, _ := list[i].(amqp.Map)
			m, err := amqp.ParseMessage(entry[0].Value.([]byte))
			if err != nil || len(entry) != 1 {
				t.Fatalf("entry %d = %v, %v; want a message alone", i, entry, err)
			}
			annotations := values(t, m.MessageAnnotations)
			if got := annotations["x-opt-message-state"]; got != want {
				t.Errorf("state of message %d = %[2]v (%[2]T), want %[3]v (%[3]T)", i, got, want)
			}
			var last any // of a message that was deferred, or is locked
			if want != int32(2) {
				last = amqp.TimestampOf(time.Now().Add(time.Minute))
			}
			if got := annotations["x-opt-locked-until"]; got != last || m.DeliveryAnnotations != nil {
				t.Errorf("peeked message %d: locked until %v, delivery annotations %x; want %v and none", i, got, m.DeliveryAnnotations, last)
			}
		}
	})
}

// Java counts its messages in ulongs, Python names them by UUIDs.
func TestMessageIDsKeepTheirTypeWhereverTheyGo(t *testing.T) {
	configure := func(c *broker.Config) {
		c.Queues = []broker.QueueConfig{{Name: "q"}, {Name: "from", ForwardTo: "q"}, {Name: "dying", ForwardDeadLetteredMessagesTo: "q"}}
		all := broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{Name: "s"}}
		changed := broker.SubscriptionSetup{SubscriptionConfig: broker.SubscriptionConfig{Name: "changed"}, Rules: []broker.RuleConfig{
			{Name: "labels", Action: broker.Action{SQL: "SET sys.Label = 'x'; SET a = 1"}},
		}}
		c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "t"}, Subscriptions: []broker.SubscriptionSetup{all, changed}}}
	}
	for _, id := range []any{"text", uint64(7), uint64(1 << 40), amqp.UUID{1, 15: 2}, []byte{0xff, 0}} {
		t.Run(fmt.Sprintf("%T", id), func(t *testing.T) {
			bubble(t, configure, func(t *testing.T, ns *brokertest.Namespace) {
				r := rawOver(t, ns, opens)
				properties := func(id any) amqp.Raw { return encoded(t, amqp.List{id, nil, nil, nil, nil, id}) }
				m := amqp.Message{Properties: properties(id), Body: amqp.AppendData(nil, []byte("x"))}
				want := listedRaw(t, m.Properties)
				handle := uint32(0)
				for _, way := range []struct {
					name, to, from string
					settle         amqp.DeliveryState // between the two
				}{
					{"a queue", "q", "q", nil},
					{"an abandon", "q", "q", &amqp.Modified{}},
					{"a dead letter", "q", "q/$DeadLetterQueue", &amqp.Rejected{}},
					{"a queue that forwards", "from", "q", nil},
					{"a dead letter that is forwarded", "dying", "q", &amqp.Rejected{}},
					{"a subscription", "t", "t/Subscriptions/s", nil},
					{"an action", "t", "t/Subscriptions/changed", nil},
				} {
					r.attach(handle, amqp.RoleSender, way.to)
					r.sent(handle, m.Append(nil))
					second := func(a *amqp.Attach) { a.RcvSettleMode = amqp.RcvSecond }
					if way.settle != nil {
						r.attach(handle+1, amqp.RoleReceiver, way.to, second)
						tr, _ := r.delivery(handle+1, 0)
						r.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID, Last: tr.DeliveryID, State: way.settle}, nil)
						await[*amqp.Disposition](r)
						r.send(&amqp.Detach{Handle: handle + 1, Closed: true}, nil)
					}
					r.attach(handle+2, amqp.RoleReceiver, way.from, func(a *amqp.Attach) { a.SndSettleMode = amqp.SndSettled })
					_, got := r.delivery(handle+2, 0)
					all := listedRaw(t, got.Properties)
					if len(all) < 6 || !bytes.Equal(all[0], want[0]) || !bytes.Equal(all[5], want[5]) {
						t.Errorf("after %s: properties %x, want message-id and correlation-id %x", way.name, all, want[0])
					}
					r.send(&amqp.Detach{Handle: handle + 2, Closed: true}, nil)
					handle += 3
				}
			})
		})
	}
}

func listedRaw(t *testing.T, list amqp.Raw) []amqp.Raw {
	t.Helper()
	r := amqp.NewReader(list)
	return listed(t, &r)
}

// Java and .NET look at the type of the outcome that comes back. One that is
// rejected with an error has failed; without, it is a dead letter.
func TestOutcomesComeBackAsTheyWereStated(t *testing.T) {
	info := amqp.Map{
		{Key: amqp.Symbol("DeadLetterReason"), Value: "Why"},
		{Key: amqp.Symbol("DeadLetterErrorDescription"), Value: "Because."},
	}
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		r.attach(1, amqp.RoleReceiver, "q", func(a *amqp.Attach) { a.RcvSettleMode = amqp.RcvSecond })
		for i, c := range []struct{ stated, want amqp.DeliveryState }{
			{amqp.Accepted{}, amqp.Accepted{}},
			{amqp.Released{}, amqp.Released{}},
			{amqp.Accepted{}, amqp.Accepted{}}, // what was released
			{&amqp.Modified{}, &amqp.Modified{}},
			{amqp.Accepted{}, amqp.Accepted{}}, // what was abandoned
			{&amqp.Modified{UndeliverableHere: true}, &amqp.Modified{UndeliverableHere: true}},
			{&amqp.Rejected{}, &amqp.Rejected{}},
			{&amqp.Rejected{Error: &amqp.Error{Condition: "com.microsoft:dead-letter", Info: info}}, &amqp.Rejected{}},
		} {
			if ns.Broker.Default().Queues()[0].Counts.Active == 0 {
				r.sent(0, amqp.AppendData(nil, nil))
			}
			tr, _ := r.delivery(1, uint32(i))
			r.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID, Last: tr.DeliveryID, State: c.stated}, nil)
			d, _ := await[*amqp.Disposition](r)
			if !d.Settled || d.Role != amqp.RoleSender || d.First != tr.DeliveryID {
				t.Errorf("outcome %d: answered with %s", i, amqp.Trace(d, 0))
			}
			got, want := amqp.Trace(&amqp.Disposition{State: d.State}, 0), amqp.Trace(&amqp.Disposition{State: c.want}, 0)
			if got != want {
				t.Errorf("outcome %d: answered with %s, want %s", i, got, want)
			}
		}
		r.attach(2, amqp.RoleReceiver, "q/$DeadLetterQueue", func(a *amqp.Attach) { a.SndSettleMode = amqp.SndSettled })
		r.delivery(2, 0)
		_, m := r.delivery(2, 1)
		if got := fmt.Sprint(values(t, m.ApplicationProperties)); got != "map[DeadLetterErrorDescription:Because. DeadLetterReason:Why]" {
			t.Errorf("properties of the dead letter = %s, want what the symbols named", got)
		}
	})
}

const lockLost = "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."

func TestALostLockIsReportedInTheWordsOfTheService(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		r.sent(0, amqp.AppendData(nil, nil))
		r.attach(1, amqp.RoleReceiver, "q", func(a *amqp.Attach) { a.RcvSettleMode = amqp.RcvSecond })
		tr, m := r.delivery(1, 0)
		time.Sleep(2 * time.Minute)
		r.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID, Last: tr.DeliveryID, State: amqp.Accepted{}}, nil)
		d, _ := await[*amqp.Disposition](r)
		st, _ := d.State.(*amqp.Rejected)
		if st == nil || st.Error == nil || st.Error.Condition != "com.microsoft:message-lock-lost" || !strings.HasPrefix(st.Error.Description, lockLost) {
			t.Errorf("on the link: %s, want message-lock-lost", amqp.Trace(d, 0))
		}
		token := values(t, m.DeliveryAnnotations)["x-opt-lock-token"]
		node := r.requester(2, "q/$management")
		for operation, body := range map[string]amqp.Map{
			"com.microsoft:renew-lock":         {{Key: "lock-tokens", Value: amqp.Array{token}}},
			"com.microsoft:update-disposition": {{Key: "lock-tokens", Value: amqp.Array{token}}, {Key: "disposition-status", Value: "completed"}},
		} {
			_, answer := node.ask("id", amqp.Map{{Key: "operation", Value: operation}}, body)
			got := values(t, answer.ApplicationProperties)
			words, _ := got["statusDescription"].(string)
			if got["statusCode"] != int32(410) || got["errorCondition"] != amqp.Symbol("com.microsoft:message-lock-lost") || !strings.HasPrefix(words, lockLost) {
				t.Errorf("%s: %v, want 410 and message-lock-lost", operation, got)
			}
		}
	})
}
