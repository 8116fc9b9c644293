// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

// pattern matches a text of the service. GUID and the time stand for any, TAIL for what most texts
// end with.
func pattern(text string) *regexp.Regexp {
	const moreOn = " For more information please see https://aka.ms/ServiceBusExceptions . Reference:GUID, "
	text = regexp.QuoteMeta(strings.ReplaceAll(text, "TAIL", moreOn))
	text = strings.ReplaceAll(text, "GUID", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
	return regexp.MustCompile("^" + strings.ReplaceAll(text, "NUMBER", `\d+`) + `, Timestamp:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$`)
}

// Users of the service have posted the texts: azure-service-bus issues 239, 292, 451, 677 and 683,
// azure-sdk-for-net issue 10535, azure-sdk-for-java issues 10662 and 11381. Others are in
// azure-sdk-for-js issue 22963, azure-service-bus-go issue 177 and MassTransit issue 926.
func TestRefusalsAreInTheWordsOfTheService(t *testing.T) {
	attach := func(role amqp.Role, address string, change ...func(*amqp.Attach)) func(*raw) *amqp.Error {
		return func(r *raw) *amqp.Error {
			r.attach(0, role, address, change...)
			d, _ := await[*amqp.Detach](r)
			return d.Error
		}
	}
	session := func(id any) func(*amqp.Attach) {
		return func(a *amqp.Attach) {
			a.Source.Filter = encoded(t, amqp.Map{{Key: sessionFilter, Value: id}})
			a.Properties = encoded(t, amqp.Map{{Key: amqp.Symbol("com.microsoft:timeout"), Value: uint32(1500)}})
		}
	}
	manage := func(address, operation string, body amqp.Map) func(*raw) *amqp.Error {
		return func(r *raw) *amqp.Error {
			_, answer := r.requester(0, address+"/$management").ask("id", amqp.Map{{Key: "operation", Value: operation}}, body)
			got := values(t, answer.ApplicationProperties)
			return &amqp.Error{Condition: got["errorCondition"].(amqp.Symbol), Description: got["statusDescription"].(string)}
		}
	}
	receive, send := amqp.RoleReceiver, amqp.RoleSender
	for name, c := range map[string]struct {
		refused   func(*raw) *amqp.Error
		condition amqp.Symbol
		text      string
	}{
		"send to a disabled queue": {attach(send, "off"), "com.microsoft:entity-disabled",
			"Messaging entity 'sb://contoso.example/off' is currently disabled.TAILTrackingId:GUID_G0, SystemTracker:contoso:Queue:off"},
		"receive where that is disabled": {attach(receive, "noreceive"), "com.microsoft:entity-disabled",
			"Messaging entity 'sb://contoso.example/noreceive' is currently disabled.TAILTrackingId:GUID_G0, SystemTracker:contoso:Queue:noreceive"},
		"send where that is disabled": {attach(send, "nosend"), "com.microsoft:entity-disabled",
			"Messaging entity 'contoso:Queue:nosend' is currently disabled for Send operations.TAILTrackingId:GUID_G0, SystemTracker:contoso:Queue:nosend"},
		"receive what is forwarded": {attach(receive, "forwards"), amqp.ErrCondNotAllowed,
			"Cannot create a message receiver on an entity with auto-forwarding enabled.TAILTrackingId:GUID_G0, SystemTracker:contoso:Queue:forwards"},
		"no such queue": {attach(receive, "none"), amqp.ErrCondNotFound,
			"The messaging entity 'sb://contoso.example/none' could not be found. To know more visit https://aka.ms/sbResourceMgrExceptions.  TrackingId:GUID_G0, SystemTracker:contoso.example:none"},
		"no session in time": {attach(receive, "sessions", session(nil)), "com.microsoft:timeout",
			"The operation did not complete within the allocated time 00:00:01.5000000 for object receiverNUMBER.TAILTrackingId:GUID_G0, SystemTracker:contoso:Queue:sessions"},
		"a session of a dead-letter queue": {attach(receive, "sessions/$DeadLetterQueue", session("a")), amqp.ErrCondNotAllowed,
			"Cannot create a MessageSession for a sub-queue.TAILTrackingId:GUID_G0, SystemTracker:contoso:Queue:sessions"},
		"a session that is locked": {func(r *raw) *amqp.Error {
			r.attach(5, receive, "sessions", session("a"))
			return attach(receive, "sessions", session("a"))(r)
		}, "com.microsoft:session-cannot-be-locked",
			"The requested session 'a' cannot be accepted. It may be locked by another receiver. TrackingId:GUID_G0, SystemTracker:contoso:Queue:sessions"},
		"a session lock that lapses": {func(r *raw) *amqp.Error {
			r.attach(0, receive, "sessions", session("a"))
			d, _ := await[*amqp.Detach](r)
			return d.Error
		}, "com.microsoft:session-lock-lost",
			"The session lock has expired on the MessageSession. Accept a new MessageSession. TrackingId:GUID_G0, SystemTracker:contoso:Queue:sessions"},
		"a queue that is full": {func(r *raw) *amqp.Error {
			r.attach(0, send, "full")
			for {
				if st, ok := r.transfer(0, 0, amqp.AppendData(nil, make([]byte, 200<<10))).(*amqp.Rejected); ok {
					return st.Error
				}
			}
		}, amqp.ErrCondResourceLimitExceeded,
			"The maximum entity size has been reached or exceeded for Queue: 'contoso:Queue:full'. Size of entity in bytes:NUMBER, Max entity size in bytes: 1048576. " +
				"For more information please see https://aka.ms/ServiceBusExceptions .  QuotaType: EntitySize Reference:GUID, TrackingId:GUID_G0, SystemTracker:contoso:Queue:full"},
		"cancel what is not scheduled": {manage("sessions", "com.microsoft:cancel-scheduled-message", amqp.Map{{Key: "sequence-numbers", Value: amqp.Array{int64(7), int64(9)}}}),
			"com.microsoft:message-not-found", "Messages not found. Missing sequence numbers: 7,9 TrackingId:GUID_G0, SystemTracker:contoso:Queue:sessions"},
		"a rule that exists": {manage("t/Subscriptions/s", "com.microsoft:add-rule", amqp.Map{
			{Key: "rule-name", Value: "$Default"},
			{Key: "rule-description", Value: amqp.Map{{Key: "sql-filter", Value: amqp.Map{{Key: "expression", Value: "1=1"}}}}},
		}), "com.microsoft:entity-already-exists",
			"The messaging entity 'contoso:Topic:t|s|$Default' already exists. To know more visit https://aka.ms/sbResourceMgrExceptions.  TrackingId:GUID_G0, SystemTracker:contoso:Topic:t|s"},
	} {
		t.Run(name, func(t *testing.T) {
			configure := func(c *broker.Config) {
				c.AutoCreate = false
				c.Queues = []broker.QueueConfig{
					{Name: "off", Status: broker.Disabled}, {Name: "nosend", Status: broker.SendDisabled}, {Name: "noreceive", Status: broker.ReceiveDisabled},
					{Name: "forwards", ForwardTo: "nosend"}, {Name: "sessions", RequiresSession: true, LockDuration: 5 * time.Second},
					{Name: "full", MaxSize: 1 << 20},
				}
				c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "t"}, Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "s"}}}}}
			}
			bubble(t, configure, func(t *testing.T, ns *brokertest.Namespace) {
				open := *opens
				open.Hostname = "contoso.example"
				got := c.refused(rawOver(t, ns, &open))
				if got == nil || got.Condition != c.condition || !pattern(c.text).MatchString(got.Description) {
					t.Errorf("refused with %v\nwant %s: %s", got, c.condition, c.text)
				}
			})
		})
	}
}

func TestALinkIsDroppedInTheWordsOfTheService(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		r := rawOver(t, ns, opens)
		a, _ := r.attach(0, amqp.RoleReceiver, "q")
		if err := ns.Broker.Default().Detach("q"); err != nil {
			t.Fatal(err)
		}
		d, _ := await[*amqp.Detach](r)
		want := "The link 'G0:NUMBER:" + a.Name + "' is force detached. Code: consumer(linkNUMBER). Details: InnerMessageReceiver was closed." +
			"TAILTrackingId:GUID_G0, SystemTracker:localhost:Queue:q"
		if d.Error == nil || d.Error.Condition != amqp.ErrCondLinkDetachForced || !pattern(want).MatchString(d.Error.Description) {
			t.Errorf("detached with %v\nwant %s", d.Error, want)
		}
	})
}
