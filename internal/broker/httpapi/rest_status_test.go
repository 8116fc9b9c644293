// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/broker"
	"overdue/internal/servicebus/rights"
)

const (
	noToken = "00000000-0000-4000-8000-000000000000"
	batchOf = "application/vnd.microsoft.servicebus.json"
)

// Every status of the API, and what leads to it.
func TestEveryAnswerHasItsStatus(t *testing.T) {
	large := strings.Repeat("x", 2<<10)
	for _, tt := range []struct {
		name         string
		method, path string
		body         string
		headers      []string
		status       int
		say          string
	}{
		{"send", "POST", "/q/messages", "a", nil, 201, ""},
		{"send, spelled otherwise", "POST", "/Q/Messages/?timeout=60&api-version=2015-01", "a", nil, 201, ""},
		{"send nothing", "POST", "/q/messages", "", nil, 201, ""},
		{"send to a topic", "POST", "/t/messages", "a", nil, 201, ""},
		{"send with a session-id", "POST", "/sessions/messages", "a", []string{"BrokerProperties", `{"SessionId":"s"}`}, 201, ""},
		{"send where receives are disabled", "POST", "/sends/messages", "a", nil, 201, ""},
		{"batch", "POST", "/q/messages", `[{"Body":"a"},{"Body":"b"}]`, []string{"Content-Type", batchOf}, 201, ""},
		{"nothing to receive", "DELETE", "/q/messages/head?timeout=0", "", nil, 204, ""},
		{"nothing to lock", "POST", "/q/messages/head?timeout=1", "", nil, 204, ""},
		{"nothing dead-lettered", "POST", "/q/$DeadLetterQueue/messages/head?timeout=1", "", nil, 204, ""},
		{"nothing that could not be forwarded", "POST", "/q/$Transfer/$DeadLetterQueue/messages/head?timeout=0", "", nil, 204, ""},
		{"dead letters of sessions", "DELETE", "/sessions/$deadletterqueue/messages/head?timeout=1", "", nil, 204, ""},
		{"dead letters of a subscription", "DELETE", "/t/subscriptions/s/$deadletterqueue/messages/head?timeout=1", "", nil, 204, ""},

		{"broker properties", "POST", "/q/messages", "a", []string{"BrokerProperties", "{"}, 400, "BrokerProperties"},
		{"batch that is none", "POST", "/q/messages", "{}", []string{"Content-Type", batchOf}, 400, "array"},
		{"batch with a bad message", "POST", "/q/messages", `[{},{"Body":1}]`, []string{"Content-Type", batchOf}, 400, "Message 2"},
		{"long message-id", "POST", "/q/messages", "a", []string{"BrokerProperties", `{"MessageId":"` + strings.Repeat("x", 129) + `"}`}, 400, "MessageId"},
		{"no session-id", "POST", "/sessions/messages", "a", nil, 400, "ession"},
		{"send to a subscription", "POST", "/t/subscriptions/s/messages", "a", nil, 400, "subscription"},
		{"send to a dead-letter queue", "POST", "/q/$DeadLetterQueue/messages", "a", nil, 400, "not possible"},
		{"send to $management", "POST", "/q/$management/messages", "a", nil, 400, "not possible"},
		{"timeout that is no number", "POST", "/q/messages/head?timeout=soon", "", nil, 400, "timeout"},
		{"timeout below nothing", "DELETE", "/q/messages/head?timeout=-1", "", nil, 400, "timeout"},
		{"timeout beyond all", "DELETE", "/q/messages/head?timeout=2147484", "", nil, 400, "timeout"},
		{"receive from a topic", "POST", "/t/messages/head", "", nil, 400, "topic"},
		{"receive from $cbs", "POST", "/$cbs/messages/head", "", nil, 400, "not possible"},
		{"receive what is forwarded", "POST", "/forwards/messages/head", "", nil, 400, "auto-forwarding"},
		{"receive from sessions", "POST", "/sessions/messages/head", "", nil, 400, "sessions"},
		{"renew by no token", "POST", "/q/messages/1/token", "", nil, 400, "UUID"},
		{"a body where none belongs", "POST", "/q/messages/head", strings.Repeat("x", 65<<10), nil, 403, "body"},

		{"body too large", "POST", "/small/messages", large, nil, 403, "too large"},
		{"properties too large", "POST", "/small/messages", "a", []string{"Large", large}, 403, "too large"},
		{"batch too large", "POST", "/small/messages", `[{"Body":"` + strings.Repeat("x", 700) + `"},{"BrokerProperties":{"Label":"` + strings.Repeat("x", 250) + `"}}]`,
			[]string{"Content-Type", batchOf}, 403, "too large"},
		{"batch of too many", "POST", "/q/messages", "[" + strings.Repeat("{},", 4500) + "{}]", []string{"Content-Type", batchOf}, 403, "4500"},
		{"full", "POST", "/full/messages", strings.Repeat("x", 1000), nil, 403, "maximum entity size"},
		{"send where disabled", "POST", "/disabled/messages", "a", nil, 403, "disabled"},
		{"receive where disabled", "POST", "/disabled/messages/head?timeout=0", "", nil, 403, "disabled"},
		{"receive where receives are disabled", "DELETE", "/sends/messages/head?timeout=0", "", nil, 403, "disabled"},

		{"complete what is not locked", "DELETE", "/q/messages/1/" + noToken, "", nil, 404, "The lock supplied is invalid"},
		{"unlock what is not locked", "PUT", "/q/messages/some%2Fid/" + noToken, "", nil, 404, "The lock supplied is invalid"},
		{"renew what is not locked", "POST", "/q/messages/1/" + strings.ReplaceAll(noToken, "-", ""), "", nil, 404, "The lock supplied is invalid"},
		{"no such operation", "GET", "/q/messages/head", "", nil, 404, "no such operation"},
		{"no entity named", "POST", "/messages", "a", nil, 404, "no such operation"},
		{"settle by no token", "DELETE", "/q/messages/1/token", "", nil, 404, "no such operation"},

		{"send to nowhere", "POST", "/missing/messages", "a", nil, 410, "/missing' could not be found"},
		{"lock nowhere", "POST", "/missing/messages/head", "", nil, 410, "/missing' could not be found"},
		{"receive nowhere", "DELETE", "/t/subscriptions/missing/messages/head", "", nil, 410, "could not be found"},
		{"complete nowhere", "DELETE", "/missing/messages/1/" + noToken, "", nil, 410, "/missing' could not be found"},
		{"unlock nowhere", "PUT", "/missing/messages/1/" + noToken, "", nil, 410, "/missing' could not be found"},
		{"renew nowhere", "POST", "/missing/messages/1/" + noToken, "", nil, 410, "/missing' could not be found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := restSetup(t, restOptions{}, func(c *broker.Config) {
					c.Queues = append(c.Queues, broker.QueueConfig{Name: "sessions", RequiresSession: true},
						broker.QueueConfig{Name: "small", MaxMessageSize: 1 << 10}, broker.QueueConfig{Name: "full", MaxSize: 1000},
						broker.QueueConfig{Name: "disabled", Status: broker.Disabled}, broker.QueueConfig{Name: "sends", Status: broker.ReceiveDisabled},
						broker.QueueConfig{Name: "forwards", ForwardTo: "q"})
					c.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "t"},
						Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "s"}}}}}
				})
				a := sc.do(tt.method, tt.path, tt.body, tt.headers...)
				sc.want(tt.method+" "+tt.path, a, tt.status, tt.say)
				if tt.status >= 400 {
					sc.wantErrorBody(a)
				}
			})
		})
	}
}

// wantErrorBody checks the form of the body of an error.
func (sc *restScene) wantErrorBody(a answered) {
	sc.Helper()
	var body struct {
		XMLName xml.Name `xml:"Error"`
		Code    int
		Detail  string
	}
	if err := xml.Unmarshal([]byte(a.body), &body); err != nil || body.Code != a.status || !strings.Contains(body.Detail, "TrackingId:") {
		sc.Errorf("the body is %q, %v; want the status, a detail and a tracking id in XML", a.body, err)
	}
	if kind := a.header.Get("Content-Type"); kind != "application/xml; charset=utf-8" {
		sc.Errorf("the Content-Type of an error is %q", kind)
	}
}

func TestEveryRequestIsAuthorised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		allow := false
		sc := restSetup(t, restOptions{Authorize: func(r *http.Request, n rights.Need) error {
			asked = append(asked, fmt.Sprintf("%v %s %s", n.OneOf, n.Path, r.Header.Get("Authorization")))
			if !allow {
				return errors.New("Claims are missing")
			}
			return nil
		}})
		requests := []struct{ method, path, want string }{
			{"POST", "/q/messages", "Send q x"},
			{"POST", "/missing/messages", "Send missing x"}, // which only an authorized client may learn
			{"POST", "/q/messages/head?timeout=0", "Listen q x"},
			{"DELETE", "/t/subscriptions/s/$DeadLetterQueue/messages/head?timeout=0", "Listen t/Subscriptions/s/$DeadLetterQueue x"},
			{"PUT", "/q/messages/1/" + noToken, "Listen q x"},
			{"DELETE", "/q/messages/1/" + noToken, "Listen q x"},
			{"POST", "/q/messages/1/no-token", "Listen q x"},
		}
		for _, r := range requests {
			asked = nil
			a := sc.do(r.method, r.path, "", "Authorization", "x")
			sc.want(r.method+" "+r.path, a, http.StatusUnauthorized, "Claims are missing")
			sc.wantErrorBody(a)
			if len(asked) != 1 || asked[0] != r.want {
				t.Errorf("%s %s asked for %q, want %q", r.method, r.path, asked, r.want)
			}
		}
		allow = true
		for _, r := range requests {
			if a := sc.do(r.method, r.path, "", "Authorization", "x"); a.status == http.StatusUnauthorized {
				t.Errorf("%s %s = 401 for somebody who is allowed to", r.method, r.path)
			}
		}
	})
}

func TestASlowBodyIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		conn, err := sc.ns.Net.Dial(t.Context(), restHost)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			_, _ = io.WriteString(conn, "POST /q/messages HTTP/1.1\r\nHost: "+restHost+"\r\nContent-Length: 5\r\n\r\nhe") // the answer shows it
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("status %d, want 408", resp.StatusCode)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsHeldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{MaxReceives: 2, MaxBodies: 1000})
		ended := make(chan answered, 2)
		for range 2 {
			go func() {
				a, err := sc.try(t.Context(), "POST", "/q/messages/head?timeout=30", "")
				if err != nil {
					t.Error(err)
				}
				ended <- a
			}()
		}
		synctest.Wait()
		a := sc.do("POST", "/q/messages/head?timeout=30", "")
		sc.want("one receive too many", a, http.StatusServiceUnavailable, "busy")
		if got := a.header.Get("Retry-After"); got != "10" {
			t.Errorf("Retry-After: %q, want 10", got)
		}
		for range 2 {
			sc.want("receive", <-ended, http.StatusNoContent, "")
		}
		sc.want("receive when there is room again", sc.do("POST", "/q/messages/head?timeout=1", ""), http.StatusNoContent, "")

		sc.post("/q/messages", strings.Repeat("x", 2000)) // more than the bound, but alone
		conn, err := sc.ns.Net.Dial(t.Context(), restHost)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST /q/messages HTTP/1.1\r\nHost: "+restHost+"\r\nContent-Length: 600\r\n\r\nx"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		start := time.Now()
		sc.post("/q/messages", strings.Repeat("x", 900)) // has room when the other has yielded
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("a send behind a body that does not come took %v, want 5 s at most", took)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("the body that did not come: status %d, want 408", resp.StatusCode)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		for range 3 { // what is taken is given back
			sc.post("/q/messages", strings.Repeat("x", 1000))
		}
	})
}

func TestQueuesAreMadeByUseOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{}, func(c *broker.Config) { c.AutoCreate = true })
		sc.want("settle", sc.do("DELETE", "/settled/messages/1/"+noToken, ""), http.StatusNotFound, "lock")
		sc.want("receive", sc.do("POST", "/received/messages/head?timeout=0", ""), http.StatusNoContent, "")
		sc.post("/sent/messages", "a")
		var names []string
		for _, q := range sc.ns.Broker.Default().Queues() {
			names = append(names, q.Config.Name)
		}
		if got, want := fmt.Sprint(names), "[q received sent]"; got != want {
			t.Errorf("queues %s, want %s", got, want)
		}
	})
}

// The service names a message by its id or its number; the token alone counts.
func TestLockedMessagesAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := restSetup(t, restOptions{})
		sc.post("/q/messages", "a", "BrokerProperties", `{"MessageId":"m/1"}`)
		lock := func(count string) (location string) {
			t.Helper()
			a := sc.do("POST", "/q/messages/head?timeout=0", "")
			sc.want("peek-lock", a, http.StatusCreated, "a")
			if got := a.header.Get("BrokerProperties"); !strings.Contains(got, `"DeliveryCount":`+count) {
				t.Errorf("BrokerProperties: %s, want delivery count %s", got, count)
			}
			return a.header.Get("Location")
		}
		first := lock("1")
		if want := "http://" + restHost + "/q/messages/1/"; !strings.HasPrefix(first, want) {
			t.Errorf("Location: %s, want it to begin with %s", first, want)
		}
		time.Sleep(50 * time.Second)
		sc.want("renew", sc.do("POST", first, ""), http.StatusOK, "")
		time.Sleep(50 * time.Second) // past the lock as it was
		sc.want("unlock", sc.do("PUT", first, ""), http.StatusOK, "")
		sc.want("unlock once more", sc.do("PUT", first, ""), http.StatusNotFound, "lock")

		second := lock("2")
		time.Sleep(61 * time.Second)
		sc.want("complete when the lock has lapsed", sc.do("DELETE", second, ""), http.StatusNotFound, "lock")

		third := lock("3")
		byID := strings.Replace(third, "/messages/1/", "/messages/m%2F1/", 1)
		sc.want("complete", sc.do("DELETE", byID, ""), http.StatusOK, "")
		sc.want("receive", sc.do("DELETE", "/q/messages/head?timeout=0", ""), http.StatusNoContent, "")
	})
}
