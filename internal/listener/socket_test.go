// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"crypto/tls"
	"net"
	"testing"
)

// Code that writes to the socket itself must not write past TLS.
func TestSocketIsShownOfPlainConnectionsOnly(t *testing.T) {
	socket := &net.TCPConn{}
	plain := &peeked{Conn: socket}
	if got := plain.Socket(); got != socket {
		t.Errorf("socket of a plain connection = %v, want the one it was made of", got)
	}
	over := tls.Server(plain, &tls.Config{})
	var inner net.Conn = secured{&peeked{Conn: over}, over, nil}
	if s, ok := inner.(interface{ Socket() *net.TCPConn }); ok && s.Socket() != nil {
		t.Error("a connection over TLS shows a socket, want none")
	}
}
