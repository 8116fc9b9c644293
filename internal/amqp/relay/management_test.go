// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"golang.org/x/sync/errgroup"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/testing/testseed"
)

const ordersManagement = "orders/$management"

// refusing watches the requests to orders: those with an odd message-id are refused,
// with a multiple of four they wait a while before they go on.
func refusing(c *Config) {
	c.Watch = func(l Link) Watcher {
		if l.Receiver || l.Class.Address.Key() != ordersManagement {
			return nil
		}
		return &fakeWatcher{deliver: func(d *Delivery) (DeliveryHandler, *amqp.Error) {
			switch id := requestID(d.Payload); {
			case id%2 == 1:
				return nil, amqp.Errorf(condServerBusy, "not now")
			case id%4 == 0:
				return slowly{}, nil
			}
			return atOnce{}, nil
		}}
	}
}

// slowly lets a delivery go on after a second, and its outcome pass after another.
type slowly struct{}

func (slowly) Before(r Resumer) bool {
	time.AfterFunc(time.Second, func() { r.Resume(nil) })
	return true
}

func (slowly) Settled(_ amqp.DeliveryState, answerer Answerer) {
	time.AfterFunc(time.Second, func() { answerer.Answer(nil) })
}

func requestID(payload []byte) (id int) {
	m, err := amqp.ParseMessage(payload)
	if err != nil {
		return 0
	}
	r, _ := amqp.ListField(m.Properties, amqp.PropertyMessageID)
	_, _ = fmt.Sscanf(r.String(), "r%d", &id) // 0 is no request of the test
	return id
}

// A managementClient is a client of a management node that gives credit as the test says.
type managementClient struct {
	*scene
	requests  *goamqp.Sender
	responses *goamqp.Receiver
}

func (s *scene) managementClient(replyTo string) *managementClient {
	s.Helper()
	session := s.raw(nil)
	m := &managementClient{scene: s}
	var err error
	m.responses, err = session.NewReceiver(s.Context(), ordersManagement, &goamqp.ReceiverOptions{
		TargetAddress: replyTo, Credit: -1, RequestedSenderSettleMode: goamqp.SenderSettleModeSettled.Ptr(),
	})
	s.must(err)
	m.requests, err = session.NewSender(s.Context(), ordersManagement, nil)
	s.must(err)
	return m
}

// ask sends the request id, one to peek.
func (m *managementClient) ask(id int, replyTo string) error {
	return m.requests.Send(m.Context(), &goamqp.Message{
		Properties:            &goamqp.MessageProperties{MessageID: fmt.Sprint("r", id), ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{"operation": "com.microsoft:peek-message"},
		Value:                 map[string]any{"from-sequence-number": int64(1), "message-count": int32(1)},
	}, nil)
}

// response waits for the next response and says which request it is to.
func (m *managementClient) response(timeout time.Duration) (id int, status int32, ok bool) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), timeout)
	defer cancel()
	got, err := m.responses.Receive(ctx, nil)
	if err != nil {
		return 0, 0, false
	}
	if _, err := fmt.Sscanf(got.Properties.CorrelationID.(string), "r%d", &id); err != nil {
		m.Fatalf("correlation-id %v: %v", got.Properties.CorrelationID, err)
	}
	return id, got.ApplicationProperties["statusCode"].(int32), true
}

// Every request gets its response over the link that it names, the relay's among
// those of the broker, whatever the client's credit is; and no credit is lost.
func TestWhatIsRefusedOfAManagementNodeGetsAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(testseed.Of(t), 0))
		s := setup(t, refusing)
		other := s.managementClient("elsewhere")
		s.must(other.responses.IssueCredit(100))
		m := s.managementClient("here")
		asked, answered := 0, map[int]int32{}
		credit := 0
		var asking errgroup.Group
		collect := func() {
			for credit > 0 {
				id, status, ok := m.response(5 * time.Second)
				if !ok {
					return
				}
				if _, twice := answered[id]; twice {
					t.Fatalf("request %d has two responses", id)
				}
				answered[id] = status
				credit--
			}
		}
		for range 60 {
			n := 1 + r.IntN(4)
			before := r.IntN(n + 1)
			grant := func(n int) {
				if n > 0 {
					s.must(m.responses.IssueCredit(uint32(n)))
					credit += n
				}
			}
			grant(before)
			for range n {
				asked++
				id := asked // the broker settles a request when its response goes out
				asking.Go(func() error { return m.ask(id, "here") })
				synctest.Wait()
			}
			if r.IntN(3) == 0 {
				collect()
			}
			if credit > 0 && r.IntN(4) == 0 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				s.must(m.responses.DrainCredit(ctx, nil))
				cancel()
				for { // what came before the drain's end
					id, status, ok := m.response(time.Millisecond)
					if !ok {
						break
					}
					answered[id] = status
				}
				credit = 0
			}
			grant(asked - len(answered) - credit)
			collect()
			if len(answered) != asked {
				t.Fatalf("%d of %d requests have a response", len(answered), asked)
			}
		}
		s.must(asking.Wait())
		for id, status := range answered {
			if want := int32(503); id%2 == 1 && status != want || id%2 == 0 && status >= 300 {
				t.Errorf("request %d is answered with %d", id, status)
			}
		}
		if id, _, ok := other.response(time.Second); ok {
			t.Errorf("another client got the response to request %d", id)
		}
	})
}

func TestARequestIsRejectedWhereNoLinkTakesItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, refusing)
		m := s.managementClient("here")
		s.must(m.responses.Close(t.Context()))
		wantRejected(t, "a request", m.ask(1, "here"), "com.microsoft:server-busy")
	})
}

// A verdict records the outcomes that it gets, and answers as the test says.
type verdict struct {
	outcomes chan amqp.DeliveryState
	answer   *amqp.Error
}

func (j *verdict) Deliver(*Delivery) (DeliveryHandler, *amqp.Error) { return j, nil }
func (j *verdict) Detached()                                        {}
func (j *verdict) Before(Resumer) bool                              { return false }
func (j *verdict) Settled(o amqp.DeliveryState, answerer Answerer) {
	j.outcomes <- o
	answerer.Answer(j.answer)
}

func TestTheOutcomeOfARequestIsItsResponse(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   *amqp.Error // of the broker
		answer  *amqp.Error // of the verdict
		settled bool        // the request is sent so
		want    amqp.Symbol // condition of the outcome
		status  int32
	}{
		{name: "success", status: 204},
		{name: "failure", fault: broker.ServerBusy(), want: condServerBusy, status: 503},
		{name: "a response that the verdict replaces", answer: amqp.Errorf(condTimeout, "late"), status: 408},
		{name: "a request that is sent settled", settled: true, status: 204},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &verdict{outcomes: make(chan amqp.DeliveryState, 10), answer: c.answer}
				s := setup(t, func(cfg *Config) {
					cfg.Watch = func(l Link) Watcher {
						if l.Receiver {
							return nil
						}
						return j
					}
				})
				if c.fault != nil {
					s.ns.Broker.Default().Inject(broker.Fault{Entity: "orders", Operation: broker.OnManagement, Error: c.fault})
				}
				m := s.managementClient("here")
				if c.settled {
					session := s.raw(nil)
					var err error
					m.responses, err = session.NewReceiver(t.Context(), ordersManagement, &goamqp.ReceiverOptions{TargetAddress: "here", Credit: -1})
					s.must(err)
					m.requests, err = session.NewSender(t.Context(), ordersManagement, &goamqp.SenderOptions{SettlementMode: goamqp.SenderSettleModeSettled.Ptr()})
					s.must(err)
				}
				s.must(m.responses.IssueCredit(1))
				s.must(m.ask(2, "here"))
				_, status, ok := m.response(time.Minute)
				if !ok || status != c.status {
					t.Errorf("the client got status %d, %v, want %d", status, ok, c.status)
				}
				var got []amqp.DeliveryState
				for len(j.outcomes) > 0 {
					got = append(got, <-j.outcomes)
				}
				if len(got) != 1 {
					t.Fatalf("the handler got %v, want one outcome", got)
				}
				rejected, _ := got[0].(*amqp.Rejected)
				switch {
				case c.want == "" && !slices.Contains(got, amqp.DeliveryState(amqp.Accepted{})):
					t.Errorf("outcome %v, want accepted", got[0])
				case c.want != "" && (rejected == nil || rejected.Error.Condition != c.want):
					t.Errorf("outcome %v, want rejected with %s", got[0], c.want)
				}
			})
		})
	}
}

func TestARequestWhoseResponseHasNoWayLeftIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &verdict{outcomes: make(chan amqp.DeliveryState, 10)}
		s := setup(t, func(cfg *Config) {
			cfg.Watch = func(l Link) Watcher {
				if l.Receiver {
					return nil
				}
				return j
			}
		})
		s.ns.Broker.Default().Inject(broker.Fault{Entity: "orders", Operation: broker.OnManagement, Silent: true})
		m := s.managementClient("here")
		s.must(m.responses.IssueCredit(1))
		s.must(m.ask(2, "here"))
		synctest.Wait()
		if len(j.outcomes) != 0 {
			t.Fatalf("the handler got %v before a response came", <-j.outcomes)
		}
		s.must(m.responses.Close(t.Context()))
		synctest.Wait()
		if len(j.outcomes) != 1 {
			t.Fatalf("the handler got %d outcomes, want one", len(j.outcomes))
		}
		if o, ok := (<-j.outcomes).(amqp.Released); !ok {
			t.Errorf("outcome %v, want released", o)
		}
	})
}
