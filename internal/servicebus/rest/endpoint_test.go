// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"overdue/internal/testing/apptest"
	"overdue/internal/testing/pipenet"
)

const endpointAddr = "endpoint.test"

// A scene is a server that keeps what it is sent.
type scene struct {
	*testing.T
	net *pipenet.Network

	mu   sync.Mutex
	sent []*Message
}

func setup(t *testing.T) *scene { return &scene{T: t, net: pipenet.New()} }

// ServeHTTP takes POST …/messages.
func (sc *scene) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && (r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/messages")) {
		err = BadRequest("This is no send.")
	}
	var ms []*Message
	if err == nil {
		ms, _, err = ParseSend(r, body, isFixed)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, ErrorBody(http.StatusBadRequest, err.Error()))
		return
	}
	sc.mu.Lock()
	sc.sent = append(sc.sent, ms...)
	sc.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}

func isFixed(property string) bool {
	return strings.HasPrefix(property, "overdue-") || property == "ce-expirytime"
}

func (sc *scene) held() []*Message {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.sent
}

// serve opens the endpoint on the scene's network, and returns a connection to it.
func (sc *scene) serve(change ...func(*http.Server)) net.Conn {
	sc.Helper()
	ln, err := sc.net.Listen(endpointAddr)
	if err != nil {
		sc.Fatal(err)
	}
	server := &http.Server{Handler: sc, MaxHeaderBytes: 32 << 10}
	for _, f := range change {
		f(server)
	}
	done := make(chan error, 1)
	go func() { done <- Serve(server, ln) }()
	sc.Cleanup(func() {
		time.Sleep(time.Second) // net/http lingers for 500 ms over a connection that it closes
		if err := server.Close(); err != nil {
			sc.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			sc.Errorf("Serve = %v, want ErrServerClosed", err)
		}
	})
	return sc.connectAgain()
}

// connectAgain makes one more connection to an endpoint that serve has opened.
func (sc *scene) connectAgain() net.Conn {
	sc.Helper()
	conn, err := sc.net.Dial(sc.Context(), endpointAddr)
	if err != nil {
		sc.Fatal(err)
	}
	sc.Cleanup(func() { _ = conn.Close() }) // the server may have closed it first
	return conn
}

// connectOrServe is serve for the first connection and connectAgain for others.
func (sc *scene) connectOrServe(i int) net.Conn {
	if i == 0 {
		return sc.serve()
	}
	return sc.connectAgain()
}

// answered reads one answer that is final, and returns its status and its body.
func (sc *scene) answered(in *bufio.Reader) (status int, body string) {
	sc.Helper()
	status, body, err := apptest.Answered(in)
	if err != nil {
		sc.Fatal(err)
	}
	return status, body
}
