// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"

	"overdue/internal/servicebus/rest"
	"overdue/internal/testing/apptest"
)

const endpointAddr = "proxy.test"

// serve opens the REST endpoint on the scene's network, and returns a connection to it.
func (sc *scene) serve(change ...func(*http.Server)) net.Conn {
	sc.Helper()
	ln, err := sc.ns.Net.Listen(endpointAddr)
	if err != nil {
		sc.Fatal(err)
	}
	server := &http.Server{Handler: sc.proxy, MaxHeaderBytes: 32 << 10}
	for _, f := range change {
		f(server)
	}
	done := make(chan error, 1)
	go func() { done <- rest.Serve(server, ln) }()
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
	conn, err := sc.ns.Net.Dial(sc.Context(), endpointAddr)
	if err != nil {
		sc.Fatal(err)
	}
	sc.Cleanup(func() { _ = conn.Close() }) // the server may have closed it first
	return conn
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
