// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"overdue/internal/broker"
	"overdue/internal/servicebus/link"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler"
)

// scene is a proxy before a broker, in the bubble of a test.
type scene struct {
	*testing.T
	ns        *brokertest.Namespace
	links     *link.Namespace
	scheduler *scheduler.Scheduler
	registry  *prometheus.Registry
	proxy     *Proxy
}

const monitorQueue = "monitor"

type setting struct {
	companions string
	broker     broker.Config
	proxy      Config
	measure    bool
	queues     []string         // in addition to orders
	tokens     link.TokenSource // nil: of brokertest.Key
}

// setup starts a scene whose broker has the queues orders and monitor.
func setup(t *testing.T, change ...func(*setting)) *scene {
	t.Helper()
	s := setting{measure: true, queues: []string{monitorQueue}}
	for _, f := range change {
		f(&s)
	}
	s.broker.Queues = append(s.broker.Queues, broker.QueueConfig{Name: "orders", DeadLetteringOnMessageExpiration: true})
	for _, name := range s.queues {
		s.broker.Queues = append(s.broker.Queues, broker.QueueConfig{Name: name})
	}
	sc := &scene{T: t, registry: prometheus.NewRegistry()}
	sc.ns = brokertest.New(t, func(c *broker.Config) { *c = s.broker })
	if sc.links = sc.ns.Links(t); s.tokens != nil {
		sc.links = sc.ns.LinksWith(t, s.tokens)
	}
	var err error
	cfg := scheduler.Config{Links: sc.links, MonitorQueue: monitorQueue, Companions: s.companions}
	if sc.scheduler, err = scheduler.New(cfg); err != nil {
		t.Fatal(err)
	}
	if s.measure {
		if err := sc.scheduler.MeasureClock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s.proxy.AMQP.Dial == nil {
		s.proxy.AMQP.Dial = sc.ns.Dial
	}
	if s.proxy.Upstream.Dial == nil { // nobody listens there
		s.proxy.Upstream.Dial = func(ctx context.Context) (net.Conn, error) { return sc.ns.Net.Dial(ctx, namespaceName) }
	}
	s.proxy.Links, s.proxy.Scheduler, s.proxy.Registerer = sc.links, sc.scheduler, sc.registry
	if sc.proxy, err = New(s.proxy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sc.proxy.Close(ctx); err != nil {
			t.Errorf("closing the proxy: %v", err)
		}
		_ = sc.scheduler.Close(ctx) // the test may have broken its connection
	})
	return sc
}

// post sends a request with headers, given as pairs, and returns the answer.
func (sc *scene) post(path, body string, headers ...string) *httptest.ResponseRecorder {
	return sc.postWith(sc.Context(), path, body, headers...)
}

func (sc *scene) postWith(ctx context.Context, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	sc.proxy.ServeHTTP(w, r)
	return w
}

// warm opens the connection and both links. The SDK dials with a mutex held, and fake
// time stands still while somebody waits for a mutex: so not while the network is slow.
func (sc *scene) warm() {
	sc.Helper()
	sc.want(sc.post("/orders/messages", "warm", "overdue-within", "1h", "BrokerProperties", `{"MessageId":"warm"}`), http.StatusCreated, "")
}

// want fails the test unless the answer has the status, and, on an error, the body of
// Service Bus with text in its sentence.
func (sc *scene) want(w *httptest.ResponseRecorder, status int, text string) {
	sc.Helper()
	body := w.Body.String()
	if w.Code != status || !strings.Contains(body, text) {
		sc.Fatalf("answer %d %s, want %d with %q", w.Code, body, status, text)
	}
	if status == http.StatusCreated {
		if body != "" {
			sc.Errorf("body %q of a success, want none", body)
		}
		return
	}
	if !strings.HasPrefix(body, "<Error><Code>") || !strings.Contains(w.Header().Get("Content-Type"), "application/xml") {
		sc.Errorf("body %q of type %q, want Service Bus's XML", body, w.Header().Get("Content-Type"))
	}
	if retry := w.Header().Get("Retry-After"); (retry != "") != (status >= 500 || status == http.StatusRequestTimeout) {
		sc.Errorf("Retry-After %q with status %d", retry, status)
	}
}

// messages are those of a queue, by peek.
func (sc *scene) messages(name string) []*azservicebus.ReceivedMessage {
	sc.Helper()
	receiver, err := sc.ns.Client(sc.T).NewReceiverForQueue(name, nil)
	if err != nil {
		sc.Fatal(err)
	}
	defer func() {
		if err := receiver.Close(sc.Context()); err != nil {
			sc.Error(err)
		}
	}()
	var held []*azservicebus.ReceivedMessage
	for {
		page, err := receiver.PeekMessages(sc.Context(), 250, nil)
		if err != nil {
			sc.Fatal(err)
		}
		if len(page) == 0 {
			return held
		}
		held = append(held, page...)
	}
}

// companions are those on the monitor queue, in the order in which they are due.
func (sc *scene) companions() []scheduler.Companion {
	sc.Helper()
	var out []scheduler.Companion
	for _, m := range sc.messages(monitorQueue) {
		c, err := scheduler.ParseCompanion(m.Body)
		if err != nil {
			sc.Fatal(err)
		}
		c.Due = *m.ScheduledEnqueueTime
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b scheduler.Companion) int { return a.Due.Compare(b.Due) })
	return out
}

// references are those of all companions.
func (sc *scene) references() []scheduler.Reference {
	sc.Helper()
	var out []scheduler.Reference
	for _, c := range sc.companions() {
		if c.Entity != "orders" {
			sc.Errorf("companion for %q, want orders", c.Entity)
		}
		out = append(out, c.References...)
	}
	return out
}

// sends is the value of overdue_sends_total.
func (sc *scene) sends(entity, result string) float64 {
	return testutil.ToFloat64(sc.proxy.metrics.sends.WithLabelValues(entity, endpointREST, result))
}
