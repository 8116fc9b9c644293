// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

// The contents of answers from $cbs and $management.

// Go wants an int32, .NET reads one spelling on $cbs and the other on
// $management, and Java and Python compare the id that they sent with its type.
func TestAnswersAreReadByEverySDK(t *testing.T) {
	put := amqp.Map{{Key: "operation", Value: "put-token"}, {Key: "type", Value: "jwt"}}
	named := func(audience string) amqp.Map {
		return append(put[:len(put):len(put)], amqp.Pair{Key: "name", Value: audience})
	}
	peek := amqp.Map{{Key: "operation", Value: "com.microsoft:peek-message"}}
	one := amqp.Map{{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(1)}}
	bubble(t, func(c *broker.Config) { c.AutoCreate = false; c.Queues = []broker.QueueConfig{{Name: "q"}} }, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		cbs, management := r.requester(0, "$cbs"), r.requester(2, "q/$management")
		for _, c := range []struct {
			name       string
			on         *requester
			properties amqp.Map
			body       any
			status     int32
			condition  amqp.Symbol
		}{
			{"a token", cbs, named("amqp://host/q"), "token", 202, ""},
			{"a token for its management", cbs, named("sb://host/q/$management"), "token", 202, ""},
			{"a token for nothing", cbs, put, "token", 400, "com.microsoft:argument-error"},
			{"a token for what does not exist", cbs, named("amqp://host/none"), "token", 404, amqp.ErrCondNotFound},
			{"a peek", management, peek, one, 204, ""},
			{"a peek of nothing", management, peek, amqp.Map{}, 400, "com.microsoft:argument-error"},
			{"an operation that is none", management, put, one, 501, amqp.ErrCondNotImplemented},
		} {
			for _, id := range []any{"text", uint64(7), amqp.UUID{1, 15: 2}, []byte{0xff}} {
				what := fmt.Sprintf("%s, named by a %T", c.name, id)
				tr, answer := c.on.ask(id, c.properties, c.body)
				if want := c.on == management; tr.Settled != want {
					t.Errorf("%s: the answer is settled: %t, want %t", what, tr.Settled, want)
				}
				if properties := listedRaw(t, answer.Properties); len(properties) < 6 || !bytes.Equal(properties[5], encoded(t, id)) {
					t.Errorf("%s: properties %x, want the correlation-id %x", what, properties, encoded(t, id))
				}
				got := values(t, answer.ApplicationProperties)
				for _, name := range []string{"statusCode", "status-code"} {
					if got[name] != c.status {
						t.Errorf("%s: %s = %v (%[3]T), want the int32 %d", what, name, got[name], c.status)
					}
				}
				for _, name := range []string{"statusDescription", "status-description"} {
					if text, ok := got[name].(string); !ok || text == "" {
						t.Errorf("%s: %s = %v, want a sentence", what, name, got[name])
					}
				}
				for _, name := range []string{"errorCondition", "error-condition"} {
					if condition, _ := got[name].(amqp.Symbol); condition != c.condition {
						t.Errorf("%s: %s = %v (%[3]T), want the symbol %q", what, name, got[name], c.condition)
					}
				}
				if _, ok := answer.Value(); !ok {
					t.Errorf("%s: the answer has no value", what)
				}
			}
		}
	})
}

// Clients insist on arrays, of longs and of timestamps.
func TestNumbersAndTimesAreAnsweredInArrays(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		r.sent(0, amqp.AppendData(nil, nil))
		r.attach(1, amqp.RoleReceiver, "q", func(a *amqp.Attach) { a.RcvSettleMode = amqp.RcvSecond })
		_, m := r.delivery(1, 0)
		node := r.requester(2, "q/$management")
		later := amqp.Message{MessageAnnotations: encoded(t, amqp.Map{
			{Key: amqp.Symbol("x-opt-scheduled-enqueue-time"), Value: amqp.TimestampOf(time.Now().Add(time.Hour))},
		})}
		_, answer := node.manage("com.microsoft:schedule-message", amqp.Map{{Key: "messages", Value: amqp.List{
			amqp.Map{{Key: "message-id", Value: "id"}, {Key: "message", Value: later.Append(nil)}},
		}}})
		if numbers, ok := answer["sequence-numbers"].(amqp.Array); !ok || len(numbers) != 1 || numbers[0] != int64(2) {
			t.Errorf("sequence-numbers = %#v, want an array of the long 2", answer["sequence-numbers"])
		}
		_, answer = node.manage("com.microsoft:renew-lock", amqp.Map{
			{Key: "lock-tokens", Value: amqp.Array{values(t, m.DeliveryAnnotations)["x-opt-lock-token"]}},
		})
		want := amqp.Array{amqp.TimestampOf(time.Now().Add(time.Minute))}
		if diff := cmp.Diff(want, answer["expirations"]); diff != "" {
			t.Errorf("expirations, wanted as an array of timestamps (-want +got):\n%s", diff)
		}
	})
}

// A reason of any type comes back with its type, over the client's link and over $management.
func TestAReasonThatIsNoTextIsKept(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleSender, "q")
		r.sent(0, amqp.AppendData(nil, nil))
		r.sent(0, amqp.AppendData(nil, nil))
		r.attach(1, amqp.RoleReceiver, "q", func(a *amqp.Attach) { a.RcvSettleMode = amqp.RcvSecond })
		tr, _ := r.delivery(1, 0)
		said := amqp.Map{{Key: "DeadLetterReason", Value: int32(5)}, {Key: "k", Value: amqp.List{true}}}
		r.send(&amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID, Last: tr.DeliveryID,
			State: &amqp.Rejected{Error: &amqp.Error{Condition: "com.microsoft:dead-letter", Info: said}}}, nil)
		await[*amqp.Disposition](r)
		_, second := r.delivery(1, 1)
		status, _ := r.requester(2, "q/$management").manage("com.microsoft:update-disposition", amqp.Map{
			{Key: "disposition-status", Value: "suspended"}, {Key: "deadletter-reason", Value: int32(5)},
			{Key: "lock-tokens", Value: amqp.Array{values(t, second.DeliveryAnnotations)["x-opt-lock-token"]}},
			{Key: "properties-to-modify", Value: said[1:]},
		})
		if status != int32(200) {
			t.Fatalf("status = %v, want 200", status)
		}
		r.attach(4, amqp.RoleReceiver, "q/$DeadLetterQueue", func(a *amqp.Attach) { a.RcvSettleMode = amqp.RcvSecond })
		for i := range uint32(2) {
			_, m := r.delivery(4, i)
			if diff := cmp.Diff(map[string]any{"DeadLetterReason": int32(5), "k": amqp.List{true}}, values(t, m.ApplicationProperties)); diff != "" {
				t.Errorf("dead letter %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// deferAll defers n messages in a queue and returns their numbers.
func deferAll(t *testing.T, ns *brokertest.Namespace, name string, n int) (numbers amqp.Array) {
	t.Helper()
	q, ok := ns.Broker.Queue(name)
	if !ok {
		t.Fatalf("queue %s does not exist", name)
	}
	for range n {
		if _, err := q.Send(queue.Message{Body: amqp.AppendData(nil, nil)}); err != nil {
			t.Fatal(err)
		}
	}
	c := q.NewConsumer(queue.PeekLock)
	defer c.Close()
	c.AddCredit(int64(n))
	for len(numbers) < n {
		<-c.Ready()
		ds, _, _ := c.Take(nil)
		for _, d := range ds {
			if err := q.Settle(queue.Settlement{Outcome: queue.Defer}, d.LockToken); err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, d.SequenceNumber)
		}
	}
	return numbers
}

func TestDeferredMessagesAreDeletedTwoHundredFiftyAtATime(t *testing.T) {
	bubble(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{{Name: "q"}} }, func(t *testing.T, ns *brokertest.Namespace) {
		numbers := deferAll(t, ns, "q", 502)
		node := rawOver(t, ns, opens).requester(0, "q/$management")
		// The documentation calls the mode an ubyte, Go and JavaScript send an uint.
		receive := func(mode any, numbers amqp.Array) (any, int) {
			t.Helper()
			status, answer := node.manage("com.microsoft:receive-by-sequence-number", amqp.Map{
				{Key: "sequence-numbers", Value: numbers}, {Key: "receiver-settle-mode", Value: mode},
			})
			messages, _ := answer["messages"].(amqp.List)
			for _, entry := range messages {
				wantToken(t, entry, mode == uint8(1))
			}
			return status, len(messages)
		}
		if status, n := receive(uint32(0), numbers[:251]); status != int32(400) || n != 0 {
			t.Errorf("251 for deletion: status %v, %d messages; want 400", status, n)
		}
		if status, n := receive(uint32(0), numbers[:250]); status != int32(200) || n != 250 {
			t.Errorf("250 for deletion: status %v, %d messages; want 200 and all", status, n)
		}
		if status, n := receive(uint8(1), numbers[250:502]); status != int32(200) || n != 252 {
			t.Errorf("252 under locks: status %v, %d messages; want 200 and all", status, n)
		}
	})
}

// wantToken checks one message of an answer: JavaScript reads the token beside
// the message, Go the one within.
func wantToken(t *testing.T, entry any, locked bool) {
	t.Helper()
	pairs, _ := entry.(amqp.Map)
	of := make(map[any]any)
	for _, p := range pairs {
		of[p.Key] = p.Value
	}
	encoded, _ := of["message"].([]byte)
	m, err := amqp.ParseMessage(encoded)
	if err != nil {
		t.Fatal(err)
	}
	outside, has := of["lock-token"].(amqp.UUID)
	within, hasToo := values(t, m.DeliveryAnnotations)["x-opt-lock-token"].(amqp.UUID)
	if has != locked || hasToo != locked || outside != within {
		t.Errorf("lock tokens %v outside the message and %v in it, want the same, or none: %v", outside, within, !locked)
	}
}

func TestDeferredMessagesOfTwoPartitionsAreNotReceivedAtOnce(t *testing.T) {
	partitioned := broker.QueueConfig{Name: "q", EnablePartitioning: true}
	bubble(t, func(c *broker.Config) { c.Queues = []broker.QueueConfig{partitioned} }, func(t *testing.T, ns *brokertest.Namespace) {
		numbers := deferAll(t, ns, "q", 40)
		other := 1
		for other < len(numbers) && numbers[other].(int64)>>48 == numbers[0].(int64)>>48 {
			other++
		}
		if other == len(numbers) {
			t.Fatal("all messages are in one partition")
		}
		node := rawOver(t, ns, opens).requester(0, "q/$management")
		for want, these := range map[int32]amqp.Array{400: {numbers[0], numbers[other]}, 200: {numbers[0]}} {
			if status, _ := node.manage("com.microsoft:receive-by-sequence-number", amqp.Map{
				{Key: "sequence-numbers", Value: these}, {Key: "receiver-settle-mode", Value: uint32(1)},
			}); status != want {
				t.Errorf("%d messages: status %v, want %d", len(these), status, want)
			}
		}
	})
}

func TestARequestKeepsTheLinkThatItNames(t *testing.T) {
	bubble(t, idleRules, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		r.attach(0, amqp.RoleReceiver, "q")
		r.attach(1, amqp.RoleReceiver, "q")
		node := r.requester(2, "q/$management")
		for range 5 {
			time.Sleep(4 * time.Minute)
			node.ask("id", amqp.Map{
				{Key: "operation", Value: "com.microsoft:peek-message"}, {Key: "associated-link-name", Value: "link 0"},
			}, amqp.Map{})
		}
		// Our handles are given out in order, so that handle 1 is link 1.
		var detached []uint32
		for _, f := range r.backlog {
			if d, ok := f.Performative.(*amqp.Detach); ok {
				detached = append(detached, d.Handle)
			}
		}
		if diff := cmp.Diff([]uint32{1}, detached); diff != "" {
			t.Errorf("detached, of which no request may be the name (-want +got):\n%s", diff)
		}
	})
}

// As threads of the Python SDK ask: it takes no lock around its count of deliveries.
func TestRequestsThatShareADeliveryIDAreBothAnswered(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		q := r.requester(0, "q/$management")
		r.send(&amqp.Flow{
			IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: q.handle + 1,
			HasDeliveryCount: true, LinkCredit: 2, HasLinkCredit: true,
		}, nil)
		for _, id := range []string{"one", "two"} {
			request := amqp.Message{
				Properties:            encoded(t, amqp.List{id, nil, nil, nil, "reply"}),
				ApplicationProperties: encoded(t, amqp.Map{{Key: "operation", Value: "com.microsoft:peek-message"}}),
				Body: amqp.AppendValueSection(nil, encoded(t, amqp.Map{
					{Key: "from-sequence-number", Value: int64(0)}, {Key: "message-count", Value: int32(1)},
				})),
			}
			r.send(&amqp.Transfer{
				Handle: q.handle, HasDeliveryID: true, DeliveryID: 4, DeliveryTag: []byte{0, 0, 0, 1}, HasMessageFormat: true,
			}, request.Append(nil))
		}
		for _, id := range []string{"one", "two"} {
			_, answer := r.message()
			if got := listedRaw(t, answer.Properties); len(got) < 6 || !bytes.Equal(got[5], encoded(t, id)) {
				t.Errorf("answer to %x, want %x (%s)", got, encoded(t, id), id)
			}
		}
		d, _ := await[*amqp.Disposition](r)
		if _, accepted := d.State.(amqp.Accepted); d.First != 4 || !d.Settled || !accepted {
			t.Errorf("disposition = %s, want delivery 4 accepted", amqp.Trace(d, 0))
		}
	})
}
