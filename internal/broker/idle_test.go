// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	sdk "github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/testing/brokertest"
)

func idleRules(c *broker.Config) {
	c.LinkIdleTimeout, c.ConnectionIdleTimeout = 10*time.Minute, 5*time.Minute
}

func TestALinkThatCarriesNothingIsDetached(t *testing.T) {
	bubble(t, idleRules, func(t *testing.T, ns *brokertest.Namespace) {
		s := session(t, ns)
		idle, err := s.NewReceiver(t.Context(), "q", &sdk.ReceiverOptions{Credit: -1})
		if err != nil {
			t.Fatal(err)
		}
		busy, err := s.NewSender(t.Context(), "q", nil)
		if err != nil {
			t.Fatal(err)
		}
		send := func() error { return busy.Send(t.Context(), sdk.NewMessage([]byte("x")), nil) }
		for range 3 {
			time.Sleep(4 * time.Minute)
			if err := send(); err != nil {
				t.Fatalf("a link in use: %v", err)
			}
		}
		_, err = idle.Receive(t.Context(), nil)
		wantCondition(t, "Receive on the idle link", err, sdk.ErrCondDetachForced)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		wantCondition(t, "Send on the link that became idle", send(), sdk.ErrCondDetachForced)
	})
}

func TestAConnectionWithoutLinksIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		link bool
		want time.Duration
	}{"never had one": {false, time.Minute}, "had one": {true, 5 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, idleRules, func(t *testing.T, ns *brokertest.Namespace) {
				nc, err := ns.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				conn, err := sdk.NewConn(t.Context(), nc, &sdk.ConnOptions{SASLType: sdk.SASLTypeAnonymous()})
				if err != nil {
					t.Fatal(err)
				}
				if c.link {
					s, err := conn.NewSession(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					l, err := s.NewSender(t.Context(), "q", nil)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(3 * time.Minute)
					if err := l.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				<-conn.Done()
				if took := time.Since(began); took < c.want || took > c.want+time.Second {
					t.Errorf("closed after %v, want %v", took, c.want)
				}
			})
		})
	}
}

func TestAClientGetsOverIdleRules(t *testing.T) {
	bubble(t, idleRules, func(t *testing.T, ns *brokertest.Namespace) {
		client := ns.Client(t)
		sender, err := client.NewSender("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.NewReceiverForQueue("q", nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x")}, nil); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			retry(t, "receive and complete", func() error {
				ms, err := r.ReceiveMessages(ctx, 1, nil)
				if err != nil || len(ms) == 0 {
					return cmp.Or(err, errors.New("no message"))
				}
				return r.CompleteMessage(ctx, ms[0], nil)
			})
			cancel()
			time.Sleep(time.Hour)
		}
	})
}
