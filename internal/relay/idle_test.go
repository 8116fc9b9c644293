// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
)

const (
	idleConns = 100
	// mayCost is of the relay's share: what a client and its upstream connection take, sockets and TLS aside.
	mayCost = 100 << 10
)

var largePayload = make([]byte, 60_000)

// An endlessUpstream takes whatever comes and gives every link credit. It keeps nothing, so that what is
// measured is the relay's.
type endlessUpstream struct {
	idle      time.Duration // between its keep-alives
	burst     int           // messages, large ones, to whoever gives it credit
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
	hello := append(amqp.ProtoSASL[:], amqp.AppendSASLFrame(nil, &amqp.SASLMechanisms{Mechanisms: []amqp.Symbol{"ANONYMOUS"}})...)
	hello = append(amqp.AppendSASLFrame(hello, &amqp.SASLOutcome{}), amqp.ProtoAMQP[:]...)
	if _, err := in.ReadProto(); err != nil {
		return
	}
	if _, err := nc.Write(hello); err != nil {
		return
	}
	if _, err := in.Next(); err != nil {
		return
	}
	if _, err := in.ReadProto(); err != nil {
		return
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

// An idler has gone through a burst of burst large messages each way, if at all, and sends keep-alives from then
// on.
func idler(s *scene, burst int) (net.Conn, error) {
	nc, err := s.dial(s.Context())
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

// footprint is what the process has in use, stacks included, when the garbage is gone.
func footprint() int64 {
	for range 6 { // pools give up what they have in two, a stack halves in each
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// An idle connection has two sockets, four goroutines and two links. What is measured has the test's two peers
// in it; what a socket takes of the kernel, or TLS, is not.
func TestAnIdleConnectionCostsLittle(t *testing.T) {
	for _, c := range []struct {
		name  string
		burst int
	}{{"fresh", 0}, {"after a burst", 8}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, func(cfg *Config) {
					cfg.UpstreamIdleTimeout = time.Hour
					cfg.Dial = func(context.Context) (net.Conn, error) {
						near, far := net.Pipe()
						u := &endlessUpstream{
							idle: time.Minute, burst: c.burst, handleMax: 100,
							open: amqp.Open{ContainerID: "upstream", MaxFrameSize: 65536, ChannelMax: 10, IdleTimeout: 60_000},
						}
						go u.serve(far)
						return near, nil
					}
				})
				before := footprint()
				var conns []net.Conn
				for range idleConns {
					nc, err := idler(s, c.burst)
					s.must(err)
					conns = append(conns, nc)
				}
				time.Sleep(20 * time.Minute)
				synctest.Wait()
				if n := s.front.Conns(); n != idleConns {
					t.Fatalf("%d connections are open, want %d", n, idleConns)
				}
				each := (footprint() - before) / idleConns
				t.Logf("%d bytes per connection", each)
				if each > mayCost {
					t.Errorf("%d bytes per idle connection, want %d at most", each, mayCost)
				}
				for _, nc := range conns {
					nc.Close()
				}
				time.Sleep(time.Hour) // keep-alives fail
			})
		})
	}
}
