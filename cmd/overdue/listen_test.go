// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

func TestPortInUseNamesPortKeyAndCure(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	c := &config{origin: map[string]string{"listen.http": "overdue.yaml:3"}}
	_, err = c.listen("listen.http", addr)
	want := "overdue.yaml:3: listen.http: " + addr + " is in use by another process; stop that one, or choose another port " +
		"with --listen-http, OVERDUE_LISTEN_HTTP or listen.http in the configuration file"
	if err == nil || err.Error() != want {
		t.Errorf("listen = %v, want %q", err, want)
	}
}

func TestLimitedListenerMakesTheNextOneWait(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(ln, 1)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	var peers [2]net.Conn
	for i := range peers {
		if peers[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer peers[i].Close()
	}
	first := <-accepted
	// The second peer is connected, and nobody reads what it says until the first is gone.
	select {
	case <-accepted:
		t.Error("a second connection was accepted beside the first")
	default:
	}
	first.Close()
	first.Close() // a second close must not free a second place
	second := <-accepted
	if _, err := io.WriteString(peers[1], "x"); err != nil {
		t.Fatal(err)
	}
	if n, err := second.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read of the second connection = %d, %v; want 1, nil", n, err)
	}
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close = %v, want net.ErrClosed", err)
	}
	second.Close()
}

// Close has to end an Accept that waits for a place.
func TestLimitedListenerClosesWhileFull(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(ln, 1)
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended := make(chan error)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept = %v, want net.ErrClosed", err)
	}
}

func TestNearestKey(t *testing.T) {
	candidates := []string{"lockDuration", "name", "maxDeliveryCount"}
	for word, want := range map[string]string{
		"lockduration": "lockDuration", "lock_duration": "lockDuration", "anme": "name", "nam": "name", "max-delivery-count": "maxDeliveryCount",
		"maxDeliverycuont": "maxDeliveryCount", "colour": "", "": "", strings.Repeat("x", 1000): "",
	} {
		if got := nearest(word, candidates); got != want {
			t.Errorf("nearest(%.30q) = %q, want %q", word, got, want)
		}
	}
}
