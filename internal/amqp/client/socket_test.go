// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"overdue/internal/amqp"
)

// selfSigned is a certificate for a test.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), DNSNames: []string{"overdue.test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// A socket takes a part of a large write at once, and the rest follows. Over TLS the whole is
// written at once.
func TestTransfersPassOverSocketsAndTLS(t *testing.T) {
	for name, secure := range map[string]bool{"TCP": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			p := &peer{T: t, frames: make(chan frame, 10_000)}
			if p.nc, err = ln.Accept(); err != nil {
				t.Fatal(err)
			}
			if secure {
				p.nc = tls.Server(p.nc, selfSigned(t))
				nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the certificate is made for this test
			}
			open := *plain
			open.MaxFrameSize = amqp.DefaultMaxFrameSize
			go p.handshake(&open)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			c, err := Open(ctx, nc, "overdue.test")
			if err != nil {
				t.Fatal(err)
			}
			payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
			const senders, each = 8, 20
			go func() {
				p.begin(1000)
				p.attach(0)
				p.credit(1000, 0)
				next[*amqp.Transfer](p)
				p.send(peerChannel, &amqp.Disposition{Role: amqp.RoleReceiver, Settled: true, State: amqp.Accepted{}}, nil)
				for range senders * each {
					tr, f := next[*amqp.Transfer](p)
					if !bytes.Equal(f.payload, payload[:1000]) {
						t.Errorf("a payload of %d bytes, want 1000", len(f.payload))
					}
					p.send(peerChannel, &amqp.Disposition{Role: amqp.RoleReceiver, First: tr.DeliveryID, Last: tr.DeliveryID, Settled: true, State: amqp.Accepted{}}, nil)
				}
			}()
			s, err := c.Sender(ctx, "orders")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(ctx, 0, payload); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range senders {
				all.Go(func() {
					for range each {
						if err := s.Send(ctx, 0, payload[:1000]); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if err := c.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			for range p.frames { // until the peer sees the end
			}
		})
	}
}
