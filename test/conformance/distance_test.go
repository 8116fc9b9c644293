// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// distant are the live tests that only make sense when the namespace is not on this machine,
// each with the reason. They reach it through a distance.
var distant = map[string]string{
	"azservicebus.TestReceiveWithDifferentWaitTime": "expects that 1000 messages of 1 kB do not arrive within 20 ms",
}

// bandwidth of a distance, in bytes per second.
const bandwidth = 8 << 20

// openDistance opens a way to the namespace at to that takes time, as the way to a data centre
// does, until the test ends. It has the same ports at another address, and bytes from there come
// with limited bandwidth.
func openDistance(t *testing.T, addr, to netip.Addr) {
	t.Helper()
	for _, port := range []uint16{portAMQPS, portHTTPS} {
		ln, err := net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() }) // the run is over
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return // closed
				}
				go carry(c, netip.AddrPortFrom(to, port))
			}
		}()
	}
}

// carry carries one connection until either side ends it. A side that has ended is how the
// other hears of it, so nobody else needs its errors.
func carry(client net.Conn, to netip.AddrPort) {
	service, err := net.Dial("tcp", to.String())
	if err != nil {
		_ = client.Close()
		return
	}
	var g errgroup.Group
	g.Go(func() error {
		_, err := io.Copy(service, client)
		return errors.Join(err, service.Close())
	})
	g.Go(func() error {
		_, err := io.Copy(slow{client}, service)
		return errors.Join(err, client.Close())
	})
	_ = g.Wait()
}

// slow writes no faster than bandwidth.
type slow struct{ w io.Writer }

func (s slow) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / bandwidth)
	return s.w.Write(p)
}
