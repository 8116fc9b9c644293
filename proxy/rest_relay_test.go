// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"overdue/internal/broker"
	"overdue/internal/servicebus/sas"
)

// A client settles a message that it has locked where the answer says, which is at this endpoint.
func TestAMessageIsLockedRenewedUnlockedAndCompletedThroughTheRESTDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t)
		c := sc.browser()
		sc.wantAnswer("send", sc.ask(c, "POST", "/orders/messages", "hello", "orderId", "7", "ORDERNO", `"x"`, "BrokerProperties", `{"MessageId":"m1"}`), http.StatusCreated, "")
		lock := func() string {
			a := sc.ask(c, "POST", "/orders/messages/head?timeout=5", "")
			sc.wantAnswer("peek-lock", a, http.StatusCreated, "hello")
			location := a.header.Get("Location")
			if !strings.HasPrefix(location, "http://"+endpointName+"/orders/messages/") {
				t.Fatalf("Location %q, want one at the endpoint", location)
			}
			return location
		}
		at := lock()
		sc.wantAnswer("renew", sc.ask(c, "POST", at, ""), http.StatusOK, "")
		sc.wantAnswer("unlock", sc.ask(c, "PUT", at, ""), http.StatusOK, "")
		sc.wantAnswer("complete with a lock that is given back", sc.ask(c, "DELETE", at, ""), http.StatusNotFound, "<Error><Code>404</Code>")
		sc.wantAnswer("read what has no name", sc.ask(c, "GET", "/orders%3F", ""), http.StatusNotFound, "<Error><Code>404</Code>")
		sc.wantAnswer("complete", sc.ask(c, "DELETE", lock(), ""), http.StatusOK, "")
		sc.wantAnswer("receive from an empty queue", sc.ask(c, "DELETE", "/orders/messages/head?timeout=1", ""), http.StatusNoContent, "")
	})
}

// The names of custom properties come out of the endpoint as they were sent, whatever net/http
// makes of them.
func TestNamesOfPropertiesPassTheRESTDoorAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t)
		sender := sc.sender("orders")
		sc.must(sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("hi"), ApplicationProperties: map[string]any{"orderId": int32(7), "ORDERNO": "x"}}, nil))
		nc, err := sc.dial(t.Context())
		sc.must(err)
		defer nc.Close()
		_, err = io.WriteString(nc, "DELETE /orders/messages/head?timeout=5 HTTP/1.1\r\nHost: endpoint\r\nConnection: close\r\n\r\n")
		sc.must(err)
		answer, err := io.ReadAll(nc)
		sc.must(err)
		for _, want := range []string{"HTTP/1.1 200 OK\r\n", "\r\norderId: 7\r\n", "\r\nORDERNO: \"x\"\r\n", "\r\nBrokerProperties: {", "\r\n\r\nhi"} {
			if !strings.Contains(string(answer), want) {
				t.Errorf("the answer lacks %q:\n%s", want, answer)
			}
		}
	})
}

func TestSubscriptionsAndDeadLettersAreReceivedThroughTheRESTDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t, func(s *setting) {
			s.broker.Topics = []broker.TopicSetup{{TopicConfig: broker.TopicConfig{Name: "events"}, Subscriptions: []broker.SubscriptionSetup{{SubscriptionConfig: broker.SubscriptionConfig{Name: "audit"}}}}}
		})
		c := sc.browser()
		sc.wantAnswer("send to the topic", sc.ask(c, "POST", "/events/messages", "hello"), http.StatusCreated, "")
		a := sc.ask(c, "POST", "/events/subscriptions/audit/messages/head?timeout=5", "")
		sc.wantAnswer("peek-lock at the subscription", a, http.StatusCreated, "hello")
		sc.wantAnswer("complete", sc.ask(c, "DELETE", a.header.Get("Location"), ""), http.StatusOK, "")

		sc.wantAnswer("send", sc.ask(c, "POST", "/orders/messages", "late", "BrokerProperties", `{"TimeToLive":1}`), http.StatusCreated, "")
		time.Sleep(2 * time.Second)
		sc.wantAnswer("receive from the queue", sc.ask(c, "DELETE", "/orders/messages/head?timeout=0", ""), http.StatusNoContent, "")
		sc.wantAnswer("receive its dead letter", sc.ask(c, "DELETE", "/orders/$DeadLetterQueue/messages/head?timeout=5", ""), http.StatusOK, "late")
	})
}

// The administration client of the SDK works through the endpoint, with whatever key it shows
// there.
func TestEntitiesAreAdministeredThroughTheRESTDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var addresses []string
		sc := setupREST(t, secured(func(_ context.Context, address string) (string, error) {
			addresses = append(addresses, address)
			return sas.Make(upstreamKey.KeyName, upstreamKey.PrimaryKey, address, time.Now().Add(time.Hour)), nil
		}))
		client, err := admin.NewClientFromConnectionString("Endpoint=sb://"+endpointName+";SharedAccessKeyName=whoever;SharedAccessKey=d2hhdGV2ZXI=",
			&admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: plain{sc.browser()}}})
		sc.must(err)
		_, err = client.CreateQueue(t.Context(), "target", nil)
		sc.must(err)
		target := "target"
		_, err = client.CreateQueue(t.Context(), "made", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{ForwardTo: &target}})
		sc.must(err)
		got, err := client.GetQueue(t.Context(), "made", nil)
		sc.must(err)
		if got == nil || got.ForwardTo == nil || !strings.HasSuffix(*got.ForwardTo, target) {
			t.Errorf("the queue that was made is %+v, want one that forwards to %s", got, target)
		}
		_, err = client.DeleteQueue(t.Context(), "made", nil)
		sc.must(err)
		if got, err = client.GetQueue(t.Context(), "made", nil); err != nil || got != nil {
			t.Errorf("the queue that was deleted = %+v, %v; want none", got, err)
		}
		if want := "https://" + namespaceName + "/made"; addresses[1] != want {
			t.Errorf("the proxy's token is for %q, want %s", addresses[1], want)
		}
	})
}

// plain sends over http what is meant for https.
type plain struct{ *http.Client }

func (p plain) Do(r *http.Request) (*http.Response, error) {
	r.URL.Scheme = "http"
	return p.Client.Do(r)
}

// With the credentials of clients, the namespace judges what a client shows.
func TestTheTokenOfAClientPassesTheRESTDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t, secured(nil))
		c := sc.browser()
		sc.wantAnswer("no token", sc.ask(c, "DELETE", "/orders/messages/head?timeout=1", ""), http.StatusUnauthorized, "401")
		token := sas.Make(upstreamKey.KeyName, upstreamKey.PrimaryKey, "https://"+namespaceName+"/orders", time.Now().Add(time.Hour))
		sc.wantAnswer("a good token", sc.ask(c, "DELETE", "/orders/messages/head?timeout=1", "", "Authorization", token), http.StatusNoContent, "")
	})
}

// A client that hangs up does not have a message locked for it that comes later.
func TestAClientThatHangsUpEndsItsReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t)
		c := sc.browser()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			r, err := http.NewRequestWithContext(ctx, "POST", "http://"+endpointName+"/orders/messages/head?timeout=60", nil)
			if err == nil {
				_, err = c.Do(r)
			}
			gone <- err
		}()
		time.Sleep(5 * time.Second)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the receive = %v, want context canceled", err)
		}
		synctest.Wait()
		sc.wantAnswer("send", sc.ask(c, "POST", "/orders/messages", "hello"), http.StatusCreated, "")
		a := sc.ask(c, "POST", "/orders/messages/head?timeout=0", "")
		sc.wantAnswer("receive of another client", a, http.StatusCreated, "hello")
		if !strings.Contains(a.header.Get("BrokerProperties"), `"DeliveryCount":1`) {
			t.Errorf("BrokerProperties %s, want a first delivery", a.header.Get("BrokerProperties"))
		}
	})
}

func TestAReceiveWaitsAsLongAsItSaysAndAStopEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupREST(t)
		c := sc.browser()
		began := time.Now()
		sc.wantAnswer("receive", sc.ask(c, "POST", "/orders/messages/head?timeout=300", ""), http.StatusNoContent, "")
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("the receive took %v, want 5m", took)
		}
		answers := make(chan restAnswer, 1)
		go func() { answers <- sc.ask(c, "POST", "/orders/messages/head?timeout=300", "") }()
		time.Sleep(time.Second)
		began = time.Now()
		sc.must(sc.proxy.Close(t.Context()))
		sc.wantAnswer("a receive that a stop has ended", <-answers, http.StatusServiceUnavailable, "stopping")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the stop took %v with a receive waiting, want no wait for it", took)
		}
	})
}

// An upstream that says what a test wants it to say, to every request.
func upstreamSays(answer func(nc net.Conn, head string)) func(*setting) {
	return func(s *setting) {
		s.proxy.Upstream.Host = namespaceName
		s.proxy.Upstream.Dial = func(context.Context) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				r := bufio.NewReader(server)
				for {
					var head strings.Builder
					for line := ""; line != "\r\n"; {
						var err error
						if line, err = r.ReadString('\n'); err != nil {
							return
						}
						head.WriteString(line)
					}
					answer(server, head.String())
				}
			}()
			return client, nil
		}
	}
}

func TestAnUpstreamThatFailsIsReportedInTheFormOfServiceBus(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*setting)
		status int
		took   time.Duration
	}{
		"refuses connections": {func(s *setting) {
			s.proxy.Upstream = Upstream{Host: namespaceName, Dial: func(context.Context) (net.Conn, error) { return nil, errors.New("refused") }}
		}, http.StatusBadGateway, 0},
		"hangs up":       {upstreamSays(func(nc net.Conn, _ string) { nc.Close() }), http.StatusBadGateway, 0},
		"speaks no HTTP": {upstreamSays(func(nc net.Conn, _ string) { _, _ = io.WriteString(nc, "AMQP\x00\x01\x00\x00 nonsense\r\n\r\n") }), http.StatusBadGateway, 0},
		"is silent":      {upstreamSays(func(net.Conn, string) {}), http.StatusGatewayTimeout, 40 * time.Second},
		"has a head without end": {upstreamSays(func(nc net.Conn, _ string) {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\n")
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(nc, "h%d: %s\r\n", i, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		}), http.StatusBadGateway, 0},
		"gives no token": {func(s *setting) {
			upstreamSays(func(net.Conn, string) {})(s)
			s.proxy.Upstream.Authorize = func(context.Context, string) (string, error) { return "", errors.New("no identity") }
		}, http.StatusBadGateway, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setupAMQP(t, test.change)
				began := time.Now()
				a := sc.ask(sc.browser(), "POST", "/orders/messages/head?timeout=10", "")
				sc.wantAnswer("receive", a, test.status, fmt.Sprintf("<Error><Code>%d</Code><Detail>", test.status))
				if a.header.Get("Retry-After") == "" {
					t.Error("no Retry-After, want one")
				}
				if took := time.Since(began); took != test.took {
					t.Errorf("the answer took %v, want %v", took, test.took)
				}
			})
		})
	}
}

// A body that ends early, or stands still, ends the client's connection too: nobody takes it for
// whole.
func TestAnAnswerThatEndsEarlyIsNotTakenForWhole(t *testing.T) {
	for name, answer := range map[string]func(nc net.Conn, head string){
		"cut": func(nc net.Conn, _ string) {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
			nc.Close()
		},
		"stalled": func(nc net.Conn, _ string) {
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := setupAMQP(t, upstreamSays(answer))
				resp, err := sc.browser().Get("http://" + endpointName + "/orders")
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					_ = resp.Body.Close() // it has failed already
				}
				if err == nil {
					t.Error("the answer came to an end, want an error")
				}
			})
		})
	}
}

// Headers about one connection stay on it. Others pass as they are, and nothing is added.
func TestHeadersOfAConnectionStayOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heads := make(chan string, 1)
		sc := setupAMQP(t, upstreamSays(func(nc net.Conn, head string) {
			heads <- head
			_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nConnection: X-Theirs\r\nX-Theirs: 1\r\nkeep-Alive: 5\r\nLocation: https://elsewhere/x\r\nx-Custom: 2\r\ncontent-length: 0\r\n\r\n")
		}))
		nc, err := sc.dial(t.Context())
		sc.must(err)
		defer nc.Close()
		_, err = io.WriteString(nc, "PUT /a%2Fb/messages/1/c0ffee00-0000-0000-0000-000000000000?x=%20y HTTP/1.1\r\nHost: endpoint\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\norderId: 7\r\nContent-Length: 0\r\n\r\n")
		sc.must(err)
		answer, err := io.ReadAll(nc)
		sc.must(err)
		head := <-heads
		if want := "PUT /a/b/messages/1/c0ffee00-0000-0000-0000-000000000000?x=%20y HTTP/1.1\r\nHost: " + namespaceName + "\r\nContent-Length: 0\r\norderId: 7\r\n\r\n"; head != want {
			t.Errorf("the namespace got %q, want %q", head, want)
		}
		for _, want := range []string{"\r\nx-Custom: 2\r\n", "\r\nLocation: https://elsewhere/x\r\n"} {
			if !strings.Contains(string(answer), want) {
				t.Errorf("the answer lacks %q: %q", want, answer)
			}
		}
		for _, not := range []string{"X-Theirs", "keep-Alive"} {
			if strings.Contains(string(answer), not) {
				t.Errorf("the answer has %s, which was for the proxy: %q", not, answer)
			}
		}
	})
}

func TestWhatIsRelayedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setupAMQP(t, upstreamSays(func(net.Conn, string) {}), func(s *setting) { s.proxy.MaxBodySize = 1000 })
		c := sc.browser()
		sc.wantAnswer("a body that is too large", sc.ask(c, "PUT", "/q", strings.Repeat("x", 1001)), http.StatusForbidden, "larger")
		// Waiting receives occupy none of the memory that the bodies of sends need.
		for range 3 {
			nc, err := sc.dial(t.Context())
			sc.must(err)
			defer nc.Close()
			_, err = io.WriteString(nc, "POST /q/messages/head HTTP/1.1\r\nHost: endpoint\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
			sc.must(err)
		}
		synctest.Wait()
		if n := sc.proxy.bodies.Used(); n != 0 {
			t.Errorf("receives that wait keep %d bytes of the memory for bodies, want none", n)
		}
		if got := len(sc.proxy.relays); got != 3 {
			t.Errorf("%d receives wait, want 3", got)
		}
		for len(sc.proxy.relays) < cap(sc.proxy.relays) {
			sc.proxy.relays <- struct{}{}
		}
		sc.wantAnswer("one too many", sc.ask(c, "GET", "/q", ""), http.StatusServiceUnavailable, "Too many requests")
	})
}
