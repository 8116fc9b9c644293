// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
)

func TestTokensOfTheAdministrationAPIAreForWhatTheRequestNames(t *testing.T) {
	b, err := broker.New(broker.Config{
		Keys: []broker.AuthorizationRule{
			{KeyName: "root", PrimaryKey: "k", Manage: true},
			{KeyName: "listener", PrimaryKey: "k", Listen: true},
		},
		Topics: []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "t"},
			Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "s"}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	server := New(Config{Broker: b})
	t.Cleanup(func() { _ = server.Close() })
	for _, c := range []struct {
		name, key, resource, path string
		status                    int
		want                      string
	}{
		{"the namespace", "root", "https://host/", "/t", http.StatusOK, ""},
		{"the request itself", "root", "https://host/t?api-version=2024-05", "/t", http.StatusOK, ""},
		{"a list of the namespace", "root", "https://host/$Resources/Queues", "/$Resources/Queues", http.StatusOK, ""},
		{"a list of a topic", "root", "https://host/t/Subscriptions", "/t/Subscriptions", http.StatusOK, ""},
		{"a rule", "root", "https://host/t/Subscriptions/s/Rules/$Default", "/t/Subscriptions/s/Rules/$Default", http.StatusOK, ""},
		{"a list, without the claim", "listener", "https://host/$Resources/Queues", "/$Resources/Queues", http.StatusUnauthorized, "Manage,EntityRead claims required"},
		{"another topic", "root", "https://host/u", "/t", http.StatusUnauthorized, "InvalidAudience"},
		{"something below", "root", "https://host/t/Subscriptions/s", "/t", http.StatusUnauthorized, "InvalidAudience"},
		{"a list, for the other list", "root", "https://host/$Resources/Queues", "/$Resources/Topics", http.StatusUnauthorized, "InvalidAudience"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, c.path+"?api-version=2021-05", nil)
			r.Header.Set("Authorization", sas.Make(c.key, "k", c.resource, time.Now().Add(time.Hour)))
			w := httptest.NewRecorder()
			server.newMux().ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("GET %s with a token for %s = %d %s, want %d and %q", c.path, c.resource, w.Code, w.Body, c.status, c.want)
			}
		})
	}
}
