// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/brokertest"
)

const (
	keyName = "RootManageSharedAccessKey"
	keyText = "c2VjcmV0"
)

func withKeys(rules ...broker.AuthorizationRule) func(*broker.Config) {
	return func(c *broker.Config) { c.Keys = append(rules, brokertest.Key()) }
}

// A tokenClient is a connection of go-amqp that puts its tokens itself.
type tokenClient struct {
	t       *testing.T
	conn    *amqp.Conn
	session *amqp.Session
	out     *amqp.Sender
	in      *amqp.Receiver
}

func connect(t *testing.T, ns *brokertest.Namespace, o *amqp.ConnOptions) (*tokenClient, error) {
	t.Helper()
	nc, err := ns.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.HostName == "" {
		o.HostName = "overdue.test"
	}
	conn, err := amqp.NewConn(t.Context(), nc, o)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() }) // the broker may have ended it
	session, err := conn.NewSession(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &tokenClient{t: t, conn: conn, session: session}, nil
}

func dial(t *testing.T, ns *brokertest.Namespace) *tokenClient {
	t.Helper()
	c, err := connect(t, ns, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// put puts a token and returns status and description.
func (c *tokenClient) put(audience, kind, token string) (int32, string) {
	c.t.Helper()
	if c.out == nil {
		var err error
		if c.out, err = c.session.NewSender(c.t.Context(), "$cbs", nil); err != nil {
			c.t.Fatal(err)
		}
		if c.in, err = c.session.NewReceiver(c.t.Context(), "$cbs", &amqp.ReceiverOptions{TargetAddress: "me"}); err != nil {
			c.t.Fatal(err)
		}
	}
	return c.call(c.out, c.in, map[string]any{"operation": "put-token", "type": kind, "name": audience}, token)
}

func (c *tokenClient) call(out *amqp.Sender, in *amqp.Receiver, properties map[string]any, body any) (int32, string) {
	c.t.Helper()
	m := &amqp.Message{Properties: &amqp.MessageProperties{MessageID: "1", ReplyTo: new("me")}, ApplicationProperties: properties, Value: body}
	if err := out.Send(c.t.Context(), m, nil); err != nil {
		c.t.Fatal(err)
	}
	answer, err := in.Receive(c.t.Context(), nil)
	if err == nil {
		err = in.AcceptMessage(c.t.Context(), answer)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	status, _ := answer.ApplicationProperties["status-code"].(int32)
	text, _ := answer.ApplicationProperties["status-description"].(string)
	return status, text
}

// sas puts a token that is signed with a key, for a path, which is its audience
// too.
func (c *tokenClient) sas(name, key, path string, life time.Duration) {
	c.t.Helper()
	resource := "amqp://overdue.test/" + path
	if status, text := c.put(resource, "servicebus.windows.net:sastoken", sas.Make(name, key, resource, time.Now().Add(life))); status != 202 {
		c.t.Fatalf("put-token for %s = %d %s, want 202", path, status, text)
	}
}

func (c *tokenClient) send(to string) error {
	s, err := c.session.NewSender(c.t.Context(), to, nil)
	if err != nil {
		return err
	}
	return s.Send(c.t.Context(), amqp.NewMessage([]byte("x")), nil)
}

// wantUnauthorized checks how a link was refused or ended.
func wantUnauthorized(t *testing.T, err error, text string) {
	t.Helper()
	var e *amqp.Error
	var gone *amqp.LinkError
	var over *amqp.ConnError
	switch {
	case errors.As(err, &gone) && gone.RemoteErr != nil:
		e = gone.RemoteErr
	case errors.As(err, &over) && over.RemoteErr != nil:
		e = over.RemoteErr
	default:
		errors.As(err, &e)
	}
	if e == nil || e.Condition != amqp.ErrCondUnauthorizedAccess || !strings.HasPrefix(e.Description, text) {
		t.Errorf("got %v, want amqp:unauthorized-access that begins with %q", err, text)
		return
	}
	if !strings.Contains(e.Description, " TrackingId:") || !strings.Contains(e.Description, "_G0, SystemTracker:NoSystemTracker, Timestamp:") {
		t.Errorf("the description has no tracking id: %q", e.Description)
	}
}

func TestBadTokensAreRefusedInTheWordsOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, withKeys())
		c := dial(t, ns)
		const sasType, q = "servicebus.windows.net:sastoken", "amqp://overdue.test/q"
		later := time.Now().Add(time.Hour)
		expired := time.Now().Add(-time.Second).UTC()
		for name, x := range map[string]struct{ kind, token, want string }{
			"no token":       {sasType, "", "MalformedToken: "},
			"no SAS":         {sasType, "hello", "MalformedToken: "},
			"wrong key":      {sasType, sas.Make(keyName, "other", q, later), "InvalidSignature: The token has an invalid signature."},
			"wrong name":     {sasType, sas.Make("other", keyText, q, later), "InvalidSignature: The token has an invalid signature."},
			"changed":        {sasType, strings.Replace(sas.Make(keyName, keyText, q, later), "&se=", "&se=1", 1), "InvalidSignature: The token has an invalid signature."},
			"expired":        {sasType, sas.Make(keyName, keyText, q, expired), "ExpiredToken: The token is expired. Expiration time: '" + expired.Format("2006-01-02 15:04:05") + "Z'."},
			"other entity":   {sasType, sas.Make(keyName, keyText, q+"2", later), "InvalidAudience: The authorization header contains a token with a wrong audience."},
			"JWT":            {"jwt", "eyJh.eyJh.c2ln", "InvalidToken: "},
			"type of no one": {"x", "hello", "InvalidToken: "},
		} {
			if status, text := c.put(q, x.kind, x.token); status != 401 || !strings.HasPrefix(text, x.want) {
				t.Errorf("%s: %d %q, want 401 and %q", name, status, text, x.want)
			}
		}
		wantUnauthorized(t, c.send("q"), "Unauthorized access. 'Send' claim(s) are required to perform this operation. Resource: 'sb://overdue.test/q'.")
		// Python calls every token a JWT.
		if status, text := c.put("amqp://overdue.test/p", "jwt", sas.Make(keyName, keyText, "sb://overdue.test/p", later)); status != 202 {
			t.Errorf("a signature that is called a JWT: %d %q, want 202", status, text)
		}
		c.sas(keyName, keyText, "q", time.Hour)
		if err := c.send("q"); err != nil {
			t.Errorf("send with a good token = %v, want nil", err)
		}
	})
}

func TestOperationsAskForTheirClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, withKeys(
			broker.AuthorizationRule{KeyName: "s", PrimaryKey: "send", Send: true},
			broker.AuthorizationRule{KeyName: "l", PrimaryKey: "listen", Listen: true}))
		if err := ns.Broker.AddQueue(broker.QueueConfig{Name: "q"}); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			name, key string
			allowed   map[string]bool
		}{
			{"s", "send", map[string]bool{"schedule-message": true, "cancel-scheduled-message": true}},
			{"l", "listen", map[string]bool{"peek-message": true, "renew-lock": true, "update-disposition": true, "receive-by-sequence-number": true, "enumerate-rules": true, "add-rule": true}},
		} {
			c := dial(t, ns)
			c.sas(x.name, x.key, "q/$management", time.Hour)
			out, err := c.session.NewSender(t.Context(), "q/$management", nil)
			if err != nil {
				t.Fatal(err)
			}
			in, err := c.session.NewReceiver(t.Context(), "q/$management", &amqp.ReceiverOptions{TargetAddress: "me"})
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range []string{"schedule-message", "cancel-scheduled-message", "peek-message", "renew-lock", "update-disposition", "receive-by-sequence-number", "enumerate-rules", "add-rule"} {
				status, text := c.call(out, in, map[string]any{"operation": "com.microsoft:" + op}, map[string]any{})
				if got := status != 401; got != x.allowed[op] {
					t.Errorf("%s with the key %s: %d %s, want it allowed: %v", op, x.name, status, text, x.allowed[op])
				}
			}
		}
	})
}

func TestATokenThatExpiresTakesItsLinksWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, withKeys())
		c := dial(t, ns)
		c.sas(keyName, keyText, "short", 10*time.Minute)
		c.sas(keyName, keyText, "renewed", 10*time.Minute)
		c.sas(keyName, keyText, "long", time.Hour)
		links := map[string]*amqp.Sender{}
		for _, q := range []string{"short", "renewed", "long"} {
			s, err := c.session.NewSender(t.Context(), q, nil)
			if err != nil {
				t.Fatal(err)
			}
			links[q] = s
		}
		r, err := c.session.NewReceiver(t.Context(), "short", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Minute)
		c.sas(keyName, keyText, "renewed", 10*time.Minute)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for q, s := range links {
			err := s.Send(t.Context(), amqp.NewMessage(nil), nil)
			if q == "short" {
				wantUnauthorized(t, err, "ExpiredToken: The token is expired. Expiration time: ")
			} else if err != nil {
				t.Errorf("send to %s = %v, want nil", q, err)
			}
		}
		_, err = r.Receive(t.Context(), nil)
		wantUnauthorized(t, err, "ExpiredToken: ")
		wantUnauthorized(t, c.send("short"), "Unauthorized access. 'Send'")
	})
}

func TestAConnectionNeedsATokenWithinTwentySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, withKeys())
		silent, spoken := dial(t, ns), dial(t, ns)
		time.Sleep(19 * time.Second)
		spoken.sas(keyName, keyText, "q", time.Hour)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantUnauthorized(t, silent.conn.Err(), "The connection was closed: no valid token was put within 20s")
		if err := spoken.send("q"); err != nil {
			t.Errorf("send after a token = %v, want nil", err)
		}
	})
}

func TestPlainIsNameAndKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, withKeys(broker.AuthorizationRule{KeyName: "s", PrimaryKey: "first", SecondaryKey: "second", Send: true}))
		for _, x := range []struct {
			name, key string
			in, sends bool
		}{{keyName, keyText, true, true}, {"S", "second", true, true}, {"s", "third", false, false}, {"s", "", false, false}, {"", "", false, false}, {"nobody", keyText, false, false}} {
			c, err := connect(t, ns, &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(x.name, x.key)})
			if got := err == nil; got != x.in {
				t.Errorf("PLAIN %s %s = %v, want it let in: %v", x.name, x.key, err, x.in)
			}
			if c == nil {
				continue
			}
			time.Sleep(time.Minute) // it needs no token
			if err := c.send("q"); err != nil {
				t.Errorf("send of %s = %v, want nil", x.name, err)
			}
			_, err = c.session.NewReceiver(t.Context(), "q", nil)
			if x.name == "S" {
				wantUnauthorized(t, err, "Unauthorized access. 'Listen' claim(s) are required")
			} else if err != nil {
				t.Errorf("receiver of %s = %v, want nil", x.name, err)
			}
		}
	})
}

func TestJWTsAreTakenWhereThatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, withKeys(), func(c *broker.Config) { c.AcceptJWT = true })
		c := dial(t, ns)
		if status, text := c.put("amqp://overdue.test/q", "jwt", "eyJh.eyJh.c2ln"); status != 202 {
			t.Fatalf("put-token with a JWT = %d %s, want 202", status, text)
		}
		if err := c.send("q"); err != nil {
			t.Errorf("send = %v, want nil", err)
		}
		wantUnauthorized(t, c.send("other"), "Unauthorized access. 'Send'")
	})
}

func TestAnOpenBrokerTakesEveryToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := brokertest.New(t, func(c *broker.Config) {
			c.Queues = []broker.QueueConfig{{Name: "q", AuthorizationRules: []broker.AuthorizationRule{{KeyName: "k", PrimaryKey: "k", Listen: true}}}}
		})
		c := dial(t, ns)
		time.Sleep(time.Minute)
		if status, text := c.put("amqp://overdue.test/q", "any", "thing"); status != 202 {
			t.Errorf("put-token = %d %s, want 202", status, text)
		}
		if err := c.send("q"); err != nil {
			t.Errorf("send = %v, want nil", err)
		}
	})
}

func TestKeysAreChecked(t *testing.T) {
	good := brokertest.Key()
	for name, rules := range map[string][]broker.AuthorizationRule{
		"no name":   {{PrimaryKey: "k", Send: true}},
		"no key":    {{KeyName: "k", Send: true}},
		"no claims": {{KeyName: "k", PrimaryKey: "secret-in-config"}},
		"twice":     {good, {KeyName: strings.ToLower(good.KeyName), PrimaryKey: "secret-in-config", Send: true}},
	} {
		_, err := broker.New(broker.Config{Keys: rules})
		if err == nil {
			t.Errorf("New with a key with %s = nil, want an error", name)
		} else if strings.Contains(err.Error(), "secret-in-config") {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

func TestAKeyItselfIsShownByPeople(t *testing.T) {
	ns := brokertest.New(t, withKeys(broker.AuthorizationRule{KeyName: "reader", PrimaryKey: "one", SecondaryKey: "two", Listen: true}))
	n := ns.Broker.Default()
	for _, test := range []struct {
		name, key string
		claims    sas.Rights
		want      error
	}{
		{"Reader", "one", sas.Listen, nil},
		{"reader", "two", sas.Listen, nil},
		{"reader", "one", sas.Manage, broker.ErrClaimMissing},
		{"reader", "three", sas.Listen, sas.ErrInvalidKey},
		{"reader", "", sas.Listen, sas.ErrInvalidKey},
		{"nobody", "one", sas.Listen, sas.ErrInvalidKey},
	} {
		if err := n.Keys().AuthorizeKey(test.name, test.key, test.claims); !errors.Is(err, test.want) {
			t.Errorf("AuthorizeKey(%q, %q, %v) = %v, want %v", test.name, test.key, test.claims, err, test.want)
		}
	}
}

func TestAKeyThatWasReplacedOpensNothingToPeople(t *testing.T) {
	ns := brokertest.New(t, withKeys())
	if err := ns.Broker.SetKeys([]broker.AuthorizationRule{{KeyName: keyName, PrimaryKey: "new", Manage: true}}); err != nil {
		t.Fatal(err)
	}
	n := ns.Broker.Default()
	if err := n.Keys().AuthorizeKey(keyName, keyText, sas.Manage); !errors.Is(err, sas.ErrInvalidKey) {
		t.Errorf("AuthorizeKey with the former key = %v, want %v", err, sas.ErrInvalidKey)
	}
	if err := n.Keys().AuthorizeKey(keyName, "new", sas.Manage); err != nil {
		t.Errorf("AuthorizeKey with the new key = %v, want nil", err)
	}
}
