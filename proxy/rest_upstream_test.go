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

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/servicebus/rest"
	"overdue/internal/testing/brokertest"
)

func TestLabelsOfEntitiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const extra = 20
		sc := setup(t, func(s *setting) {
			for i := range maxEntityLabels + extra {
				s.broker.Queues = append(s.broker.Queues, broker.QueueConfig{Name: fmt.Sprintf("q%d", i)})
			}
		})
		labels := 0
		for i := range maxEntityLabels + extra {
			name := fmt.Sprintf("q%d", i)
			sc.want(sc.post("/"+name+"/messages", "a"), http.StatusCreated, "")
			if sc.sends(name, resultUnmonitored) > 0 {
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

// The broker ends such a connection with a condition that is about no entity.
func TestASendOutlivesAStallBeforeTheFirstToken(t *testing.T) {
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

func TestASendOutlivesItsConnection(t *testing.T) {
	for _, monitored := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sc := setup(t, func(s *setting) {
				s.proxy.Settings = func(string) Settings { return Settings{Monitored: monitored} }
			})
			headers := []string{"overdue-within", "1h"}
			sc.want(sc.post("/orders/messages", "a", headers...), http.StatusCreated, "")
			for i := range 3 {
				sc.ns.Net.Cut()
				before := time.Now()
				if i == 1 { // a batch
					sc.want(sc.post("/orders/messages", `[{"Body":"b","UserProperties":{"overdue-within":"1h"}},{"Body":"c"}]`, "Content-Type", rest.BatchContentType), http.StatusCreated, "")
				} else {
					sc.want(sc.post("/orders/messages", "b", headers...), http.StatusCreated, "")
				}
				if took := time.Since(before); took > time.Second {
					t.Errorf("send %d took %v, want a new connection at once", i, took)
				}
			}
		})
	}
}

// An error that nobody foresaw asks for another try. It never looks like a fault of the proxy.
func TestNoErrorOfALinkSurfacesAs500(t *testing.T) {
	for _, err := range []error{
		errors.New("client has been closed by user"), io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled, link.ErrClosed, link.ErrNoConnection,
		&link.StatusError{Code: http.StatusInternalServerError}, &link.StatusError{Condition: "com.example:new"},
		&goamqp.ConnError{}, &goamqp.SessionError{}, &goamqp.LinkError{}, &goamqp.Error{Condition: "com.example:new"}, &goamqp.Error{Condition: goamqp.ErrCondInternalError},
	} {
		status, retryAfter, sentence := answer(fmt.Errorf("send: %w", classify(err)), "orders")
		if status != http.StatusServiceUnavailable || retryAfter == 0 || !strings.Contains(sentence, "again") {
			t.Errorf("%T %v is answered with %d, retry after %d: %s; want 503 and a retry", err, err, status, retryAfter, sentence)
		}
	}
}

// Sends share a connection, which one gives up that gets no answer. A send that waits for its link
// meanwhile has time left, and is made over the next.
func TestASendOutlivesTheConnectionThatAnotherGivesUp(t *testing.T) {
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
		if err := sc.links.Send(ctx, "orders", nil); err == nil {
			t.Fatal("a send that nobody answers succeeds")
		}
		remove()
		sc.want(<-answered, http.StatusCreated, "")
	})
}

func TestASendThatNobodyAnswersIsToBeRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t, func(s *setting) { s.proxy.SendTimeout = 5 * time.Second })
		sc.want(sc.post("/orders/messages", "a"), http.StatusCreated, "")
		sc.ns.Broker.Default().Inject(broker.Fault{Operation: broker.OnSend, Entity: "orders", Silent: true})
		before := time.Now()
		w := sc.post("/orders/messages", "b")
		sc.want(w, http.StatusServiceUnavailable, "send it again")
		if w.Header().Get("Retry-After") == "" || time.Since(before) > 15*time.Second {
			t.Errorf("answered after %v with %v, want soon after its 5 s and with when to come again", time.Since(before), w.Header())
		}
	})
}

func TestNothingIsSentAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := setup(t)
		if err := sc.proxy.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		sc.want(sc.post("/orders/messages", "a"), http.StatusServiceUnavailable, "stopping")
	})
}
