// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
)

var rules = []broker.AuthorizationRule{
	{KeyName: "root", PrimaryKey: "root-key", Manage: true},
	{KeyName: "sender", PrimaryKey: "sender-key", Send: true},
	{KeyName: "both", PrimaryKey: "both-key", Send: true, Listen: true},
}

func withKeys() broker.Config {
	own := []broker.AuthorizationRule{{KeyName: "own", PrimaryKey: "own-key", Manage: true}}
	return broker.Config{
		Keys:   rules,
		Queues: []broker.QueueConfig{{Name: "orders", AuthorizationRules: own}},
		Topics: []broker.TopicSetup{{
			TopicConfig:   broker.TopicConfig{Name: "news", AuthorizationRules: own},
			Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "s"}}},
		}},
	}
}

// as makes an Authorization header.
func as(name, path string) string {
	return sas.Make(name, name+"-key", "http://"+host+path, time.Now().Add(time.Hour))
}

func (sc *scene) ask(method, path, authorization string) (int, string) {
	sc.t.Helper()
	r, err := http.NewRequestWithContext(sc.t.Context(), method, "http://"+host+path, nil)
	if err != nil {
		sc.t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	response := sc.do(r)
	body, _ := io.ReadAll(response.Body) // a string
	return response.StatusCode, string(body)
}

func TestRequestsNeedTheirClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupBroker(t, withKeys())
		for _, x := range []struct {
			method, path, authorization string
			status                      int
			text                        string
		}{
			{"GET", "/health", "", 200, "healthy"},
			{"GET", "/", "", 200, "Overdue"},
			{"GET", "/?api-version=2021-05", "", 200, "<title type=\"text\">Publicly Listed Services</title>"},
			{"GET", "/orders?api-version=2024-05", "", 401, "MissingToken: The authorization header was not found."},
			{"GET", "/orders?api-version=2024-05", "Basic eDp5", 401, "InvalidToken: "},
			{"GET", "/orders?api-version=2024-05", "Bearer eyJh.eyJh.c2ln", 401, "InvalidToken: "},
			{"GET", "/orders?api-version=2024-05", "SharedAccessSignature x", 401, "MalformedToken: "},
			{"GET", "/orders?api-version=2024-05", sas.Make("root", "wrong", "http://"+host, time.Now().Add(time.Hour)), 401, "InvalidSignature: "},
			{"GET", "/orders?api-version=2024-05", sas.Make("root", "root-key", "http://"+host, time.Now().Add(-time.Hour)), 401, "ExpiredToken: "},
			{"GET", "/orders?api-version=2024-05", as("root", "/other"), 401, "InvalidAudience: "},
			{"GET", "/orders?api-version=2024-05", as("root", ""), 200, "QueueDescription"},
			{"GET", "/orders?api-version=2024-05", as("root", "/Orders?api-version=2024-05"), 200, "QueueDescription"},
			{"GET", "/orders?api-version=2024-05", as("own", "/orders"), 200, "QueueDescription"},
			{"GET", "/news/Subscriptions?api-version=2024-05", as("own", "/news"), 200, "SubscriptionDescription"},
			{"GET", "/news/Subscriptions/s/Rules?api-version=2024-05", as("own", "/news/subscriptions/s"), 200, "RuleDescription"},
			{"GET", "/news2/Subscriptions?api-version=2024-05", as("own", ""), 401, "InvalidSignature: "},
			{"GET", "/orders?api-version=2024-05", as("both", ""), 401, "Manage,EntityRead claims required for this operation"},
			{"GET", "/$Resources/Queues?api-version=2024-05", as("both", ""), 401, "Manage,EntityRead claims required for this operation"},
			{"GET", "/$Resources/Queues?api-version=2024-05", as("own", ""), 401, "InvalidSignature: "},
			{"DELETE", "/orders?api-version=2024-05", as("both", ""), 401, "Authorization failed for specified action: Manage,EntityDelete."},
			{"DELETE", "/orders/messages/head?timeout=0", as("sender", ""), 401, "Unauthorized access. 'Listen' claim(s) are required to perform this operation."},
			{"DELETE", "/orders/messages/head?timeout=0", as("both", "/orders"), 204, ""},
			{"POST", "/orders/messages", "", 401, "MissingToken: "},
			{"POST", "/orders/messages", as("sender", "/orders"), 201, ""},
			{"GET", "/_overdue/entities", as("both", ""), 401, "'Manage' claim(s) are required"},
			{"GET", "/_overdue/entities", as("root", ""), 200, "orders"},
		} {
			if status, body := sc.ask(x.method, x.path, x.authorization); status != x.status || !strings.Contains(body, x.text) {
				t.Errorf("%s %s with %.60q = %d %s, want %d and %q", x.method, x.path, x.authorization, status, body, x.status, x.text)
			}
		}
	})
}

// A client that manages one queue must not have its messages sent where it could not send.
func TestForwardsNeedATokenForTheirDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bc := withKeys()
		bc.Queues = append(bc.Queues, broker.QueueConfig{Name: "to"})
		sc := setupBroker(t, bc)
		const body = `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">` +
			`<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><ForwardTo>sb://localhost/to</ForwardTo></QueueDescription></content></entry>`
		for _, x := range []struct {
			authorization, supplementary string
			want                         int
		}{
			{as("own", "/orders"), "", 401},
			{as("own", "/orders"), as("own", "/to"), 401},
			{as("own", "/orders"), as("root", "/orders"), 401},
			{as("own", "/orders"), as("sender", "/to"), 200},
			{as("own", "/orders"), as("root", "/to"), 200},
			{as("root", ""), "", 200},
			{as("sender", ""), as("root", "/to"), 401},
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+host+"/orders?api-version=2024-05", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", x.authorization)
			r.Header.Set("If-Match", "*")
			if x.supplementary != "" {
				r.Header.Set("ServiceBusSupplementaryAuthorization", x.supplementary)
			}
			response := sc.do(r)
			text, _ := io.ReadAll(response.Body) // a string
			if response.StatusCode != x.want {
				t.Errorf("PUT with %.50q and %.50q = %d %.300s, want %d", x.authorization, x.supplementary, response.StatusCode, text, x.want)
			}
			// As it was, with the rule that the update has not named.
			if _, err := sc.broker.Default().UpdateQueue(bc.Queues[0]); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Requests that a page makes a browser send carry no token. So a broker with keys needs no other
// check.
func TestABrokerWithKeysServesPagesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupBroker(t, withKeys())
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://example.com")
		if got := sc.do(r).StatusCode; got != http.StatusOK {
			t.Errorf("status = %d, want 200", got)
		}
	})
}

func TestTheAdministrationClientComesOverTLS(t *testing.T) {
	certificate := selfMade(t)
	sc := setupTCP(t, withKeys(), func(c *Config) { c.TLS = certificate.TLS })
	client := func(name string) *admin.Client {
		c, err := admin.NewClientFromConnectionString("Endpoint=sb://localhost;SharedAccessKeyName="+name+";SharedAccessKey="+name+"-key",
			&admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: sc.http(trust(t, certificate)), Retry: policy.RetryOptions{MaxRetries: -1}}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if _, err := client("root").CreateQueue(t.Context(), "made", nil); err != nil {
		t.Errorf("CreateQueue = %v, want nil", err)
	}
	if q, err := client("root").GetQueue(t.Context(), "made", nil); err != nil || q == nil {
		t.Errorf("GetQueue = %v, %v, want a queue", q, err)
	}
	if q, err := client("both").GetQueue(t.Context(), "none", nil); err != nil || q != nil {
		t.Errorf("GetQueue of none without Manage = %v, %v, want neither a queue nor an error", q, err)
	}
	for what, ask := range map[string]func() error{
		"Manage,EntityRead claims required for this operation": func() error {
			_, err := client("both").GetQueue(t.Context(), "made", nil)
			return err
		},
		"Authorization failed for specified action: Manage,EntityWrite": func() error {
			_, err := client("both").CreateQueue(t.Context(), "never", nil)
			return err
		},
		"401 SubCode=40100: Unauthorized : Unauthorized access for 'GetSubscription'": func() error {
			_, err := client("both").GetSubscription(t.Context(), "topic", "sub", nil)
			return err
		},
	} {
		var refused *azcore.ResponseError
		if err := ask(); !errors.As(err, &refused) || refused.StatusCode != http.StatusUnauthorized || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want 401 and %q", err, what)
		}
	}
}

func TestRequestsNameANamespaceOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupBroker(t, broker.Config{Isolate: true, AutoCreate: true})
		for _, x := range []struct{ host, key, want string }{
			{"localhost:5672", "", ""},
			{"one.localhost:5672", "", "one"},
			{"one.localhost", "RootManageSharedAccessKey", "one"},
			{"one.localhost", "Two", "two"},
			{"127.0.0.1:5672", "two", "two"},
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host+"/orders/messages", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = x.host
			if x.key != "" {
				r.Header.Set("Authorization", as(x.key, ""))
			}
			before := active(sc.broker.Namespace(x.want))
			if got := sc.do(r).StatusCode; got != http.StatusCreated {
				t.Fatalf("POST = %d, want 201", got)
			}
			if got := active(sc.broker.Namespace(x.want)); got != before+1 {
				t.Errorf("to %s with the key %q: %d messages in namespace %q, want %d", x.host, x.key, got, x.want, before+1)
			}
		}
	})
}

func active(n *broker.Namespace) int {
	q, err := n.QueueInfo("orders")
	if err != nil {
		return 0 // not made yet
	}
	return int(q.Counts.Active)
}
