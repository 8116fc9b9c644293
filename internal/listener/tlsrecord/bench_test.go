// SPDX-License-Identifier: Apache-2.0

package tlsrecord_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"overdue/internal/listener/tlsrecord"
)

// BenchmarkRead reads records of a size over loopback, with and without.
func BenchmarkRead(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"bench.test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		b.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	cfg := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      roots, ServerName: "bench.test", DynamicRecordSizingDisabled: true,
	}
	asItIs := func(nc net.Conn) net.Conn { return nc }
	for _, size := range []int{300, 4 << 10, 16 << 10} {
		for name, wrap := range map[string]func(net.Conn) net.Conn{"as it is": asItIs, "whole": tlsrecord.Whole} {
			b.Run(fmt.Sprintf("%d bytes, %s", size, name), func(b *testing.B) {
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				defer ln.Close()
				go func() {
					nc, err := ln.Accept()
					if err != nil {
						return
					}
					defer nc.Close()
					c := tls.Server(nc, cfg)
					payload := make([]byte, size)
					for err == nil {
						_, err = c.Write(payload)
					}
				}()
				nc, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				defer nc.Close()
				c := tls.Client(wrap(nc), cfg)
				if err := c.Handshake(); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(size))
				b.ResetTimer()
				buf := make([]byte, size)
				for range b.N {
					if _, err := io.ReadFull(c, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
