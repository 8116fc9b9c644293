// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// A forwarder passes connections on to a broker, and cuts them on demand.
type forwarder struct {
	t      *testing.T
	addr   string // where it listens
	cutURL string // a POST cuts every connection: 204, or 409 when there was none
	to     string

	restarts bool // what it leads to is not always there

	mu    sync.Mutex
	conns map[net.Conn]bool // both ends of each connection
	done  sync.WaitGroup
}

// newForwarder listens and passes on to the address to. Unless it restarts, that nobody answers
// there is an error of the test.
func newForwarder(t *testing.T, to string, restarts bool) *forwarder {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{t: t, addr: ln.Addr().String(), to: to, restarts: restarts, conns: map[net.Conn]bool{}}
	f.done.Go(func() { f.accept(ln) })
	control := httptest.NewServer(http.HandlerFunc(f.control))
	f.cutURL = control.URL + "/cut"
	t.Cleanup(func() {
		control.Close()
		if err := ln.Close(); err != nil {
			t.Errorf("closing the forwarder: %v", err)
		}
		f.cut()
		f.done.Wait()
	})
	return f
}

func (f *forwarder) control(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case f.cut() == 0:
		w.WriteHeader(http.StatusConflict)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// cut closes every connection and returns how many ends there were.
func (f *forwarder) cut() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.conns)
	for c := range f.conns {
		_ = c.Close() // the copier that reads from it reports nothing either: it is meant to end
	}
	clear(f.conns)
	return n
}

func (f *forwarder) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return // closed
		}
		broker, err := net.Dial("tcp", f.to)
		if err != nil {
			if !f.restarts {
				f.t.Errorf("forwarder: %v", err)
			}
			_ = client.Close()
			continue
		}
		f.mu.Lock()
		f.conns[client], f.conns[broker] = true, true
		f.mu.Unlock()
		f.done.Go(func() { f.pass(client, broker) })
		f.done.Go(func() { f.pass(broker, client) })
	}
}

// pass copies until one side ends, and then ends the other.
func (f *forwarder) pass(to, from net.Conn) {
	_, _ = io.Copy(to, from) // however it ends, it has ended
	_ = to.Close()
	_ = from.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, to)
	delete(f.conns, from)
}
