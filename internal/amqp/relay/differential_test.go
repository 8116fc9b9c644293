// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/servicebus/address"
	"overdue/internal/servicebus/rights"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/brokertest"
)

// openQueues is a namespace that wants no tokens.
func openQueues(queues ...string) func(*broker.Config) {
	return func(cfg *broker.Config) {
		secured(queues...)(cfg)
		cfg.Keys = nil
	}
}

// traces are what has come, until nothing more comes.
func (p *peer) traces() string {
	time.Sleep(time.Millisecond)
	synctest.Wait()
	var all []string
	for {
		select {
		case got, ok := <-p.got:
			if !ok {
				return strings.Join(append(all, "the end"), "\n")
			}
			all = append(all, got)
		default:
			return strings.Join(all, "\n")
		}
	}
}

// held counts the messages of a queue, those that are scheduled and those that somebody has locked
// among them.
func (s *scene) held(queue string) int {
	s.Helper()
	q, ok := s.ns.Broker.Queue(queue)
	if !ok {
		s.Fatalf("there is no queue %s", queue)
	}
	return len(brokertest.Seen(q.Peek(nil, 0, 1000)))
}

// If the namespace takes an attach for a link to an entity, the relay has taken it for one to the
// same entity and of the same kind.
func FuzzAttachesAreReadAsTheNamespaceReadsThem(f *testing.F) {
	for _, a := range []string{
		"orders", "/Orders/", "sb://h/orders", "orders//", "other", "orders/$management", "orders/$DeadLetterQueue", "$cbs", "", "x/../orders",
		"orders/$management/", "or%64ers", "ORDERS/$MANAGEMENT//", "orders/Subscriptions/s",
	} {
		for _, receiver := range []bool{false, true} {
			f.Add(receiver, a, "bills", "", false)
			f.Add(receiver, "bills", a, "", false)
			f.Add(receiver, a, a, "", true)
			f.Add(receiver, a, "orders", a, false)
		}
	}
	f.Fuzz(func(t *testing.T, receiver bool, source, target, via string, coordinator bool) {
		if !utf8.ValidString(source+target+via) || len(source+target+via) > 2000 {
			return // no frame carries it
		}
		a := &amqp.Attach{Name: "l", Role: amqp.RoleSender, SndSettleMode: amqp.SndSettled, Source: &amqp.Source{Address: source, HasAddress: true}}
		if receiver {
			a.Role = amqp.RoleReceiver
		}
		if a.Target = (&amqp.Target{Address: target, HasAddress: true}); coordinator {
			a.Target, a.Coordinator = nil, &amqp.Coordinator{}
		}
		if via != "" {
			properties, start := amqp.BeginMap(nil)
			properties = amqp.AppendString(amqp.AppendSymbol(properties, rights.TransferDestination), via)
			a.Properties = amqp.EndMap(properties, start, 1)
		}
		class, refused := rights.Classify(a)
		synctest.Test(t, func(t *testing.T) {
			s := setup(t, nil, openQueues("orders", "other", "bills"))
			for _, queue := range []string{"orders", "other", "bills"} {
				s.fill(queue)
			}
			p := s.peerAt(s.ns.Dial)
			p.write(0, a, nil)
			opened := p.traces()
			if strings.Contains(opened, "detach") || strings.Contains(opened, "the end") {
				return // the namespace has refused it
			}
			if refused != nil {
				return // the relay lets less through
			}
			before := map[string]int{}
			for _, queue := range []string{"orders", "other", "bills"} {
				before[queue] = s.held(queue)
			}
			if receiver {
				p.write(0, &amqp.Flow{IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, LinkCredit: 1, HasLinkCredit: true, HasDeliveryCount: true}, nil)
			} else {
				p.write(0, &amqp.Transfer{HasDeliveryID: true, DeliveryTag: []byte("t"), Settled: true, HasSettled: true}, amqp.AppendData(nil, []byte("x")))
			}
			p.traces()
			for queue, n := range before {
				switch now := s.held(queue); {
				case now > n && (class.Kind != rights.Send || !strings.EqualFold(class.Entity(), queue)):
					t.Errorf("a message came to %s over %+v, which the relay takes for %+v", queue, a, class)
				case now < n && (class.Kind != rights.Receive || class.Address.SubQueue != address.Main || !strings.EqualFold(class.Entity(), queue)):
					t.Errorf("a message went from %s over %+v, which the relay takes for %+v", queue, a, class)
				}
			}
		})
	})
}

// If a request changes the messages of an entity, the relay has taken it for one that needs the
// right to do so, or has refused it.
func FuzzRequestsAreReadAsTheNamespaceReadsThem(f *testing.F) {
	entry := amqp.Map{{Key: "message-id", Value: "m"}, {Key: "message", Value: scheduledMessage(f)}}
	const schedule, peek, remove = "com.microsoft:schedule-message", "com.microsoft:peek-message", "com.microsoft:batch-delete-messages"
	all := amqp.Map{{Key: "message-count", Value: int32(10)}, {Key: "enqueued-time-utc", Value: amqp.TimestampOf(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))}}
	for _, c := range []struct {
		properties amqp.Map
		body       any
	}{
		{amqp.Map{{Key: "operation", Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.List{entry}}}},
		{amqp.Map{{Key: "operation", Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.Array{entry}}}},
		{amqp.Map{{Key: "operation", Value: schedule}, {Key: "operation", Value: peek}}, amqp.Map{{Key: "messages", Value: amqp.List{entry}}}},
		{amqp.Map{{Key: "operation", Value: peek}, {Key: "operation", Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.List{entry}}}},
		{amqp.Map{{Key: amqp.Symbol("operation"), Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.List{entry}}}},
		{amqp.Map{{Key: "operation", Value: amqp.Symbol(schedule)}}, amqp.Map{{Key: "messages", Value: amqp.List{entry}}}},
		{amqp.Map{{Key: "operation", Value: schedule}}, amqp.Map{{Key: "messages", Value: amqp.List{}}, {Key: "messages", Value: amqp.List{entry}}}},
		{amqp.Map{{Key: "operation", Value: remove}}, all},
		{amqp.Map{{Key: "operation", Value: peek}, {Key: amqp.Symbol("operation"), Value: remove}}, all},
		{amqp.Map{{Key: "operation", Value: "purge"}}, all},
	} {
		f.Add(request(f, "1", "reply", c.properties, c.body), "orders/$management")
		f.Add(request(f, "1", "reply", c.properties, c.body), "/ORDERS/$DeadLetterQueue/$management/")
	}
	f.Fuzz(func(t *testing.T, payload []byte, node string) {
		at, err := address.Parse(node)
		if err != nil || at.Node != address.Management || len(payload) > 50_000 {
			return // FuzzAttaches… is about those
		}
		operation, oneOf, refused := rights.Operation(at, payload)
		synctest.Test(t, func(t *testing.T) {
			s := setup(t, nil, openQueues("orders"))
			s.fill("orders")
			p := s.peerAt(s.ns.Dial)
			p.write(0, &amqp.Attach{
				Name: "reply", Handle: 1, Role: amqp.RoleReceiver, SndSettleMode: amqp.SndSettled,
				Source: &amqp.Source{Address: node, HasAddress: true}, Target: &amqp.Target{Address: "reply", HasAddress: true},
			}, nil)
			p.write(0, &amqp.Attach{
				Name: "asks", Handle: 0, Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: node, HasAddress: true},
			}, nil)
			p.write(0, &amqp.Flow{IncomingWindow: 1000, OutgoingWindow: 1000, HasHandle: true, Handle: 1, LinkCredit: 10, HasLinkCredit: true, HasDeliveryCount: true}, nil)
			p.traces()
			p.write(0, &amqp.Transfer{HasDeliveryID: true, DeliveryTag: []byte("t"), Settled: true, HasSettled: true}, payload)
			p.traces()
			n := s.held("orders")
			if n != 1 && refused != nil {
				t.Fatalf("the queue holds %d messages after a request that the relay refuses: %v", n, refused)
			}
			if n > 1 && operation != rights.ScheduleMessage || n < 1 && oneOf == sas.Send {
				t.Errorf("the queue holds %d messages after what the relay takes for %q", n, operation)
			}
		})
	})
}

func scheduledMessage(f *testing.F) []byte {
	annotations, err := amqp.AppendValue(nil, amqp.Map{{Key: amqp.Symbol("x-opt-scheduled-enqueue-time"), Value: amqp.TimestampOf(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))}})
	if err != nil {
		f.Fatal(err)
	}
	m := amqp.Message{MessageAnnotations: annotations, Body: amqp.AppendData(nil, []byte("x"))}
	return m.Append(nil)
}
