// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
	"overdue/internal/testing/brokertest"
)

const (
	appKey   = "app"
	appValue = "bG9jYWw="
)

// withKeys is a proxy whose endpoints have keys, before a namespace where it has its own.
func withKeys(keys ...sas.Key) func(*setting) {
	return func(s *setting) {
		s.proxy.Keys = keys
		s.proxy.AMQP.Tokens = signToken
		s.broker.Keys = []broker.AuthorizationRule{brokertest.Key()}
	}
}

// signToken signs tokens with the key of the namespace.
func signToken(_ context.Context, audience string) (relay.Token, error) {
	k, expires := brokertest.Key(), time.Now().Add(time.Hour).Truncate(time.Second)
	return relay.Token{Text: sas.Make(k.KeyName, k.PrimaryKey, audience, expires), Type: relay.TokenSAS, Expires: expires}, nil
}

func TestARequestNeedsATokenOfAKeyThatIsGoodForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, withKeys(
			sas.Key{Name: appKey, Value: appValue, Rights: sas.Send},
			sas.Key{Name: "reader", Value: "cmVhZA==", Rights: sas.Listen},
			sas.Key{Name: "other", Value: "b3RoZXI=", Rights: sas.Send, Entity: "bills"},
		))
		soon := time.Now().Add(time.Hour)
		const orders = "https://localhost/orders"
		for name, c := range map[string]struct {
			token  string
			status int
			want   string
		}{
			"a token":               {sas.Make(appKey, appValue, orders, soon), http.StatusCreated, ""},
			"of the namespace":      {sas.Make(appKey, appValue, "https://localhost/", soon), http.StatusCreated, ""},
			"for the whole request": {sas.Make(appKey, appValue, orders+"/messages", soon), http.StatusUnauthorized, "InvalidAudience: The authorization header contains a token with a wrong audience."},
			"none":                  {"", http.StatusUnauthorized, "MissingToken: The authorization header was not found."},
			"no signature":          {"SharedAccessSignature x", http.StatusUnauthorized, "MalformedToken: "},
			"another key":           {sas.Make(appKey, "d3Jvbmc=", orders, soon), http.StatusUnauthorized, "InvalidSignature: The token has an invalid signature."},
			"expired":               {sas.Make(appKey, appValue, orders, time.Now().Add(-time.Second)), http.StatusUnauthorized, "ExpiredToken: The token is expired."},
			"without the right":     {sas.Make("reader", "cmVhZA==", orders, soon), http.StatusUnauthorized, "'Send' claim(s) are required"},
			"of another queue":      {sas.Make("other", "b3RoZXI=", orders, soon), http.StatusUnauthorized, "InvalidSignature"},
			"a JSON Web Token":      {"Bearer eyJ0eXAi.x.y", http.StatusUnauthorized, "InvalidToken: Shared access signatures are taken here"},
		} {
			headers := []string{"BrokerProperties", `{"TimeToLive":3600}`}
			if c.token != "" {
				headers = append(headers, "Authorization", c.token)
			}
			w := sc.post("/orders/messages", "x", headers...)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("%s: %d %s, want %d with %q", name, w.Code, w.Body, c.status, c.want)
			}
			if strings.Contains(w.Body.String(), appValue) {
				t.Errorf("%s: the answer shows the key: %s", name, w.Body)
			}
		}
	})
}

// Every request asks for the rights that the service asks for, and for Manage where it
// is not certain what it is.
func TestWhatARequestNeeds(t *testing.T) {
	const lock = "/messages/1/7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547"
	for name, c := range map[string]struct {
		method, target, body string
		path                 string
		want                 sas.Rights
	}{
		"send":                           {http.MethodPost, "/orders/messages", "x", "orders", sas.Send},
		"send to a path":                 {http.MethodPost, "/eu/orders/messages/", "x", "eu/orders", sas.Send},
		"peek-lock":                      {http.MethodPost, "/orders/messages/head?timeout=5", "", "orders", sas.Listen},
		"receive and delete":             {http.MethodDelete, "/events/subscriptions/s/messages/head", "", "events/Subscriptions/s", sas.Listen},
		"complete":                       {http.MethodDelete, "/orders" + lock, "", "orders", sas.Listen},
		"unlock":                         {http.MethodPut, "/orders" + lock, "", "orders", sas.Listen},
		"renew":                          {http.MethodPost, "/orders" + lock, "", "orders", sas.Listen},
		"a queue of such a name":         {http.MethodPut, "/orders" + lock, "<entry/>", "", 0},
		"make a queue":                   {http.MethodPut, "/orders", "<entry/>", "orders", sas.Manage},
		"make a queue called messages":   {http.MethodPut, "/orders/messages", "<entry/>", "orders/messages", sas.Manage},
		"delete a queue called messages": {http.MethodDelete, "/orders/messages", "", "orders/messages", sas.Manage},
		"delete one below it":            {http.MethodDelete, "/a/messages/b/c", "", "a/messages/b/c", sas.Manage},
		"list queues":                    {http.MethodGet, "/$Resources/Queues", "", "$Resources/Queues", sas.Manage},
		"other letters":                  {http.MethodPost, "/orders/Messages", "x", "orders", sas.Send},
		"nothing":                        {http.MethodGet, "/", "", "", sas.Manage},
	} {
		q, err := called(httptest.NewRequest(c.method, c.target, strings.NewReader(c.body)))
		if refused := err != nil; refused != (c.want == 0) || q.Need.Path != c.path || q.Need.OneOf != c.want {
			t.Errorf("%s: %v at %q, %v; want %v at %q", name, q.Need.OneOf, q.Need.Path, err, c.want, c.path)
		}
	}
}

func TestAnAppAtTheAMQPDoorNeedsAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t, withKeys(sas.Key{Name: appKey, Value: appValue, Rights: sas.Send}))
		sender, err := sc.clientOf(connectionString(appKey, appValue)).NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		ttl := time.Hour
		if err := sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x"), TimeToLive: &ttl}, nil); err != nil {
			t.Errorf("SendMessage with the key = %v, want nil", err)
		}
		sc.wantCompanions(1)
		if sender, err = sc.clientOf(connectionString(appKey, "d3Jvbmc=")).NewSender("orders", nil); err != nil {
			t.Fatal(err)
		}
		wantUnauthorized(t, sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x")}, nil), "InvalidSignature: The token has an invalid signature.")
	})
}

// Keys are replaced while apps send: a new connection with the old key is refused, and open
// connections go on.
func TestKeysChangeWhileTheEndpointsAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t, withKeys(sas.Key{Name: appKey, Value: appValue, Rights: sas.Send}))
		const orders = "https://localhost/orders"
		const next = "bmV4dA=="
		soon := time.Now().Add(time.Hour)
		there, err := sc.clientOf(connectionString(appKey, appValue)).NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		send := func(s *azservicebus.Sender) error {
			return s.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x")}, nil)
		}
		if err := send(there); err != nil {
			t.Fatal(err)
		}
		if err := sc.proxy.SetKeys(sas.Keys{{Name: appKey, Value: next, Rights: sas.Send}}); err != nil {
			t.Fatal(err)
		}
		if err := send(there); err != nil {
			t.Errorf("a send over a link that is there = %v, want nil", err)
		}
		for value, status := range map[string]int{appValue: http.StatusUnauthorized, next: http.StatusCreated} {
			w := sc.post("/orders/messages", "x", "Authorization", sas.Make(appKey, value, orders, soon))
			if w.Code != status {
				t.Errorf("REST with %s: %d, want %d", value, w.Code, status)
			}
		}
		comes, err := sc.clientOf(connectionString(appKey, next)).NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(comes); err != nil {
			t.Errorf("a send with the new key = %v, want nil", err)
		}
		late, err := sc.clientOf(connectionString(appKey, appValue)).NewSender("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantUnauthorized(t, send(late), "InvalidSignature: The token has an invalid signature.")
		if err := sc.proxy.SetKeys(nil); err == nil {
			t.Error("endpoints that ask for keys came to ask for none")
		}
	})
}

// The app's own key goes on to the namespace, which judges it; the companion is written
// as the proxy.
func TestTheTokensOfClientsPassOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := broker.AuthorizationRule{KeyName: "limited", PrimaryKey: "bGltaXRlZA==", Listen: true}
		sc := setupAMQP(t, func(s *setting) {
			s.proxy.ClientTokens = true
			s.broker.Keys = []broker.AuthorizationRule{brokertest.Key(), limited}
		})
		send := func(client *azservicebus.Client) error {
			t.Helper()
			sender, err := client.NewSender("orders", nil)
			if err != nil {
				t.Fatal(err)
			}
			ttl := time.Hour
			return sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x"), TimeToLive: &ttl}, nil)
		}
		if err := send(sc.app); err != nil {
			t.Errorf("SendMessage with a key of the namespace = %v, want nil", err)
		}
		sc.wantCompanions(1)
		wantUnauthorized(t, send(sc.clientOf(connectionString(limited.KeyName, limited.PrimaryKey))), "'Send' claim(s) are required")
		wantUnauthorized(t, send(sc.clientOf(connectionString("nobody", "d3Jvbmc="))), "InvalidSignature: The token has an invalid signature.")
		sc.wantCompanions(1)
	})
}

func TestKeysAndTokensThatPassOnExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		for name, cfg := range map[string]Config{
			"keys":   {ClientTokens: true, Keys: sas.Keys{{Name: appKey, Value: appValue, Rights: sas.All}}},
			"tokens": {ClientTokens: true, AMQP: relay.Config{Tokens: signToken}},
			"proof":  {ClientTokens: true, Upstream: Upstream{Authorize: func(context.Context, string) (string, error) { return "", nil }}},
		} {
			cfg.Links, cfg.Scheduler = sc.links, sc.scheduler
			if _, err := New(cfg); err == nil {
				t.Errorf("New with %s = nil, want an error", name)
			}
		}
	})
}

func connectionString(name, key string) string {
	return "Endpoint=sb://localhost;SharedAccessKeyName=" + name + ";SharedAccessKey=" + key + ";UseDevelopmentEmulator=true"
}

// wantCompanions counts what waits in the monitor queue.
func (sc *scene) wantCompanions(want int) {
	sc.Helper()
	if got := len(sc.companions()); got != want {
		sc.Errorf("%d companions, want %d", got, want)
	}
}

func wantUnauthorized(t *testing.T, err error, text string) {
	t.Helper()
	var refused *azservicebus.Error
	if !errors.As(err, &refused) || refused.Code != azservicebus.CodeUnauthorizedAccess || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want unauthorized access with %q", err, text)
	}
}
