// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	amqpclient "overdue/internal/amqp/client"
	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/brokertest"
)

// dialUpstream opens a connection with nothing but the pair on it.
func dialUpstream(t *testing.T, dial func(context.Context) (net.Conn, error)) *pair {
	t.Helper()
	nc, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := amqpclient.Open(t.Context(), nc, "overdue.test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return newPair(conn)
}

func secured(queues ...string) func(*broker.Config) {
	return func(cfg *broker.Config) {
		cfg.AutoCreate = false
		cfg.Keys = []broker.AuthorizationRule{brokertest.Key()}
		for _, name := range queues {
			cfg.Queues = append(cfg.Queues, broker.QueueConfig{Name: name})
		}
	}
}

func ownKey() func(context.Context, string) (Token, error) {
	k := brokertest.Key()
	return SAS(k.KeyName, k.PrimaryKey)
}

func TestATokenIsPutOnThePairOfTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, secured("orders"))
		u := dialUpstream(t, ns.Dial)
		wrong := SAS("RootManageSharedAccessKey", "d3Jvbmc=")
		for _, c := range []struct {
			name      string
			tokens    func(context.Context, string) (Token, error)
			audience  string
			status    int32
			condition amqp.Symbol // of the refusal of a link
		}{
			{"a good token", ownKey(), "sb://overdue.test/orders", 202, ""},
			{"a node below", ownKey(), "sb://overdue.test/orders/$management", 202, ""},
			{"another key", wrong, "sb://overdue.test/orders", 401, amqp.ErrCondUnauthorizedAccess},
			{"no such entity", ownKey(), "sb://overdue.test/nothing", 404, amqp.ErrCondNotFound},
		} {
			token, err := c.tokens(t.Context(), c.audience)
			if err != nil {
				t.Fatal(err)
			}
			res, err := u.put(t.Context(), c.audience, token)
			if err != nil || res.status != c.status {
				t.Errorf("%s: put = %d %q, %v, want %d", c.name, res.status, res.description, err, c.status)
			}
			if !res.succeeded() && res.refusal().Condition != c.condition {
				t.Errorf("%s: refusal = %v, want the condition %s", c.name, res.refusal(), c.condition)
			}
		}
	})
}

func TestALongTokenIsPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(cfg *broker.Config) {
			secured("orders")(cfg)
			cfg.AcceptJWT = true
		})
		u := dialUpstream(t, ns.Dial)
		token := Token{Text: strings.Repeat("x", 100_000), Type: TokenJWT}
		res, err := u.put(t.Context(), "sb://overdue.test/orders", token)
		if err != nil || res.status != 202 {
			t.Errorf("put of %d bytes = %d %q, %v, want 202", len(token.Text), res.status, res.description, err)
		}
	})
}

func TestThePairComesBackAfterTheUpstreamHasDetachedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, secured("orders"))
		u := dialUpstream(t, ns.Dial)
		token, _ := ownKey()(t.Context(), "sb://overdue.test/orders")
		put := func() error {
			res, err := u.put(t.Context(), "sb://overdue.test/orders", token)
			if err == nil && res.status != 202 {
				err = fmt.Errorf("status %d", res.status)
			}
			return err
		}
		if err := put(); err != nil {
			t.Fatalf("put = %v", err)
		}
		ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Detach: true, Times: 1,
			Error: amqp.Errorf(amqp.ErrCondLinkDetachForced, "idle")})
		if err := put(); !errors.Is(err, errPairLost) {
			t.Errorf("put whose link is detached = %v, want errPairLost", err)
		}
		if err := put(); err != nil {
			t.Errorf("put after that = %v, want a new pair", err)
		}
	})
}

func TestAPutEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, secured("orders"))
		u := dialUpstream(t, ns.Dial)
		token, _ := ownKey()(t.Context(), "sb://overdue.test/orders")
		if _, err := u.put(t.Context(), "sb://overdue.test/orders", token); err != nil {
			t.Fatal(err) // without any token the broker would close the connection
		}
		ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Delay: time.Minute, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := u.put(ctx, "sb://overdue.test/orders", token); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("put = %v, want the deadline", err)
		}
		time.Sleep(2 * time.Minute) // the answer that nobody waits for comes
		if res, err := u.put(t.Context(), "sb://overdue.test/orders", token); err != nil || res.status != 202 {
			t.Errorf("put after that = %d, %v, want 202", res.status, err)
		}
	})
}

// Ten times the credit of the upstream, and as many as its session window.
func TestAThousandEntitiesGetTheirTokensOnOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entities = 1000
		names := make([]string, entities)
		for i := range names {
			names[i] = fmt.Sprintf("q%d", i)
		}
		ns := brokertest.New(t, secured(names...))
		u := dialUpstream(t, ns.Dial)
		var made atomic.Int64
		asked := make(chan struct{}) // closed once all have been: a token that is there meanwhile would meet the later ones at once
		k := newKeeper(t.Context(), "overdue.test", func(ctx context.Context, audience string) (Token, error) {
			<-asked
			made.Add(1)
			return ownKey()(ctx, audience)
		}, u.put, func(err error) { t.Error(err) })
		defer k.close()
		var wg sync.WaitGroup
		for _, name := range names {
			for range 3 {
				wg.Add(1)
				if _, inEffect := k.need(name, func(err *amqp.Error) {
					if err != nil {
						t.Errorf("need(%s) = %v", name, err)
					}
					wg.Done()
				}); inEffect {
					t.Fatalf("need(%s) is met before a token was put", name)
				}
			}
		}
		close(asked)
		wg.Wait()
		if n := made.Load(); n != entities {
			t.Errorf("%d tokens for three links to each of %d entities, want one each", n, entities)
		}
		time.Sleep(75 * time.Minute) // an hour is what a token holds
		synctest.Wait()
		if n := made.Load(); n != 2*entities {
			t.Errorf("%d tokens after 75 minutes, want each of %d renewed once", n, entities)
		}
		for _, name := range names {
			if _, inEffect := k.need(name, func(*amqp.Error) {}); !inEffect {
				t.Fatalf("need(%s) after 75 minutes has to wait, want a token that was renewed", name)
			}
		}
	})
}

func TestNothingOfATokenIsTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, secured("orders"))
		u := dialUpstream(t, ns.Dial)
		k := brokertest.Key()
		token, _ := ownKey()(t.Context(), "sb://overdue.test/orders")
		if _, err := u.put(t.Context(), "sb://overdue.test/orders", token); err != nil {
			t.Fatal(err)
		}
		signature, _, _ := strings.Cut(token.Text[strings.Index(token.Text, "sig=")+4:], "&")
		said := fmt.Sprintf("%v %+v %#v %s", token, token, token, token) + fmt.Sprintf("%v %+v %#v", sas.Key{Name: k.KeyName, Value: k.PrimaryKey},
			Credentials{Password: k.PrimaryKey, Token: token.Text}, &Credentials{Password: k.PrimaryKey, Token: token.Text})
		for _, secret := range []string{signature, k.PrimaryKey} {
			if strings.Contains(said, secret) {
				t.Errorf("what is said of a token shows %q", secret)
			}
		}
	})
}
