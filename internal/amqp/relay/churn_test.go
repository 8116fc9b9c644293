// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	"overdue/internal/testing/brokertest"
	"overdue/internal/testing/racetest"
)

// visit connects, sends a message to orders and waits until it is accepted. The caller decides what
// happens then; the connection is open.
func visit(dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	nc, err := dial(context.Background())
	if err != nil {
		return nil, err
	}
	b := append([]byte(nil), amqp.ProtoAMQP[:]...)
	b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "visitor"}, nil)
	b = amqp.AppendFrame(b, 0, &amqp.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 100}, nil)
	b = amqp.AppendFrame(b, 0, &amqp.Attach{Name: "l", Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true}}, nil)
	b = amqp.AppendFrame(b, 0, &amqp.Transfer{HasDeliveryID: true, DeliveryTag: []byte{0}, HasMessageFormat: true}, amqp.AppendData(nil, []byte("x")))
	if _, err := nc.Write(b); err != nil {
		return nc, err
	}
	in := amqp.NewFrameReader(nc, 65536)
	if _, err := in.ReadProto(); err != nil {
		return nc, err
	}
	for {
		f, err := in.Next()
		if err != nil {
			return nc, err
		}
		if len(f.Body) == 0 {
			continue
		}
		p, _, err := amqp.DecodePerformative(f.Body)
		if err != nil {
			return nc, err
		}
		switch p.(type) {
		case *amqp.Disposition:
			return nc, nil
		case *amqp.Detach, *amqp.End, *amqp.Close:
			return nc, fmt.Errorf("got %s", amqp.Trace(p, 0))
		}
	}
}

// leave ends a visit in one of the ways in which clients do.
func leave(nc net.Conn, how int) {
	defer nc.Close()
	switch how % 3 {
	case 0: // as one should
		if _, err := nc.Write(amqp.AppendFrame(nil, 0, &amqp.Close{}, nil)); err == nil {
			_, _ = io.Copy(io.Discard, nc) // what it says does not matter
		}
	case 1: // amid a frame
		_, _ = nc.Write(amqp.AppendFrame(nil, 0, &amqp.Close{}, nil)[:5])
	case 2: // without a word
	}
}

const visitors = 50 // at a time

// churn has n clients come and go, and some that do not even finish their handshake.
func churn(t *testing.T, n int, dial func(context.Context) (net.Conn, error), between func(chunk int)) {
	t.Helper()
	var mu sync.Mutex
	failed := 0
	for chunk := range n / visitors {
		var all sync.WaitGroup
		for i := range visitors {
			all.Go(func() {
				if i%10 == 9 {
					if nc, err := dial(context.Background()); err == nil {
						_, _ = nc.Write(amqp.ProtoSASL[:i%8])
						nc.Close()
					}
					return
				}
				nc, err := visit(dial)
				if err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
				if nc != nil {
					leave(nc, i)
				}
			})
			if between != nil && i == visitors/2 {
				between(chunk)
			}
		}
		all.Wait()
	}
	if between == nil && failed > 0 {
		t.Errorf("%d of %d visits failed, and nothing was in their way", failed, n)
	}
}

// relayGoroutines are the stacks of those that work for a connection. One that has returned, and is
// about to be gone, does not.
func relayGoroutines() (found []string) {
	buf := make([]byte, 64<<20)
	for _, g := range bytes.Split(buf[:runtime.Stack(buf, true)], []byte("\n\n")) {
		if _, top, _ := bytes.Cut(g, []byte("\n")); bytes.HasPrefix(top, []byte("runtime.goexit1")) {
			continue
		}
		for _, of := range []string{"relay.(*conn).", "relay.(*side).", "relay.(*keeper).", "relay.(*pair)."} {
			if s := string(g); strings.Contains(s, of) {
				found = append(found, s)
				break
			}
		}
	}
	return found
}

// liveHeap is how many bytes are in use when the garbage is gone.
func liveHeap() int64 {
	for range 3 { // pools give what they have up in two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A connection has some 20 KiB, so that one in a hundred that stays would be seen, of 8,000.
const mayStay = 1 << 20 // bytes

func TestTenThousandConnectionsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setup(t, func(c *Config) {
			c.Watch = func(Link) Watcher { return passThrough{} }
			c.ErrorLog = func(error) {}
			c.Tokens = ownKey()
		})
		var early int64
		between := func(chunk int) {
			switch chunk % 8 {
			case 3:
				s.front.Cut()
			case 5:
				s.ns.Net.Cut()
			case 7:
				s.ns.Net.Refuse(true)
				s.ns.Net.Cut()
				time.Sleep(time.Second)
				s.ns.Net.Refuse(false)
			}
		}
		rest := func() int64 {
			time.Sleep(time.Hour) // deadlines keep the ends of a net.Pipe until they have passed
			synctest.Wait()
			s.must(s.ns.Broker.Default().Reset())
			return liveHeap()
		}
		most := racetest.Sized(8000, 1600) // every kind of cut several times
		churn(t, most/4, s.dial, between)
		early = rest()
		churn(t, most, s.dial, between)
		late := rest()
		if n := s.ns.Net.Conns() + s.front.Conns(); n != 0 {
			t.Errorf("%d connections are open, want none", n)
		}
		if left := relayGoroutines(); len(left) > 0 {
			t.Errorf("%d goroutines are left, the first:\n%s", len(left), left[0])
		}
		if grown := late - early; grown > mayStay {
			t.Errorf("%d connections have left %d bytes, want %d at most", most, grown, mayStay)
		}
	})
}

func TestTenThousandConnectionsLeaveNothingOverTCP(t *testing.T) {
	n := racetest.Sized(10_000, 1000)
	if testing.Short() {
		n = 1000
	}
	ns := brokertest.NewTCP(t)
	r := New(Config{Dial: ns.Dial, Hostname: "overdue.test"})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Serve(ln) }()
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
	}
	churn(t, n, dial, nil)
	if err := r.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v, want nil", err)
	}
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("Serve = %v, want ErrClosed", err)
	}
	if left := relayGoroutines(); len(left) > 0 {
		t.Errorf("%d goroutines are left, the first:\n%s", len(left), left[0])
	}
}
