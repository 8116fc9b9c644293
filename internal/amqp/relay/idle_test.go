// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
	tlsdoor "overdue/internal/listener"
	"overdue/internal/listener/tlsrecord"
	"overdue/internal/testing/racetest"
)

const (
	idleConns = 30
	// The limits of the relay's share, of a client and its upstream connection, sockets aside. Stacks
	// are counted in spans, some of which are empty: by 10 KiB more or less.
	heapMayCost    = 24 << 10
	tlsHeapMayCost = 70 << 10
	stackMayCost   = 64 << 10
)

var largePayload = make([]byte, 60_000)

// An endlessUpstream takes whatever comes and gives every link credit. It keeps nothing, so that
// what is measured is the relay's.
type endlessUpstream struct {
	idle      time.Duration // between its keep-alives
	burst     int           // large messages, sent to each link that grants credit
	open      amqp.Open
	handleMax uint32
}

func (u *endlessUpstream) serve(nc net.Conn) {
	in := amqp.NewFrameReader(nc, 65536)
	write := func(ch uint16, p amqp.Performative, payload []byte) {
		_, _ = nc.Write(amqp.AppendFrame(nil, ch, p, payload)) // the end shows in the read
	}
	go func() { // keep-alives
		for {
			time.Sleep(u.idle)
			if _, err := nc.Write(amqp.AppendFrame(nil, 0, nil, nil)); err != nil {
				return
			}
		}
	}()
	proto, err := in.ReadProto()
	if err != nil {
		return
	}
	var hello []byte
	if proto == amqp.ProtoSASL { // as relays have it
		hello = append(hello, amqp.ProtoSASL[:]...)
		hello = amqp.AppendSASLFrame(hello, &amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"ANONYMOUS"}})
		hello = amqp.AppendSASLFrame(hello, &amqp.SASLOutcome{})
	}
	if _, err := nc.Write(append(hello, amqp.ProtoAMQP[:]...)); err != nil {
		return
	}
	if proto == amqp.ProtoSASL {
		if _, err := in.Next(); err != nil {
			return
		}
		if _, err := in.ReadProto(); err != nil {
			return
		}
	}
	for {
		f, err := in.Next()
		if err != nil {
			return
		}
		if len(f.Body) == 0 {
			continue
		}
		p, _, err := amqp.DecodePerformative(f.Body)
		if err != nil {
			return
		}
		switch p := p.(type) {
		case *amqp.Open:
			write(0, &u.open, nil)
		case *amqp.Begin:
			write(f.Channel, &amqp.Begin{RemoteChannel: f.Channel, HasRemoteChannel: true, IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20, HandleMax: u.handleMax}, nil)
		case *amqp.Attach:
			a := *p
			a.Role = !p.Role
			write(f.Channel, &a, nil)
			if p.Role == amqp.RoleSender {
				write(f.Channel, &amqp.Flow{
					HasNextIncomingID: true, IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20,
					Handle: p.Handle, HasHandle: true, HasDeliveryCount: true, LinkCredit: 1 << 20, HasLinkCredit: true,
				}, nil)
			}
		case *amqp.Flow:
			if p.HasHandle && p.LinkCredit > 0 {
				for i := range uint32(u.burst) {
					write(f.Channel, &amqp.Transfer{Handle: p.Handle, DeliveryID: i, HasDeliveryID: true, DeliveryTag: []byte{1}, Settled: true}, largePayload)
				}
			}
		}
	}
}

// An idler has gone through a burst of burst large messages each way, if at all, and sends
// keep-alives from then on.
func idler(dial func(context.Context) (net.Conn, error), burst int) (net.Conn, error) {
	nc, err := dial(context.Background())
	if err != nil {
		return nil, err
	}
	received := make(chan struct{})
	go func() {
		in := amqp.NewFrameReader(nc, 65536)
		if _, err := in.ReadProto(); err != nil {
			return
		}
		for n := 0; ; {
			f, err := in.Next()
			if err != nil {
				return
			}
			if len(f.Body) > 50_000 {
				n++
			}
			if n == burst {
				close(received)
				n++
			}
		}
	}()
	b := append([]byte(nil), amqp.ProtoAMQP[:]...)
	b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "idler", MaxFrameSize: 65536, IdleTimeout: 60_000}, nil)
	b = amqp.AppendFrame(b, 0, &amqp.Begin{IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20, HandleMax: 100}, nil)
	b = amqp.AppendFrame(b, 0, &amqp.Attach{Name: "s", Handle: 0, Role: amqp.RoleSender, Source: &amqp.Source{}, Target: &amqp.Target{Address: "orders", HasAddress: true}}, nil)
	b = amqp.AppendFrame(b, 0, &amqp.Attach{Name: "r", Handle: 1, Role: amqp.RoleReceiver, Source: &amqp.Source{Address: "orders", HasAddress: true}, Target: &amqp.Target{}}, nil)
	if _, err := nc.Write(b); err != nil {
		return nil, err
	}
	time.Sleep(time.Second) // attached, with credit
	for i := range uint32(burst) {
		t := &amqp.Transfer{DeliveryID: i, HasDeliveryID: true, DeliveryTag: []byte{0}, HasMessageFormat: true, Settled: true}
		if _, err := nc.Write(amqp.AppendFrame(nil, 0, t, largePayload)); err != nil {
			return nil, err
		}
	}
	if burst > 0 {
		f := &amqp.Flow{IncomingWindow: 1 << 20, OutgoingWindow: 1 << 20, Handle: 1, HasHandle: true, LinkCredit: uint32(burst), HasLinkCredit: true}
		if _, err := nc.Write(amqp.AppendFrame(nil, 0, f, nil)); err != nil {
			return nil, err
		}
		select {
		case <-received:
		case <-time.After(time.Hour):
			return nil, errors.New("the burst has not come")
		}
	}
	go func() {
		for {
			time.Sleep(time.Minute)
			if _, err := nc.Write(amqp.AppendFrame(nil, 0, nil, nil)); err != nil {
				return
			}
		}
	}()
	return nc, nil
}

// footprint is what the process has in use when the garbage is gone.
func footprint() (heap, stack int64) {
	for range 6 { // pools give up what they have in two, a stack halves in each
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse)
}

// selfSigned is what both ends of a connection within TLS are given.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	made, err := tlsdoor.SelfMade(t.TempDir(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(made.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	cfg := made.TLS.Clone()
	cfg.DynamicRecordSizingDisabled = true // so that a burst is of large records, as of most who speak TLS
	cfg.RootCAs, cfg.ServerName = x509.NewCertPool(), endpoint
	cfg.RootCAs.AppendCertsFromPEM(pem)
	return cfg
}

// An idle connection has two sockets, two goroutines and two links. The test measures the relay's
// share, with the memory that TLS keeps for it: the cost of the same peers without a relay between
// them is taken off. The kernel's memory for a socket is not in it.
func TestAnIdleConnectionCostsLittle(t *testing.T) {
	racetest.Skip(t, "the detector makes stacks larger")
	for _, c := range []struct {
		name  string
		burst int
		tls   bool // on both sides
	}{{"fresh", 0, false}, {"after a burst", 8, false}, {"fresh, within TLS", 0, true}, {"after a burst, within TLS", 8, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				secure := func(nc net.Conn, _ func(net.Conn, *tls.Config) *tls.Conn) net.Conn { return nc }
				if c.tls {
					cfg := selfSigned(t)
					secure = func(nc net.Conn, as func(net.Conn, *tls.Config) *tls.Conn) net.Conn { return as(nc, cfg) }
				}
				whole := func(nc net.Conn) net.Conn { return nc }
				upstream := func(context.Context) (net.Conn, error) {
					near, far := net.Pipe()
					u := &endlessUpstream{
						idle: time.Minute, burst: c.burst, handleMax: 100,
						open: amqp.Open{ContainerID: "upstream", MaxFrameSize: 65536, ChannelMax: 10, IdleTimeout: 60_000},
					}
					go u.serve(secure(far, tls.Server))
					return secure(whole(near), tls.Client), nil
				}
				s := setup(t, func(cfg *Config) { cfg.UpstreamIdleTimeout, cfg.Dial = time.Hour, upstream })
				s.wrap = func(nc net.Conn) net.Conn { return secure(whole(nc), tls.Server) }
				through := func(ctx context.Context) (net.Conn, error) {
					nc, err := s.dial(ctx)
					return secure(nc, tls.Client), err
				}
				peerHeap, peerStack := idle(s, c.burst, upstream)
				heapMay := int64(heapMayCost)
				if c.tls {
					whole = tlsrecord.Whole // as endpoints and dials have it
					heapMay = tlsHeapMayCost
				}
				heap, stack := idle(s, c.burst, through)
				heap, stack = heap-peerHeap, stack-peerStack
				t.Logf("%d bytes on the heap and %d of stacks per connection, and %d and %d of its peers", heap, stack, peerHeap, peerStack)
				if heap > heapMay {
					t.Errorf("%d bytes on the heap per idle connection, want %d at most", heap, heapMay)
				}
				if stack > stackMayCost && !racetest.Enabled { // which makes them larger
					t.Errorf("%d bytes of stacks per idle connection, want %d at most", stack, stackMayCost)
				}
			})
		})
	}
}

// idle is what a connection that dial opens costs when it is idle.
func idle(s *scene, burst int, dial func(context.Context) (net.Conn, error)) (heap, stack int64) {
	s.Helper()
	heapBefore, stackBefore := footprint()
	var conns []net.Conn
	for range idleConns {
		nc, err := idler(dial, burst)
		s.must(err)
		conns = append(conns, nc)
	}
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	heap, stack = footprint()
	for i, nc := range conns {
		if err := nc.Close(); err != nil {
			s.Errorf("connection %d has not lasted: %v", i, err)
		}
	}
	time.Sleep(time.Hour) // keep-alives fail
	return (heap - heapBefore) / idleConns, (stack - stackBefore) / idleConns
}
