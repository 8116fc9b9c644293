// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	sdk "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/brokertest"
)

// briefly is a context for operations that are not to succeed: the client tries
// again for as long as it may.
func briefly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// retry does something until it works: the SDK tries again on its own, but not
// after everything.
func retry(t *testing.T, what string, do func() error) {
	t.Helper()
	var err error
	for range 4 {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatalf("%s = %v, after four times", what, err)
}

func TestAClientGetsOverWhatANamespaceSuffers(t *testing.T) {
	forced := amqp.Errorf(amqp.ErrCondLinkDetachForced, "A fault for tests.")
	for _, op := range []broker.Operation{broker.OnAttach, broker.OnSend, broker.OnReceive, broker.OnSettle, broker.OnManagement, broker.OnToken} {
		for name, f := range map[string]broker.Fault{
			"throttle": {Error: broker.ServerBusy()},
			"delay":    {Delay: 3 * time.Second},
			"detach":   {Detach: true, Error: forced},
			"cut":      {Cut: true},
			"slow cut": {Cut: true, Delay: time.Second},
		} {
			if f.Detach && (op == broker.OnManagement || op == broker.OnToken) {
				continue // the SDK waits for the response of a link that was detached under it
			}
			if op == broker.OnReceive && f.Error != nil && !f.Detach {
				continue // a link that is detached with server-busy is kept by the SDK, and gets no more
			}
			t.Run(fmt.Sprintf("%s/%s", op, name), func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
					f.Operation, f.Times = op, 2
					ns.Broker.Default().Inject(f)
					sender, err := ns.Client(t).NewSender("q", nil)
					if err != nil {
						t.Fatal(err)
					}
					r, err := ns.Client(t).NewReceiverForQueue("q", nil)
					if err != nil {
						t.Fatal(err)
					}
					retry(t, "SendMessage", func() error {
						return sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x")}, nil)
					})
					retry(t, "receive, renew and complete", func() error {
						ms, err := r.ReceiveMessages(t.Context(), 1, nil)
						if err != nil || len(ms) != 1 {
							return cmp.Or(err, errors.New("no message"))
						}
						if err := r.RenewMessageLock(t.Context(), ms[0], nil); err != nil {
							return err
						}
						return r.CompleteMessage(t.Context(), ms[0], nil)
					})
					if n := counts(t, ns, "q").Active; n > 1 { // a send that was cut may have been done twice
						t.Errorf("%d messages are left", n)
					}
				})
			})
		}
	}
}

func TestAFaultHitsWhatItNames(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		space := ns.Broker.Default()
		remove := space.Inject(broker.Fault{Entity: "Full", Operation: broker.OnSend, After: 1, Error: broker.EntityFull()})
		space.Inject(broker.Fault{Operation: broker.OnManagement, Request: "com.microsoft:peek-message", Error: broker.ServerBusy()})
		client := ns.Client(t)
		for i, want := range []bool{true, false, false} {
			err := send(t, client, "full", &azservicebus.Message{})
			if (err == nil) != want {
				t.Errorf("send %d to the full queue = %v, should succeed: %v", i, err, want)
			}
		}
		if err := send(t, client, "other", &azservicebus.Message{}); err != nil {
			t.Errorf("send to another queue = %v", err)
		}
		r, err := client.NewReceiverForQueue("full", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.PeekMessages(briefly(t), 1, nil); err == nil {
			t.Error("a peek succeeded")
		}
		remove()
		if err := send(t, client, "full", &azservicebus.Message{}); err != nil {
			t.Errorf("send after the fault was removed = %v", err)
		}
		space.Heal()
		if _, err := r.PeekMessages(t.Context(), 1, nil); err != nil {
			t.Errorf("a peek when all is well = %v", err)
		}
	})
}

func TestAFaultThatLetsPassLeavesItToTheNext(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		space := ns.Broker.Default()
		space.Inject(broker.Fault{Operation: broker.OnSend, After: 1, Times: 1, Error: broker.EntityFull()})
		space.Inject(broker.Fault{Operation: broker.OnSend, Times: 2, Error: &amqp.Error{Condition: "amqp:not-allowed"}})
		s, err := session(t, ns).NewSender(t.Context(), "q", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []sdk.ErrCond{sdk.ErrCondNotAllowed, sdk.ErrCondResourceLimitExceeded, sdk.ErrCondNotAllowed} {
			wantCondition(t, "send", s.Send(t.Context(), sdk.NewMessage(nil), nil), want)
		}
		if err := s.Send(t.Context(), sdk.NewMessage(nil), nil); err != nil {
			t.Errorf("send when both are used up = %v, want nil", err)
		}
	})
}

func TestAnAttachSuffersWhatALinkDoes(t *testing.T) {
	for name, delay := range map[string]time.Duration{"at once": 0, "late": time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
				s := session(t, ns)
				ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnAttach, Detach: true, Times: 1, Delay: delay})
				_, err := s.NewSender(t.Context(), "q", nil)
				wantCondition(t, "an attach that is detached", err, sdk.ErrCondDetachForced)
				ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnAttach, Silent: true, Times: 1, Delay: delay})
				if _, err := s.NewReceiver(briefly(t), "q", nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("an attach that is not answered = %v, want %v", err, context.DeadlineExceeded)
				}
			})
		})
	}
}

// A client puts its token before it is settled which namespace it is in.
func TestATokenSuffersWhatItsNamespaceDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) { c.Isolate = true })
		ns.Broker.Namespace("mine").Inject(broker.Fault{Entity: "q", Operation: broker.OnToken, Error: broker.ServerBusy()})
		for _, x := range []struct {
			name, entity string
			want         int32
		}{{"mine", "q", 503}, {"mine", "q/$management", 503}, {"mine", "other", 202}, {"theirs", "q", 202}} {
			resource := "amqp://overdue.test/" + x.entity
			token := sas.Make(x.name, "any", resource, time.Now().Add(time.Hour))
			if status, text := dial(t, ns).put(resource, "servicebus.windows.net:sastoken", token); status != x.want {
				t.Errorf("token of %s for %s = %d %s, want %d", x.name, x.entity, status, text, x.want)
			}
		}
	})
}

func TestALostAcknowledgementLeavesTheMessage(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Silent: true, Times: 1})
		s := session(t, ns)
		sender, err := s.NewSender(t.Context(), "q", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.Send(briefly(t), sdk.NewMessage([]byte("x")), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send = %v, want it to wait for ever", err)
		}
		if n := counts(t, ns, "q").Active; n != 1 {
			t.Errorf("%d messages are there, want 1", n)
		}
	})
}

func TestDelayedOperationsKeepTheirOrder(t *testing.T) {
	bubble(t, nil, func(t *testing.T, ns *brokertest.Namespace) {
		ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Delay: time.Second})
		s := session(t, ns)
		sender, err := s.NewSender(t.Context(), "q", nil)
		if err != nil {
			t.Fatal(err)
		}
		const n = 50
		var receipts []sdk.SendReceipt
		for i := range n {
			receipt, err := sender.SendWithReceipt(t.Context(), sdk.NewMessage([]byte{byte(i)}), nil)
			if err != nil {
				t.Fatal(err)
			}
			receipts = append(receipts, receipt)
		}
		for _, r := range receipts {
			if _, err := r.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		q, _ := ns.Broker.Queue("q")
		for i, v := range brokertest.Seen(q.Peek(nil, 0, n)) {
			m, err := amqp.ParseMessage(v.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Body[len(m.Body)-1]; got != byte(i) {
				t.Fatalf("message %d is number %d", i, got)
			}
		}
	})
}
