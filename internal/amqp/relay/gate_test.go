// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/servicebus/sas"
)

// rightsScene is a relay whose app key has some rights only.
func rightsScene(t *testing.T, rights sas.Rights, entity string) *scene {
	t.Helper()
	return setup(t, func(cfg *Config) {
		own(cfg)
		cfg.Admit = Keys(sas.Key{Name: appKey, Value: appValue, Rights: rights, Entity: entity})
	}, secured("orders", "other"))
}

// fill sends a message that can be received, as somebody who may.
func (s *scene) fill(queue string) {
	s.Helper()
	sender, err := s.ns.Client(s.T).NewSender(queue, nil)
	s.must(err)
	s.must(sender.SendMessage(s.Context(), &azservicebus.Message{Body: []byte("there is something to receive")}, nil))
}

// attempts are what an app may try with a queue, each for itself.
func attempts(t *testing.T, client *azservicebus.Client, queue string) map[string]error {
	t.Helper()
	ctx := t.Context()
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	did := map[string]error{}
	did["send"] = sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("x")}, nil)
	_, did["schedule"] = sender.ScheduleMessages(ctx, []*azservicebus.Message{{Body: []byte("y")}}, time.Now().Add(time.Hour), nil)
	_, did["peek"] = receiver.PeekMessages(ctx, 1, nil)
	_, did["receive"] = receiver.ReceiveMessages(ctx, 1, nil)
	return did
}

func TestAKeyDoesNoMoreThanItsRights(t *testing.T) {
	for name, c := range map[string]struct {
		rights sas.Rights
		may    map[string]bool
	}{
		"Send":            {sas.Send, map[string]bool{"send": true, "schedule": true}},
		"Listen":          {sas.Listen, map[string]bool{"peek": true, "receive": true}},
		"Send and Listen": {sas.Send | sas.Listen, map[string]bool{"send": true, "schedule": true, "peek": true, "receive": true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := rightsScene(t, c.rights, "")
				s.fill("orders")
				for what, err := range attempts(t, s.app(appValue), "orders") {
					var refused *azservicebus.Error
					switch {
					case c.may[what] && err != nil:
						t.Errorf("%s = %v, want nil", what, err)
					case !c.may[what] && (!errors.As(err, &refused) || refused.Code != azservicebus.CodeUnauthorizedAccess):
						t.Errorf("%s = %v, want unauthorized access", what, err)
					case !c.may[what] && !strings.Contains(err.Error(), "claim(s) are required"):
						t.Errorf("%s = %v, want the claims that are missing", what, err)
					}
				}
			})
		})
	}
}

func TestAKeyOfOneEntityOpensNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rightsScene(t, sas.All, "orders")
		s.fill("orders")
		s.fill("other")
		for what, err := range attempts(t, s.app(appValue), "orders") {
			if err != nil {
				t.Errorf("%s at its entity = %v, want nil", what, err)
			}
		}
		for what, err := range attempts(t, s.app(appValue), "other") {
			var refused *azservicebus.Error
			if !errors.As(err, &refused) || refused.Code != azservicebus.CodeUnauthorizedAccess {
				t.Errorf("%s at another entity = %v, want unauthorized access", what, err)
			}
		}
	})
}

// PLAIN names no entity: the password proves the rights of its key.
func TestAPasswordOpensWhatItsKeyIsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rightsScene(t, sas.Send, "orders")
		session, err := s.connect(goamqp.SASLTypePlain(appKey, appValue)).NewSession(t.Context(), nil)
		s.must(err)
		if _, err := session.NewSender(t.Context(), "orders", nil); err != nil {
			t.Errorf("a sender = %v, want nil", err)
		}
		_, err = session.NewReceiver(t.Context(), "orders", nil)
		wantCondition(t, "a receiver", err, goamqp.ErrCondUnauthorizedAccess)
		_, err = session.NewSender(t.Context(), "other", nil)
		wantCondition(t, "a sender to another entity", err, goamqp.ErrCondUnauthorizedAccess)
	})
}

// The Java SDK opens the link that controls transactions before it puts a token. What is
// done in a transaction is done over links that need one.
func TestTransactionsAreControlledBeforeATokenIsPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rightsScene(t, sas.All, "")
		nc, err := s.dial(t.Context())
		s.must(err)
		c := speaker(t, nc)
		if code := c.login(&amqp.SASLInit{Mechanism: "ANONYMOUS"}); code != amqp.SASLOK {
			t.Fatalf("outcome = %d, want ok", code)
		}
		out := amqp.AppendFrame(bytes.Clone(amqp.ProtoAMQP[:]), 0, &amqp.Open{ContainerID: "app", MaxFrameSize: 4096}, nil)
		out = amqp.AppendFrame(out, 0, &amqp.Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 10}, nil)
		out = amqp.AppendFrame(out, 0, &amqp.Attach{Name: "txn", Handle: 0, Role: amqp.RoleSender, Source: &amqp.Source{}, Coordinator: &amqp.Coordinator{}}, nil)
		out = amqp.AppendFrame(out, 0, &amqp.Attach{Name: "no", Handle: 1, Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true}}, nil)
		c.write(out)
		c.proto(amqp.ProtoAMQP)
		coordinator, refused := false, false
		for !coordinator || !refused {
			switch f := c.frame().(type) {
			case *amqp.Attach:
				coordinator = coordinator || f.Coordinator != nil
			case *amqp.Detach:
				if f.Error == nil || f.Error.Condition != amqp.ErrCondUnauthorizedAccess {
					t.Errorf("a link to a queue without a token ends with %v, want %s", f.Error, amqp.ErrCondUnauthorizedAccess)
				}
				if refused {
					t.Fatal("both links are refused, want the coordinator to be let in")
				}
				refused = true
			}
		}
	})
}

// Where tokens pass on, upstream says who may send, and it says so by credit: a watcher that acted
// on what comes before would act for anybody.
func TestAWatcherSeesNothingBeforeUpstreamHasGivenCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan struct{}, 100)
		s := setup(t, func(cfg *Config) { cfg.Watch = func(Link) Watcher { return counting{seen} } }, secured("orders"))
		p := s.peer()
		p.write(0, &amqp.Attach{
			Name: "link", Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true},
		}, nil)
		p.tryTransfer(0, 0)
		if got := p.expect("end", "close"); !strings.Contains(got, "amqp:link:transfer-limit-exceeded") && !strings.Contains(got, "unauthorized") {
			t.Errorf("the client got %s, want a flow with its credit", got)
		}
		synctest.Wait()
		if len(seen) != 0 {
			t.Error("the watcher has been shown a delivery of a client that was not let in")
		}
	})
}

type counting struct{ seen chan struct{} }

func (c counting) Deliver(*Delivery) (DeliveryHandler, *amqp.Error) {
	c.seen <- struct{}{}
	return nil, nil
}

func (counting) Detached() {}

// opened is a client and what is upstream of it, after their opens, both owned by the
// test.
func opened(t *testing.T, configure func(*Config)) (client, upstream *saslSpeaker) {
	t.Helper()
	theirs, dialled := net.Pipe()
	s := setup(t, func(cfg *Config) {
		configure(cfg)
		cfg.Dial = func(context.Context) (net.Conn, error) { return dialled, nil }
	})
	nc, err := s.dial(t.Context())
	s.must(err)
	client, upstream = speaker(t, nc), speaker(t, theirs)
	client.login(&amqp.SASLInit{Mechanism: "ANONYMOUS"})
	client.write(amqp.AppendFrame(bytes.Clone(amqp.ProtoAMQP[:]), 0, &amqp.Open{ContainerID: "app", MaxFrameSize: 4096, ChannelMax: 7}, nil))
	upstream.proto(amqp.ProtoSASL)
	upstream.write(amqp.AppendSASLFrame(bytes.Clone(amqp.ProtoSASL[:]), &amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"ANONYMOUS"}}))
	upstream.frame()
	upstream.write(amqp.AppendSASLFrame(nil, &amqp.SASLOutcome{Code: amqp.SASLOK}))
	upstream.proto(amqp.ProtoAMQP)
	upstream.frame()
	upstream.write(amqp.AppendFrame(bytes.Clone(amqp.ProtoAMQP[:]), 0, &amqp.Open{ContainerID: "broker", MaxFrameSize: 4096, ChannelMax: 7}, nil))
	client.proto(amqp.ProtoAMQP)
	client.frame() // the open
	return client, upstream
}

// A namespace that waits in vain for a token closes the connection. Whether an SDK may try again
// depends on the owner of that token.
func TestARefusalOfTheRelaysOwnTokenStaysFromTheClient(t *testing.T) {
	for name, c := range map[string]struct {
		configure func(*Config)
		want      amqp.Symbol
	}{
		"the relay's token":  {func(cfg *Config) { cfg.Tokens = ownKey() }, amqp.ErrCondConnectionForced},
		"the client's token": {func(*Config) {}, amqp.ErrCondUnauthorizedAccess},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, upstream := opened(t, c.configure)
				go func() { _, _ = io.Copy(io.Discard, upstream.nc) }()
				upstream.write(amqp.AppendFrame(nil, 0, &amqp.Close{Error: &amqp.Error{Condition: amqp.ErrCondUnauthorizedAccess, Description: "No token."}}, nil))
				end, ok := client.frame().(*amqp.Close)
				if !ok || end.Error == nil || end.Error.Condition != c.want || !strings.Contains(end.Error.Description, "No token.") {
					t.Errorf("the client's connection ends with %v, want %s and upstream's words", end, c.want)
				}
			})
		})
	}
}

// The Go SDK puts each token over a session of its own, one after the other. It takes an error that
// $cbs is in use for the end of the connection.
func TestTheNextSessionFindsTheTokenNodeFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, broker := opened(t, func(cfg *Config) { cfg.Tokens = ownKey() })
		go func() { _, _ = io.Copy(io.Discard, broker.nc) }() // it answers no more
		for i := range 3 {
			out := amqp.AppendFrame(nil, 0, &amqp.Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 10}, nil)
			out = amqp.AppendFrame(out, 0, &amqp.Attach{Name: "put", Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: "$cbs", HasAddress: true}}, nil)
			client.write(amqp.AppendFrame(out, 0, &amqp.End{}, nil))
			for over := false; !over; {
				switch f := client.frame().(type) {
				case *amqp.Attach:
					if f.Target == nil {
						t.Errorf("session %d: the link to $cbs is refused, want it attached", i)
					}
				case *amqp.End:
					over = true
				}
			}
		}
	})
}

func wantCondition(t *testing.T, what string, err error, want goamqp.ErrCond) {
	t.Helper()
	var refused *goamqp.Error
	if !errors.As(err, &refused) || refused.Condition != want {
		t.Errorf("%s = %v, want %s", what, err, want)
	}
}

type detached struct{ times int }

func (d *detached) Deliver(*Delivery) (DeliveryHandler, *amqp.Error) { return nil, nil }
func (d *detached) Detached()                                        { d.times++ }

// Frames that are held for a link are let go when its watcher learns of the end.
func TestAGatePassesOnTheEndOfItsLink(t *testing.T) {
	var d detached
	(&gate{next: &d}).Detached()
	if d.times != 1 {
		t.Errorf("the watcher behind the gate got %d calls of Detached, want 1", d.times)
	}
	(&gate{}).Detached() // nobody is behind this one
}

func TestProofsAreBounded(t *testing.T) {
	admit := func(Credentials) (sas.Grant, error) { return sas.Grant{}, nil }
	for length, want := range map[int]bool{maxAddress: true, maxAddress + 1: false} {
		g := newGrants(admit, nil, func(bool) {})
		if got := g.put(sas.Grant{Path: strings.Repeat("x", length), Rights: sas.Send}); got != want {
			t.Errorf("a proof for a path of %d bytes is taken: %v, want %v", length, got, want)
		}
		g.close()
	}
	g := newGrants(admit, nil, func(bool) {})
	defer g.close()
	for i := range maxGrants {
		if !g.put(sas.Grant{Path: fmt.Sprint("q", i), Rights: sas.Send}) {
			t.Fatalf("proof %d of %d is refused", i, maxGrants)
		}
	}
	if g.put(sas.Grant{Path: "more", Rights: sas.Send}) || !g.put(sas.Grant{Path: "Q0/", Rights: sas.Send}) {
		t.Errorf("with %d proofs a new one is taken, or one again is not", maxGrants)
	}
}
