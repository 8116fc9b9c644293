// SPDX-License-Identifier: Apache-2.0

package failure_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"overdue/internal/servicebus/failure"
)

// A firewall has nothing to do with a certificate, and only its owner can renew it.
func TestACertificateIsNamedWithItsEndAndWhoRenewsIt(t *testing.T) {
	day := 24 * time.Hour
	now := time.Now()
	for name, tt := range map[string]struct {
		host       string
		from, to   time.Time
		trusted    bool
		says, fix  string
		serverName string
	}{
		"expired": {"bus.example.com", now.Add(-2 * day), now.Add(-day), true,
			"its certificate for bus.example.com ended at " + now.Add(-day).UTC().Format(time.RFC3339) + "; the clock of this machine says " + now.UTC().Format("2006-01-02T"),
			"whoever runs the server has to renew the certificate of bus.example.com, which CN=issuer issued; or the clock", "bus.example.com"},
		"expired, of Azure": {"contoso.servicebus.windows.net", now.Add(-2 * day), now.Add(-day), true,
			"its certificate for contoso.servicebus.windows.net ended at ", "a proxy or firewall on the way", "contoso.servicebus.windows.net"},
		"not yet valid": {"bus.example.com", now.Add(day), now.Add(2 * day), true,
			"holds from " + now.Add(day).UTC().Format(time.RFC3339) + " on", "set the clock of this machine, if it is wrong", "bus.example.com"},
		"of another host": {"other.example.com", now.Add(-day), now.Add(day), true,
			"its certificate is for other.example.com, and not for bus.example.com", "use the name", "bus.example.com"},
		"of a stranger": {"bus.example.com", now.Add(-day), now.Add(day), false,
			"an authority that this machine does not trust (CN=issuer)", "authorityFile", "bus.example.com"},
		"right": {"bus.example.com", now.Add(-day), now.Add(day), true, "", "", "bus.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			err := handshake(t, tt.serverName, tt.host, tt.from, tt.to, tt.trusted)
			if (err == nil) != (tt.says == "") {
				t.Fatalf("handshake = %v", err)
			}
			says, fix := failure.Certificate(fmt.Errorf("dial: %w", errors.Join(err)))
			if !strings.Contains(says, tt.says) || (says == "") != (tt.says == "") || !strings.Contains(fix, tt.fix) {
				t.Errorf("Certificate = %q, %q; want %q, %q", says, fix, tt.says, tt.fix)
			}
		})
	}
	if says, fix := failure.Certificate(errors.New("connection refused")); says != "" || fix != "" {
		t.Errorf("Certificate of another error = %q, %q, want nothing", says, fix)
	}
}

// handshake is the error of a client for serverName with a server that has a certificate for host.
func handshake(t *testing.T, serverName, host string, from, to time.Time, trusted bool) error {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuer := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, IsCA: true, BasicConstraintsValid: true, NotBefore: from.Add(-240 * time.Hour), NotAfter: to.Add(240 * time.Hour)}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if trusted {
		root, err := x509.CreateCertificate(rand.Reader, issuer, issuer, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(root)
		if err != nil {
			t.Fatal(err)
		}
		roots.AddCert(parsed)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_ = c.(*tls.Conn).HandshakeContext(t.Context()) // what it thinks of the client is not the point
			_ = c.Close()
		}
	}()
	c, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{ServerName: serverName, RootCAs: roots})
	if err == nil {
		_ = c.Close()
	}
	return err
}
