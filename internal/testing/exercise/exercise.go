// SPDX-License-Identifier: Apache-2.0

package exercise

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/broker/queue"
	"overdue/internal/testing/brokertest"
)

// A Target is a namespace that [Run] puts to the test.
type Target struct {
	ConnectionString string
	ClientOptions    *azservicebus.ClientOptions

	// Dial opens a connection on which AMQP can begin, for what the SDK hides.
	Dial func(context.Context) (net.Conn, error)

	// CreateQueue makes a queue for one case and returns its name, which is the
	// configuration's where that has one.
	CreateQueue func(*testing.T, broker.QueueConfig) string

	// UpdateQueue changes how a queue is set up, and DeleteQueue deletes it.
	UpdateQueue func(*testing.T, broker.QueueConfig)
	DeleteQueue func(t *testing.T, name string)

	// CreateTopic makes a topic and returns its name; CreateSubscription makes a
	// subscription, with these rules or the default one. nil skips the cases that
	// need them.
	CreateTopic        func(*testing.T, broker.TopicConfig) string
	CreateSubscription func(t *testing.T, topic string, cfg broker.SubscriptionConfig, rules ...broker.RuleConfig)

	// HTTP sends a request of the REST runtime API, and adds whatever authorises it.
	// The host of a request counts only where an answer named it. nil skips the
	// cases that need it.
	HTTP func(*http.Request) (*http.Response, error)

	// LockDuration is what the queues of the suite get: as short as waiting for
	// it is dear.
	LockDuration time.Duration

	// Secured says that the namespace wants tokens, and that the key of the
	// connection string is good for everything. Otherwise the cases about tokens
	// are skipped.
	Secured bool

	// Strict says that entities can only be set up within the bounds of the
	// service; cases that need others are skipped.
	Strict bool

	// Expiry is how the namespace takes expired messages out of a queue.
	Expiry queue.Expiry

	// Wait lets time pass by the clock of the namespace, and what is due by it
	// happen.
	Wait func(time.Duration)

	// Cut breaks every connection to the namespace. nil skips the cases that
	// need it.
	Cut func()
}

// A spec is one statement about how a namespace behaves.
type spec struct {
	name  string
	queue broker.QueueConfig // of the scene; the lock duration is the target's
	check func(*scene)
}

// Run puts the namespace that connect leads to to every case. in runs a
// case: synctest.Test for a namespace that lives in the bubble.
func Run(t *testing.T, in func(*testing.T, func(*testing.T)), connect func(*testing.T) *Target) {
	for _, group := range []struct {
		name  string
		specs []spec
	}{
		{"Send", sendSpecs},
		{"Receive", receiveSpecs},
		{"Settle", settleSpecs},
		{"DeliveryCount", countSpecs},
		{"Lock", lockSpecs},
		{"Expire", expirySpecs},
		{"Schedule", scheduleSpecs},
		{"Peek", peekSpecs},
		{"Defer", deferSpecs},
		{"Session", sessionSpecs},
		{"SessionLock", sessionLockSpecs},
		{"SessionManagement", sessionManageSpecs},
		{"Link", linkSpecs},
		{"Forward", forwardSpecs},
		{"Entity", entitySpecs},
		{"Topic", topicSpecs},
		{"Rule", ruleSpecs},
		{"Transaction", txnSpecs},
		{"TransactionManagement", txnManageSpecs},
		{"Duplicate", duplicateSpecs},
		{"Delete", deleteSpecs},
		{"Partition", partitionSpecs},
		{"REST", restSpecs},
		{"Authorize", authSpecs},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, sp := range group.specs {
				t.Run(sp.name, func(t *testing.T) {
					in(t, func(t *testing.T) { sp.check(newScene(t, connect(t), sp.queue)) })
				})
			}
		})
	}
}

// caseTime bounds a case, by the clock of the clients: in a bubble a wait
// without an end would otherwise spin through years of keep-alives.
const caseTime = time.Hour

// A scene is a queue of its own with a client, for one case. Each kind of case has a part with
// what only it does.
type scene struct {
	*testing.T
	ctx    context.Context
	target *Target
	queue  string
	client *azservicebus.Client
	sender *azservicebus.Sender

	raw      rawLinks
	sessions sessions
	topics   topics
	rest     restClient
	keys     keyring
}

type (
	rawLinks   struct{ *scene } // what the SDK hides of links
	sessions   struct{ *scene }
	topics     struct{ *scene }
	restClient struct{ *scene } // over HTTP
	keyring    struct{ *scene } // clients with other keys and tokens
)

func newScene(t *testing.T, target *Target, cfg broker.QueueConfig) *scene {
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	t.Cleanup(cancel)
	cfg.LockDuration = target.LockDuration
	s := &scene{
		T:      t,
		ctx:    ctx,
		target: target,
		queue:  target.CreateQueue(t, cfg),
	}
	s.raw, s.sessions, s.topics, s.rest, s.keys = rawLinks{s}, sessions{s}, topics{s}, restClient{s}, keyring{s}
	s.client = s.newClient()
	s.sender = s.senderTo(s.queue)
	return s
}

// newClient returns a client with a connection of its own.
func (s *scene) newClient() *azservicebus.Client {
	s.Helper()
	return brokertest.NewClient(s, s.target.ConnectionString, s.target.ClientOptions)
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("unexpected error: %v", err)
	}
}

// lapse waits until every lock that exists now has lapsed.
func (s *scene) lapse() { s.target.Wait(s.target.LockDuration + time.Second) }

// send sends messages one by one.
func (s *scene) send(ms ...*azservicebus.Message) {
	s.Helper()
	for _, m := range ms {
		s.must(s.sender.SendMessage(s.ctx, m, nil))
	}
}

// text sends messages with these bodies.
func (s *scene) text(bodies ...string) {
	s.Helper()
	for _, b := range bodies {
		s.send(&azservicebus.Message{Body: []byte(b)})
	}
}

// mortal sends messages that live for ttl.
func (s *scene) mortal(ttl time.Duration, bodies ...string) {
	s.Helper()
	for _, b := range bodies {
		s.send(&azservicebus.Message{Body: []byte(b), TimeToLive: &ttl})
	}
}

// senderTo opens a sender to a queue or topic.
func (s *scene) senderTo(name string) *azservicebus.Sender {
	s.Helper()
	sender, err := s.client.NewSender(name, nil)
	s.must(err)
	return sender
}

// needsCut skips a case where the target has no Cut.
func (s *scene) needsCut() {
	s.Helper()
	if s.target.Cut == nil {
		s.Skip("the target has no Cut")
	}
}

// loose skips a case about settings that a namespace with the service's bounds
// refuses.
func (s *scene) loose() {
	s.Helper()
	if s.target.Strict {
		s.Skip("the namespace keeps the bounds of the service")
	}
}

// receiver opens a peek-lock receiver on the queue.
func (s *scene) receiver() *azservicebus.Receiver {
	s.Helper()
	return s.receiverOf(s.client, nil)
}

// deadLetters opens a peek-lock receiver on the dead-letter queue.
func (s *scene) deadLetters() *azservicebus.Receiver {
	s.Helper()
	return s.receiverOf(s.client, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (s *scene) receiverOf(c *azservicebus.Client, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	s.Helper()
	r, err := c.NewReceiverForQueue(s.queue, o)
	s.must(err)
	return r
}

// receive returns n messages. It waits for all of them in one call: between two
// calls the SDK would release what comes, and so disturb the order.
func (s *scene) receive(r *azservicebus.Receiver, n int) []*azservicebus.ReceivedMessage {
	s.Helper()
	var all []*azservicebus.ReceivedMessage
	for len(all) < n {
		ms, err := r.ReceiveMessages(s.ctx, n-len(all), &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: 10 * time.Second})
		s.must(err)
		all = append(all, ms...)
	}
	return all
}

// one receives the next message.
func (s *scene) one(r *azservicebus.Receiver) *azservicebus.ReceivedMessage {
	s.Helper()
	return s.receive(r, 1)[0]
}

// peek returns all messages, page by page.
func (s *scene) peek(r *azservicebus.Receiver) []*azservicebus.ReceivedMessage {
	s.Helper()
	var all []*azservicebus.ReceivedMessage
	from := int64(1)
	for {
		page, err := r.PeekMessages(s.ctx, 250, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &from})
		s.must(err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		from = *page[len(page)-1].SequenceNumber + 1
	}
}

// wantBodies checks messages by their bodies, in order.
func (s *scene) wantBodies(what string, ms []*azservicebus.ReceivedMessage, want ...string) {
	s.Helper()
	got := make([]string, len(ms))
	for i, m := range ms {
		got[i] = string(m.Body)
	}
	if len(got) != len(want) {
		s.Fatalf("%s: got %q, want %q", what, got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			s.Fatalf("%s: got %q, want %q", what, got, want)
		}
	}
}

// wantCount checks the delivery count as the Go SDK shows it: 1 on the first
// delivery.
func (s *scene) wantCount(what string, m *azservicebus.ReceivedMessage, want uint32) {
	s.Helper()
	if m.DeliveryCount != want {
		s.Errorf("%s: delivery count = %d, want %d", what, m.DeliveryCount, want)
	}
}
