// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"overdue/internal/amqp/relay"
	"overdue/internal/broker"
	"overdue/internal/servicebus/rest"
	"overdue/internal/testing/pipenet"
)

func TestAMessageArrivesAsItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		body := "\x00\xff binary"
		sc.want(sc.post("/orders/messages?timeout=60&api-version=2017-04", body,
			"BrokerProperties", `{"CorrelationId":"c","ForcePersistence":true,"Label":"l","MessageId":"m","PartitionKey":"s","ReplyTo":"r",
				"ReplyToSessionId":"rs","SessionId":"s","TimeToLive":90,"To":"t","ViaPartitionKey":"v"}`,
			"Content-Type", "application/json;type=entry;charset=utf-8", "Priority", "High", "Count", "42", "overdue-within", "1h",
			"Authorization", "SharedAccessSignature secret", "User-Agent", "test"), http.StatusCreated, "")
		receiver, err := sc.ns.Client(t).NewReceiverForQueue("orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := receiver.ReceiveMessages(t.Context(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := &azservicebus.ReceivedMessage{
			ApplicationProperties: map[string]any{"Priority": "High", "Count": int32(42), "overdue-within": "1h"},
			Body:                  []byte(body), ContentType: to.Ptr("application/json;type=entry;charset=utf-8"), CorrelationID: to.Ptr("c"),
			DeliveryCount: 1, MessageID: "m", PartitionKey: to.Ptr("s"), ReplyTo: to.Ptr("r"), ReplyToSessionID: to.Ptr("rs"),
			SessionID: to.Ptr("s"), Subject: to.Ptr("l"), TimeToLive: to.Ptr(90 * time.Second), To: to.Ptr("t"), SequenceNumber: to.Ptr(int64(1)),
		}
		if diff := cmp.Diff(want, got[0], cmpopts.IgnoreUnexported(azservicebus.ReceivedMessage{}),
			cmpopts.IgnoreFields(azservicebus.ReceivedMessage{}, "RawAMQPMessage", "EnqueuedTime", "ExpiresAt", "LockedUntil", "LockToken")); diff != "" {
			t.Errorf("message (-want +got):\n%s", diff)
		}
		if via := got[0].RawAMQPMessage.MessageAnnotations[annotationViaPartitionKey]; via != "v" {
			t.Errorf("via partition key %v, want v", via)
		}
		if err := receiver.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRequestsThatAreNoSendAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		do := func(method, path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			sc.proxy.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			return w
		}
		if w := do(http.MethodGet, "/"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Overdue") {
			t.Errorf("GET / = %d %s, want 200 and what this is", w.Code, w.Body)
		}
		for _, r := range []struct{ method, path string }{
			{http.MethodPost, "/orders/messages/head"}, {http.MethodDelete, "/orders/messages/head"}, {http.MethodGet, "/orders/messages"},
			{http.MethodPut, "/orders/messages/1/token"}, {http.MethodDelete, "/orders/messages/1/token"}, {http.MethodPost, "/topic/subscriptions/s/messages/head"},
			{http.MethodGet, "/$Resources/Queues"}, {http.MethodPut, "/orders"},
		} {
			sc.want(do(r.method, r.path), http.StatusBadGateway, "could not be reached") // it is passed on
		}
		for _, r := range []struct{ method, path string }{
			{http.MethodPost, "/"}, {http.MethodPost, "/messages"}, {http.MethodPost, "/orders"}, {http.MethodOptions, "/orders/messages"}, {http.MethodDelete, "/$Resources/Queues"},
		} {
			sc.want(do(r.method, r.path), http.StatusBadRequest, "The specified HTTP verb ("+r.method+") is not valid.")
		}
	})
}

func TestBadRequestsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		long := strings.Repeat("x", 129)
		for _, tt := range []struct {
			path, body string
			headers    []string
			want       string
		}{
			{"/" + strings.Repeat("q", 261) + "/messages", "a", nil, "more than 260 characters"},
			{"/a//b/messages", "a", nil, "an empty segment"},
			{"/a/../b/messages", "a", nil, "a segment without a name"},
			{"/$cbs/messages", "a", nil, "not possible to send"},
			{"/orders/$management/messages", "a", nil, "not possible to send"},
			{"/orders/%24DeadLetterQueue/messages", "a", nil, "not possible to send"},
			{"/orders/Subscriptions/s/messages", "a", nil, "not possible to send"},
			{"/or%00ders/messages", "a", nil, "escape"},
			{"/or%FFders/messages", "a", nil, "escape"},
			{"/orders%2Fmessages", "a", nil, "two ways"},
			{"/orders/messages%2Fhead", "a", nil, "two ways"},
			{"/orders/messages", "a", []string{"BrokerProperties", "{"}, "BrokerProperties"},
			{"/orders/messages", "a", []string{"BrokerProperties", `{"MessageId":"` + long + `"}`}, "MessageId"},
			{"/orders/messages", "a", []string{"BrokerProperties", `{"SessionId":"a","PartitionKey":"b"}`}, "differ"},
			{"/orders/messages", "a", []string{"overdue-within", "soon"}, "overdue-within"},
			{"/orders/messages", "a", []string{"overdue-within", "30"}, "overdue-within"},
			{"/orders/messages", "a", []string{"overdue-deadline", "1999-01-01T00:00:00Z"}, "has passed"},
			{"/orders/messages", "a", []string{"ce-expirytime", "never"}, "ce-expirytime"},
			{"/orders/messages", "[{]", []string{"Content-Type", rest.BatchContentType}, "Message 1"},
			{"/orders/messages", `[{},{"UserProperties":{"overdue-within":"x"}}]`, []string{"Content-Type", rest.BatchContentType}, "Message 2 of 2: overdue-within"},
		} {
			sc.want(sc.post(tt.path, tt.body, tt.headers...), http.StatusBadRequest, tt.want)
		}
		if held := sc.messages("orders"); len(held) != 0 {
			t.Errorf("orders holds %d messages, want none", len(held))
		}
	})
}

func TestSendsThatCannotBeReadAreCountedAsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.MaxBodySize = 1000 })
		sc.warm() // the name of an entity that has taken nothing is no label
		batch := []string{"Content-Type", rest.BatchContentType}
		for i, post := range []func() *httptest.ResponseRecorder{
			func() *httptest.ResponseRecorder { return sc.post("/orders/messages", "a", "BrokerProperties", "{") },
			func() *httptest.ResponseRecorder { return sc.post("/orders/messages", "[{]", batch...) },
			func() *httptest.ResponseRecorder {
				return sc.post("/orders/messages", "[{}]", append(batch, propWithin, "30s")...)
			},
			func() *httptest.ResponseRecorder { return sc.post("/orders/messages", strings.Repeat("x", 1001)) },
		} {
			if w := post(); w.Code != http.StatusBadRequest && w.Code != http.StatusForbidden {
				t.Errorf("request %d = %d %s, want it refused", i, w.Code, w.Body)
			}
			if n := sc.sends("orders", resultRefused); n != float64(i+1) {
				t.Errorf("%v sends are counted as refused after %d, want all", n, i+1)
			}
		}
	})
}

func TestWhatTheBrokerRefusesHasItsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) {
			s.broker.Queues = append(s.broker.Queues, broker.QueueConfig{Name: "small", MaxSize: 2000})
			s.proxy.MaxBodySize = 1 << 20
			s.proxy.Settings = func(entity string) Settings {
				return Settings{Monitored: true, StampTTL: true, MaxMessageSize: map[string]int64{"small": 1000}[entity]}
			}
		})
		sc.want(sc.post("/missing/messages", "a", "overdue-within", "30s"), http.StatusGone, "'missing' could not be found")
		sc.want(sc.post("/missing/messages", `[{"Body":"a"}]`, "Content-Type", rest.BatchContentType), http.StatusGone, "'missing'")
		sc.want(sc.post("/orders/messages", strings.Repeat("x", 300<<10)), http.StatusForbidden, "larger") // the broker's limit
		sc.want(sc.post("/orders/messages", strings.Repeat("x", 2<<20)), http.StatusForbidden, "larger")   // the endpoint's
		sc.want(sc.post("/small/messages", strings.Repeat("x", 1001)), http.StatusForbidden, "larger")     // the entity's
		for i := range 10 {
			if w := sc.post("/small/messages", strings.Repeat("x", 900)); w.Code != http.StatusCreated {
				sc.want(w, http.StatusForbidden, "quota")
				break
			} else if i == 9 {
				t.Error("the queue takes more than its size")
			}
		}
		sc.want(sc.post("/orders/messages", "still fine"), http.StatusCreated, "")
	})
}

// chunked is a body whose length is not known.
type chunked struct{ io.Reader }

func TestABodyOfUnknownLengthIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.MaxBodySize = 1000 })
		for size, status := range map[int]int{1000: http.StatusCreated, 1001: http.StatusForbidden} {
			w := httptest.NewRecorder()
			sc.proxy.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/messages", chunked{strings.NewReader(strings.Repeat("x", size))}))
			if w.Code != status {
				t.Errorf("a body of %d = %d %s, want %d", size, w.Code, w.Body, status)
			}
		}
	})
}

func TestEntityNamesMayContainSlashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.queues = []string{monitorQueue, "team/a/orders"} })
		sc.want(sc.post("/team/a/orders/messages", "a"), http.StatusCreated, "")
		sc.want(sc.post("/Team/A/Orders/messages/", "b"), http.StatusCreated, "")
		if held := sc.messages("team/a/orders"); len(held) != 2 {
			t.Errorf("the queue holds %d messages, want 2", len(held))
		}
	})
}

func TestABodyThatDoesNotComeIsGivenUp(t *testing.T) {
	for _, tt := range []struct {
		name, head string
		status     int
	}{
		{"of known length", "POST /orders/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc", http.StatusRequestTimeout},
		{"of unknown length", "POST /orders/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", http.StatusRequestTimeout},
		{"too long", "POST /orders/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\nabc", http.StatusForbidden},
		{"that is passed on", "PUT /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc", http.StatusRequestTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setup(t, func(s *setting) { s.proxy.SendTimeout = 5 * time.Second })
				conn := sc.serve()
				start := time.Now()
				if _, err := io.WriteString(conn, tt.head); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != tt.status {
					t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
				}
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("the answer took %v, want at most 5 s", took)
				}
				if n := sc.proxy.bodies.Used(); n != 0 {
					t.Errorf("%d bytes of the budget for bodies are taken, want none", n)
				}
			})
		})
	}
}

func TestABodyThatEndsEarlyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		r := httptest.NewRequest(http.MethodPost, "/orders/messages", strings.NewReader("abc"))
		r.ContentLength = 10
		w := httptest.NewRecorder()
		sc.proxy.ServeHTTP(w, r)
		sc.want(w, http.StatusBadRequest, "ended early")
	})
}

// The deadline for the body must not reach the wait for the broker, nor the next request
// on the connection. Without a body net/http looks out for the end of the connection from
// the start, and would take the deadline for it.
func TestTheDeadlineOfTheBodyEndsWithTheBody(t *testing.T) {
	for name, request := range map[string]string{
		"no body": "POST /orders/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
		"a body":  "POST /orders/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setup(t, func(s *setting) { s.proxy.SendTimeout, s.proxy.MaxInFlight = 5*time.Second, 1 })
				sc.warm()
				conn := sc.serve()
				in := bufio.NewReader(conn)
				// One send has the only place for 4 s, the next one waits for 2 s of them and takes 4 s itself.
				sc.ns.Net.Delay(pipenet.Both, 2*time.Second)
				first := make(chan *httptest.ResponseRecorder, 1)
				go func() { first <- sc.post("/orders/messages", "first") }()
				for range 3 {
					if _, err := io.WriteString(conn, request); err != nil {
						t.Fatal(err)
					}
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					if err != nil {
						t.Fatal(err)
					}
					if resp.StatusCode != http.StatusCreated || resp.Close {
						t.Errorf("status %d %s, connection closed %v, want 201 and a connection that stays", resp.StatusCode, body, resp.Close)
					}
					if first == nil {
						continue
					}
					sc.want(<-first, http.StatusCreated, "")
					first = nil
				}
				sc.ns.Net.Delay(pipenet.Both, 0)
			})
		})
	}
}

func TestLargeUploadsWaitForTheirShareOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.SendTimeout = 5 * time.Second })
		_, done, err := sc.proxy.bodies.Read(t.Context(), strings.NewReader(strings.Repeat("x", bodyBudget)), -1, bodyBudget, nil)
		if err != nil {
			t.Fatal(err)
		}
		sc.want(sc.post("/orders/messages", "hello"), http.StatusServiceUnavailable, "in flight")
		done()
		sc.want(sc.post("/orders/messages", "hello"), http.StatusCreated, "")
	})
}

func TestNewChecksItsConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		for name, change := range map[string]func(*Config){
			"no links":     func(c *Config) { c.Links = nil },
			"no scheduler": func(c *Config) { c.Scheduler = nil },
			"no AMQP":      func(c *Config) { c.AMQP.Dial = nil },
			"no HTTP":      func(c *Config) { c.Upstream.Dial = nil },
			"negative":     func(c *Config) { c.MaxInFlight = -1 },
			"twice":        func(c *Config) { c.Registerer = sc.registry },
		} {
			c := Config{Links: sc.links, Scheduler: sc.scheduler, AMQP: relay.Config{Dial: sc.ns.Dial}, Upstream: Upstream{Dial: sc.ns.Dial}}
			change(&c)
			if _, err := New(c); err == nil {
				t.Errorf("%s: New = nil, want an error", name)
			}
		}
	})
}
