// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/racetest"
)

const (
	appKey   = "app"
	appValue = "bG9jYWw="
)

// app is the connection string of an application that has a key for the relay,
// or thinks so, and none for the namespace.
func (s *scene) app(key string) *azservicebus.Client {
	s.Helper()
	c, err := azservicebus.NewClientFromConnectionString(
		"Endpoint=sb://"+endpoint+";SharedAccessKeyName="+appKey+";SharedAccessKey="+key+";UseDevelopmentEmulator=true",
		&azservicebus.ClientOptions{
			NewWebSocketConn: s.options().NewWebSocketConn,
			RetryOptions:     azservicebus.RetryOptions{MaxRetries: -1},
		})
	s.must(err)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = c.Close(ctx) // a test may have broken the connection
	})
	return c
}

// connect opens a connection of go-amqp through the relay.
func (s *scene) connect(sasl goamqp.SASLType) *goamqp.Conn {
	s.Helper()
	nc, err := s.dial(s.Context())
	s.must(err)
	c, err := goamqp.NewConn(s.Context(), nc, &goamqp.ConnOptions{HostName: endpoint, ContainerID: "app", SASLType: sasl})
	s.must(err)
	s.Cleanup(func() { _ = c.Close() }) // a test may have broken it
	return c
}

// own is a relay with an identity of its own, which admits who knows its key.
func own(cfg *Config) {
	cfg.Tokens = ownKey()
	cfg.Admit = Keys(sas.Key{Name: appKey, Value: appValue, Rights: sas.All})
}

func TestAnAppNeedsNoKeyOfTheNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		configure func(*Config)
		key       string
	}{
		"any key where nobody judges": {func(cfg *Config) { cfg.Tokens = ownKey() }, "YW55"},
		"the relay's key":             {own, appValue},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, c.configure, secured("orders"))
				client := s.app(c.key)
				sender, err := client.NewSender("orders", nil)
				s.must(err)
				s.must(sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("hello")}, nil))
				receiver, err := client.NewReceiverForQueue("orders", nil)
				s.must(err)
				peeked, err := receiver.PeekMessages(t.Context(), 1, nil)
				s.must(err)
				if len(peeked) != 1 {
					t.Errorf("%d messages peeked, want 1", len(peeked))
				}
				got, err := receiver.ReceiveMessages(t.Context(), 1, nil)
				s.must(err)
				if string(got[0].Body) != "hello" {
					t.Errorf("received %q, want hello", got[0].Body)
				}
				s.must(receiver.CompleteMessage(t.Context(), got[0], nil))
			})
		})
	}
}

func TestTheRelayOpensItsLinksAgainOverTheSameChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begins atomic.Int32
		s := setup(t, func(cfg *Config) {
			own(cfg)
			cfg.Trace = func(side, dir, line string) {
				if side == "upstream" && dir == "out" && strings.Contains(line, "/0] begin") {
					begins.Add(1)
				}
			}
		}, secured("orders", "other"))
		client := s.app(appValue)
		for _, queue := range []string{"orders", "other"} {
			sender, err := client.NewSender(queue, nil)
			s.must(err)
			s.must(sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("hello")}, nil))
			s.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Detach: true, Times: 1,
				Error: amqp.Errorf(amqp.ErrCondLinkDetachForced, "idle")})
		}
		if n := begins.Load(); n != 2 {
			t.Errorf("the session of the relay was begun %d times, want twice", n)
		}
	})
}

func TestLinksOutliveTheTokensOfTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		detached := 0
		s := setup(t, func(cfg *Config) {
			cfg.Tokens = ownKey()
			cfg.Trace = func(side, dir, line string) {
				mu.Lock()
				defer mu.Unlock()
				if side == "upstream" && dir == "in" && strings.Contains(line, "detach") {
					detached++
				}
			}
		}, secured("orders"))
		// With SASL and no token: what the client has proven never changes.
		c := s.connect(goamqp.SASLTypeAnonymous())
		session, err := c.NewSession(t.Context(), nil)
		s.must(err)
		sender, err := session.NewSender(t.Context(), "orders", nil)
		s.must(err)
		receiver, err := session.NewReceiver(t.Context(), "orders", &goamqp.ReceiverOptions{Credit: 10})
		s.must(err)
		for hour := range 24 {
			s.must(sender.Send(t.Context(), goamqp.NewMessage(fmt.Append(nil, hour)), nil))
			m, err := receiver.Receive(t.Context(), nil)
			s.must(err)
			s.must(receiver.AcceptMessage(t.Context(), m))
			time.Sleep(time.Hour)
		}
		mu.Lock()
		defer mu.Unlock()
		if detached != 0 {
			t.Errorf("%d links were detached in a day, want none", detached)
		}
	})
}

func TestWhatUpstreamRefusesReachesTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := func(t *testing.T, err error) azservicebus.Code {
			var e *azservicebus.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is no error of the SDK", err)
			}
			return e.Code
		}
		for _, c := range []struct {
			name, entity, key string
			want              azservicebus.Code
			link              goamqp.ErrCond
		}{
			{"a key that the namespace does not know", "orders", "d3Jvbmc=", azservicebus.CodeUnauthorizedAccess, goamqp.ErrCondUnauthorizedAccess},
			{"an entity that is not there", "nothing", brokertest.Key().PrimaryKey, azservicebus.CodeNotFound, goamqp.ErrCondNotFound},
		} {
			s := setup(t, func(cfg *Config) { cfg.Tokens = SAS(brokertest.Key().KeyName, c.key) }, secured("orders"))
			sender, err := s.app(appValue).NewSender(c.entity, nil)
			s.must(err)
			err = sender.SendMessage(t.Context(), &azservicebus.Message{}, nil)
			if got := code(t, err); got != c.want {
				t.Errorf("%s: SendMessage = %v, want the code %s", c.name, err, c.want)
			}
			// A client that puts no token sees it at its link.
			session, err := s.connect(goamqp.SASLTypeAnonymous()).NewSession(t.Context(), nil)
			s.must(err)
			_, err = session.NewSender(t.Context(), c.entity, nil)
			var e *goamqp.Error
			if !errors.As(err, &e) || e.Condition != c.link {
				t.Errorf("%s: the link = %v, want %s", c.name, err, c.link)
			}
		}
	})
}

func TestAWrongKeyOfTheRelayIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, own, secured("orders"))
		sender, err := s.app("d3Jvbmc=").NewSender("orders", nil)
		s.must(err)
		err = sender.SendMessage(t.Context(), &azservicebus.Message{}, nil)
		var e *azservicebus.Error
		if !errors.As(err, &e) || e.Code != azservicebus.CodeUnauthorizedAccess || !strings.Contains(err.Error(), "InvalidSignature: ") {
			t.Errorf("SendMessage with a wrong key = %v, want %s and the service's words", err, azservicebus.CodeUnauthorizedAccess)
		}
		c := s.connect(goamqp.SASLTypeAnonymous())
		session, err := c.NewSession(t.Context(), nil)
		s.must(err)
		var le *goamqp.Error
		if _, err = session.NewSender(t.Context(), "orders", nil); !errors.As(err, &le) || le.Condition != goamqp.ErrCondUnauthorizedAccess {
			t.Errorf("a link without a token = %v, want %s", err, goamqp.ErrCondUnauthorizedAccess)
		}
		time.Sleep(admissionTimeout)
		<-c.Done()
		var ce *goamqp.ConnError
		if err := c.Err(); !errors.As(err, &ce) || ce.RemoteErr == nil || ce.RemoteErr.Condition != goamqp.ErrCondUnauthorizedAccess {
			t.Errorf("a connection that proves nothing ends with %v, want %s", err, goamqp.ErrCondUnauthorizedAccess)
		}
		nc, err := s.dial(t.Context())
		s.must(err)
		if c, err := goamqp.NewConn(t.Context(), nc, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain(appKey, "wrong")}); err == nil {
			c.Close()
			t.Error("SASL PLAIN with a wrong key is let in")
		}
	})
}

func TestSASLPlainWithTheRelaysKeyOpensEveryEntity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, own, secured("orders", "other"))
		session, err := s.connect(goamqp.SASLTypePlain(appKey, appValue)).NewSession(t.Context(), nil)
		s.must(err)
		for _, name := range []string{"orders", "other"} {
			sender, err := session.NewSender(t.Context(), name, nil)
			s.must(err)
			s.must(sender.Send(t.Context(), goamqp.NewMessage([]byte("x")), nil))
		}
	})
}

// putToken asks $cbs over links of its own, which it closes.
func putToken(t *testing.T, c *goamqp.Conn, audience, token string) (status int32) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	session, err := c.NewSession(t.Context(), nil)
	must(err)
	defer func() { must(session.Close(t.Context())) }()
	sender, err := session.NewSender(t.Context(), "$cbs", nil)
	must(err)
	receiver, err := session.NewReceiver(t.Context(), "$cbs", &goamqp.ReceiverOptions{
		TargetAddress: "reply", Credit: 1, SettlementMode: goamqp.ReceiverSettleModeFirst.Ptr()})
	must(err)
	replyTo := "reply"
	must(sender.Send(t.Context(), &goamqp.Message{
		Value:                 token,
		Properties:            &goamqp.MessageProperties{MessageID: "1", ReplyTo: &replyTo},
		ApplicationProperties: map[string]any{"operation": "put-token", "type": TokenSAS, "name": audience},
	}, nil))
	m, err := receiver.Receive(t.Context(), nil)
	must(err)
	if m.Properties.CorrelationID != "1" {
		t.Errorf("correlation-id = %v, want 1", m.Properties.CorrelationID)
	}
	status, _ = m.ApplicationProperties["status-code"].(int32)
	return status
}

func TestLinksEndWithTheTokenOfTheirClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, own, secured("orders", "other"))
		c := s.connect(goamqp.SASLTypeAnonymous())
		put := func(name string, life time.Duration) {
			t.Helper()
			audience := "amqp://" + endpoint + "/" + name
			if status := putToken(t, c, audience, sas.Make(appKey, appValue, audience, time.Now().Add(life))); status != 202 {
				t.Fatalf("put-token = %d, want 202", status)
			}
		}
		put("orders", time.Hour)
		put("other", time.Hour)
		session, err := c.NewSession(t.Context(), nil)
		s.must(err)
		orders, err := session.NewSender(t.Context(), "orders", nil)
		s.must(err)
		other, err := session.NewSender(t.Context(), "other", nil)
		s.must(err)
		time.Sleep(50 * time.Minute)
		put("other", time.Hour)
		time.Sleep(20 * time.Minute)
		s.must(other.Send(t.Context(), goamqp.NewMessage([]byte("x")), nil))
		var e *goamqp.LinkError
		err = orders.Send(t.Context(), goamqp.NewMessage([]byte("x")), nil)
		if !errors.As(err, &e) || e.RemoteErr == nil || e.RemoteErr.Condition != goamqp.ErrCondUnauthorizedAccess ||
			!strings.HasPrefix(e.RemoteErr.Description, "ExpiredToken: ") {
			t.Errorf("a link whose token has expired = %v, want %s: ExpiredToken", err, goamqp.ErrCondUnauthorizedAccess)
		}
		put("orders", time.Hour)
		orders, err = session.NewSender(t.Context(), "orders", nil)
		s.must(err)
		s.must(orders.Send(t.Context(), goamqp.NewMessage([]byte("x")), nil))
	})
}

func TestASecondPairOfTokenLinksIsNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, own, secured("orders"))
		c := s.connect(goamqp.SASLTypeAnonymous())
		open := func(address string) error {
			session, err := c.NewSession(t.Context(), nil)
			s.must(err)
			if _, err := session.NewSender(t.Context(), address, nil); err != nil {
				return err
			}
			_, err = session.NewReceiver(t.Context(), address, nil)
			return err
		}
		s.must(open("$cbs"))
		for _, address := range []string{"$cbs", "$CBS"} {
			var e *goamqp.Error
			if err := open(address); !errors.As(err, &e) || e.Condition != goamqp.ErrCondNotAllowed {
				t.Errorf("a second link to %s = %v, want %s", address, err, goamqp.ErrCondNotAllowed)
			}
		}
	})
}

func TestManyEntitiesShareAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entities := racetest.Sized(1000, 250)
		names := make([]string, entities)
		for i := range names {
			names[i] = fmt.Sprint("q", i)
		}
		s := setup(t, func(cfg *Config) { cfg.Tokens = ownKey() }, secured(names...))
		c := s.connect(goamqp.SASLTypeAnonymous())
		senders := make([]*goamqp.Sender, entities)
		var wg sync.WaitGroup
		for i, name := range names {
			wg.Go(func() {
				session, err := c.NewSession(t.Context(), nil)
				if err == nil {
					senders[i], err = session.NewSender(t.Context(), name, nil)
				}
				if err != nil {
					t.Errorf("a sender to %s: %v", name, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(3 * time.Hour)
		for i, sender := range senders {
			if sender == nil {
				continue
			}
			if err := sender.Send(t.Context(), goamqp.NewMessage([]byte("x")), nil); err != nil {
				t.Fatalf("sending to %s after three hours: %v", names[i], err)
			}
		}
	})
}

func TestNoOutputContainsASecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var said strings.Builder
		hear := func(args ...any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(&said, args...)
		}
		secrets := []string{brokertest.Key().PrimaryKey, appValue, "d3Jvbmc", "sig="}
		for _, key := range []string{brokertest.Key().PrimaryKey, "d3Jvbmc="} {
			s := setup(t, func(cfg *Config) {
				own(cfg)
				cfg.Tokens = SAS(brokertest.Key().KeyName, key)
				cfg.Trace = func(side, dir, line string) { hear(side, dir, line) }
				cfg.ErrorLog = func(err error) { hear(err) }
			}, secured("orders"), func(cfg *broker.Config) {})
			for _, local := range []string{appValue, "d3Jvbmc="} {
				for _, entity := range []string{"orders", "nothing"} {
					sender, err := s.app(local).NewSender(entity, nil)
					s.must(err)
					hear(sender.SendMessage(t.Context(), &azservicebus.Message{}, nil))
				}
				nc, err := s.dial(t.Context())
				s.must(err)
				c, err := goamqp.NewConn(t.Context(), nc, &goamqp.ConnOptions{SASLType: goamqp.SASLTypePlain(appKey, local)})
				if hear(err); err == nil {
					s.must(c.Close())
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(said.String(), "put a token") || !strings.Contains(said.String(), "transfer") {
			t.Fatalf("nothing of tokens was heard: %s", said.String())
		}
		for _, secret := range secrets {
			if at := strings.Index(said.String(), secret); at >= 0 {
				t.Errorf("the client sees %q: …%s", secret, said.String()[max(0, at-200):at+len(secret)])
			}
		}
	})
}
