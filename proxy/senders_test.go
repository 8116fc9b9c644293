// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/rest"
	"overdue/internal/testing/brokertest"
)

func TestAnIdleLinkIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.queues = append(s.queues, "bills") })
		sc.want(sc.post("/orders/messages", "a"), http.StatusCreated, "")
		time.Sleep(idleSender / 2)
		sc.want(sc.post("/bills/messages", "b"), http.StatusCreated, "")
		open := func() int {
			synctest.Wait()
			sc.proxy.senders.mu.Lock()
			defer sc.proxy.senders.mu.Unlock()
			return len(sc.proxy.senders.byName)
		}
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 2}, {idleSender/2 - time.Second, 2}, {time.Second, 1}, {idleSender / 2, 0}} {
			time.Sleep(step.after)
			if got := open(); got != step.want {
				t.Errorf("%d links are open, want %d", got, step.want)
			}
		}
		sc.want(sc.post("/orders/messages", "c"), http.StatusCreated, "")
	})
}

func TestLinksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const extra = 20
		sc := setup(t, func(s *setting) {
			for i := range maxSenders + extra {
				s.broker.Queues = append(s.broker.Queues, broker.QueueConfig{Name: fmt.Sprintf("q%d", i)})
			}
		})
		for i := range maxSenders + extra {
			sc.want(sc.post(fmt.Sprintf("/q%d/messages", i), "a"), http.StatusCreated, "")
			time.Sleep(time.Millisecond)
		}
		if got := len(sc.proxy.senders.byName); got != maxSenders {
			t.Errorf("%d links are open, want %d", got, maxSenders)
		}
		if sc.proxy.senders.byName["q0"] != nil || sc.proxy.senders.byName[fmt.Sprintf("q%d", extra)] == nil {
			t.Error("the links that were closed are not those unused the longest")
		}
		labels := 0
		for i := range maxSenders + extra {
			if sc.sends(fmt.Sprintf("q%d", i), resultUnmonitored) > 0 {
				labels++
			}
		}
		if labels != maxEntityLabels || sc.sends(otherEntities, resultUnmonitored) != extra {
			t.Errorf("%d entities have a label and %v messages none, want %d and %d",
				labels, sc.sends(otherEntities, resultUnmonitored), maxEntityLabels, extra)
		}
	})
}

func TestAnEntityThatComesIntoBeingIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		sc.want(sc.post("/new/messages", "a"), http.StatusGone, "'new'")
		if err := sc.ns.Broker.AddQueue(broker.QueueConfig{Name: "new"}); err != nil {
			t.Fatal(err)
		}
		sc.want(sc.post("/new/messages", "a"), http.StatusCreated, "")
	})
}

// The link to the first entity is of no more use, but what is sent over it was not taken: it is
// sent once more.
func TestAnEntityThatIsMadeAnewIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		sc.want(sc.post("/orders/messages", "a"), http.StatusCreated, "")
		ns := sc.ns.Broker.Default()
		must(ns.DeleteQueue("orders"))
		sc.want(sc.post("/orders/messages", "b"), http.StatusGone, "'orders'")
		for range 3 { // the link is open, and its queue is another
			must(sc.ns.Broker.AddQueue(broker.QueueConfig{Name: "orders"}))
			sc.want(sc.post("/orders/messages", "c"), http.StatusCreated, "")
			if got := len(sc.messages("orders")); got != 1 {
				t.Errorf("orders holds %d messages, want the one that was sent", got)
			}
			must(ns.DeleteQueue("orders"))
		}
		must(sc.ns.Broker.AddQueue(broker.QueueConfig{Name: "orders"}))
		sc.want(sc.post("/orders/messages", "d"), http.StatusCreated, "")
	})
}

// The broker ends such a connection with a condition that the SDK takes for the last word, and
// that is about no entity.
func TestAStallBeforeTheFirstTokenIsOverWithTheNextClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) {
			s.measure = false
			s.broker.Keys = []broker.AuthorizationRule{brokertest.Key()}
			s.proxy.Settings = func(string) Settings { return Settings{} }
		})
		sc.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnToken, Delay: 25 * time.Second, Times: 1})
		sc.want(sc.post("/orders/messages", "a"), http.StatusCreated, "")
	})
}

// When a client of the SDK is replaced, calls on the old one fail with an error that is not an API
// error. A send has time left, and uses the next client.
func TestASendOutlivesTheRenewalOfTheClient(t *testing.T) {
	for _, monitored := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sc := setup(t, func(s *setting) {
				s.proxy.Settings = func(string) Settings { return Settings{Monitored: monitored} }
			})
			headers := []string{"overdue-within", "1h"}
			sc.want(sc.post("/orders/messages", "a", headers...), http.StatusCreated, "")
			for i := range 3 { // each sooner after the last than a client is replaced
				if err := sc.client.Current().Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				before := time.Now()
				if i == 1 { // a batch
					sc.want(sc.post("/orders/messages", `[{"Body":"b","UserProperties":{"overdue-within":"1h"}},{"Body":"c"}]`, "Content-Type", rest.BatchContentType), http.StatusCreated, "")
				} else {
					sc.want(sc.post("/orders/messages", "b", headers...), http.StatusCreated, "")
				}
				if took := time.Since(before); took > 5*time.Second {
					t.Errorf("send %d took %v, want not more than the pause between two renewals", i, took)
				}
			}
		})
	}
}

// An error of the SDK that nobody foresaw, such as that of a closed client, asks for another try. It
// never looks like a fault of the proxy.
func TestNoErrorOfTheSDKSurfacesAs500(t *testing.T) {
	for _, err := range []error{
		errors.New("client has been closed by user"), io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled,
		&azservicebus.Error{Code: azservicebus.CodeClosed}, &azservicebus.Error{Code: azservicebus.CodeConnectionLost}, &azservicebus.Error{Code: "new"},
		&goamqp.ConnError{}, &goamqp.SessionError{}, &goamqp.LinkError{}, &goamqp.Error{Condition: "com.example:new"}, &goamqp.Error{Condition: goamqp.ErrCondInternalError},
	} {
		status, retryAfter, sentence := answer(fmt.Errorf("send: %w", classify(err)), "orders")
		if status != http.StatusServiceUnavailable || retryAfter == 0 || !strings.Contains(sentence, "again") {
			t.Errorf("%T %v is answered with %d, retry after %d: %s; want 503 and a retry", err, err, status, retryAfter, sentence)
		}
	}
}

// A replaced client is closed when its time is over, even if a send still waits on it. The SDK
// reports that as closed by the user.
func TestASendThatWaitsOnAClientThatWasReplacedIsMadeWithTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) {
			s.queues = append(s.queues, "bills")
			s.proxy.SendTimeout = 90 * time.Second
		})
		sc.warm()
		sc.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnAttach, Entity: "bills", Delay: 80 * time.Second, Times: 1})
		answered := make(chan *httptest.ResponseRecorder, 1)
		go func() { answered <- sc.post("/bills/messages", "a") }()
		time.Sleep(time.Second)
		remove := sc.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Entity: "orders", Silent: true})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := sc.client.NewSender("orders").Send(ctx, &azservicebus.Message{}); err == nil {
			t.Fatal("a send that nobody answers succeeds")
		}
		remove()
		sc.want(<-answered, http.StatusCreated, "")
	})
}

// Without an end to the renewals the send ends in time, with what is worth another try.
func TestASendWhoseClientStaysDeadIsToBeRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.SendTimeout = 5 * time.Second })
		sc.want(sc.post("/orders/messages", "a"), http.StatusCreated, "")
		sc.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Entity: "orders", Silent: true})
		over := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-over:
					return
				case <-time.After(50 * time.Millisecond):
					_ = sc.client.Current().Close(t.Context()) // it may be closed already
				}
			}
		}()
		before := time.Now()
		w := sc.post("/orders/messages", "b")
		close(over)
		<-ended
		sc.want(w, http.StatusServiceUnavailable, "send it again")
		if w.Header().Get("Retry-After") == "" || time.Since(before) > 15*time.Second {
			t.Errorf("answered after %v with %v, want soon after its 5 s and with when to come again", time.Since(before), w.Header())
		}
	})
}

func TestNoLinkIsOpenedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		if err := sc.proxy.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sn, err := sc.proxy.senders.acquire("orders", sc.client.Current()); !errors.Is(err, errClosed) || sn != nil {
			t.Errorf("acquire after Close = %v, %v, want %v", sn, err, errClosed)
		}
	})
}
