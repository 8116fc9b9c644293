// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/broker"
	"overdue/internal/servicebus/rest"
	"overdue/internal/testing/brokertest"
)

const restHost = "rest.test"

// A restScene is a broker with the REST runtime API before it, on a network in
// memory.
type restScene struct {
	*testing.T
	ns     *brokertest.Namespace
	client *http.Client
}

// restSetup makes the queue "q"; the options are for the API.
func restSetup(t *testing.T, o restOptions, configure ...func(*broker.Config)) *restScene {
	t.Helper()
	configure = append([]func(*broker.Config){func(c *broker.Config) {
		c.AutoCreate = false
		c.Queues = []broker.QueueConfig{{Name: "q", LockDuration: time.Minute}}
	}}, configure...)
	sc := &restScene{T: t, ns: brokertest.New(t, configure...)}
	api := newREST(func(*http.Request) *broker.Namespace { return sc.ns.Broker.Default() }, o)
	ln, err := sc.ns.Net.Listen(restHost)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
		}
		api.ServeHTTP(w, r)
	})}
	done := make(chan error, 1)
	go func() { done <- rest.Serve(server, ln) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return sc.ns.Net.Dial(ctx, restHost) }}
	sc.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		time.Sleep(time.Second) // net/http lingers for 500 ms over a connection that it closes
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve = %v, want ErrServerClosed", err)
		}
	})
	return sc
}

// An answered request.
type answered struct {
	status int
	header http.Header
	body   string
}

// do sends a request with headers, given as pairs.
func (sc *restScene) do(method, path, body string, headers ...string) answered {
	sc.Helper()
	a, err := sc.try(sc.Context(), method, path, body, headers...)
	if err != nil {
		sc.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (sc *restScene) try(ctx context.Context, method, path, body string, headers ...string) (answered, error) {
	url := path
	if strings.HasPrefix(path, "/") {
		url = "http://" + restHost + path
	}
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	resp, err := sc.client.Do(r)
	if err != nil {
		return answered{}, err
	}
	text, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, resp.Header, string(text)}, errors.Join(err, resp.Body.Close())
}

// post sends a message with headers.
func (sc *restScene) post(path, body string, headers ...string) {
	sc.Helper()
	if a := sc.do(http.MethodPost, path, body, headers...); a.status != http.StatusCreated {
		sc.Fatalf("POST %s = %d %s, want 201", path, a.status, a.body)
	}
}

// want checks the status of an answer, and that its body says something.
func (sc *restScene) want(what string, a answered, status int, say string) {
	sc.Helper()
	if a.status != status || !strings.Contains(a.body, say) {
		sc.Errorf("%s = %d %s, want %d with %q", what, a.status, a.body, status, say)
	}
}

// sdk is a receiver and a sender of the SDK on a queue.
func (sc *restScene) sdk(queue string) (*azservicebus.Sender, *azservicebus.Receiver) {
	sc.Helper()
	client := sc.ns.Client(sc)
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		sc.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		sc.Fatal(err)
	}
	return sender, receiver
}

func (sc *restScene) one(r *azservicebus.Receiver) *azservicebus.ReceivedMessage {
	sc.Helper()
	ms, err := r.ReceiveMessages(sc.Context(), 1, nil)
	if err != nil || len(ms) != 1 {
		sc.Fatalf("ReceiveMessages = %d messages, %v; want one", len(ms), err)
	}
	return ms[0]
}
