// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"
)

// trust is the configuration of a client that trusts c and nothing else.
func trust(t *testing.T, c *Certificate) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatalf("%s has no certificate", c.CAFile)
	}
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// tcpPipe returns both ends of a connection that has buffers: with TLS both
// sides may write at once.
func tcpPipe(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	b, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}
