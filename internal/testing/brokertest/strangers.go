// SPDX-License-Identifier: Apache-2.0

package brokertest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	wire "overdue/internal/amqp"
)

// A Stranger is a client of AMQP that proves nothing: SASL ANONYMOUS, and no token unless a test sends one. What it is
// told is read at once and forgotten, but for how it ends.
type Stranger struct {
	nc    net.Conn
	ended chan struct{}
	close *wire.Close // what the connection was closed with; of nobody until ended
	taken int         // bytes
}

// NewStranger opens a connection and sends headers, SASL and open.
func NewStranger(t testing.TB, dial func(context.Context) (net.Conn, error)) *Stranger {
	t.Helper()
	nc, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &Stranger{nc: nc, ended: make(chan struct{})}
	go s.read()
	t.Cleanup(func() {
		nc.Close()
		<-s.ended
	})
	s.write(wire.ProtoSASL[:])
	s.write(wire.AppendSASLFrame(nil, &wire.SASLInit{Mechanism: "ANONYMOUS"}))
	s.write(wire.ProtoAMQP[:])
	s.Send(0, &wire.Open{ContainerID: "stranger", Hostname: "overdue.test", ChannelMax: 65535})
	return s
}

func (s *Stranger) read() {
	defer close(s.ended)
	in := wire.NewFrameReader(s.nc, 1<<20)
	for range 2 { // a SASL layer, and AMQP
		if _, err := in.ReadProto(); err != nil {
			return
		}
		for {
			f, err := in.Next()
			if err != nil {
				return
			}
			p, _, err := wire.DecodePerformative(f.Body)
			if err != nil {
				continue // a keep-alive
			}
			if c, last := p.(*wire.Close); last {
				s.close = c
				return
			}
			if _, last := p.(*wire.SASLOutcome); last {
				break
			}
		}
	}
}

func (s *Stranger) write(b []byte) bool {
	n, err := s.nc.Write(b)
	s.taken += n
	return err == nil
}

// Send sends one frame, and reports whether the connection lives when all of it has been handled. It is called in a
// bubble of synctest.
func (s *Stranger) Send(ch uint16, p wire.Performative) bool {
	if !s.write(wire.AppendFrame(nil, ch, p, nil)) {
		return false
	}
	synctest.Wait()
	return !s.Ended()
}

// Ended reports whether the connection has ended.
func (s *Stranger) Ended() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Condition is what the connection was closed with, "" without an error. It waits for the end.
func (s *Stranger) Condition() wire.Symbol {
	<-s.ended
	if s.close == nil || s.close.Error == nil {
		return ""
	}
	return s.close.Error.Condition
}

func (s *Stranger) begin(ch uint16) bool {
	return s.Send(ch, &wire.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 1 << 20})
}

func (s *Stranger) attach(handle uint32, name string) bool {
	return s.Send(0, &wire.Attach{
		Name: name, Handle: handle, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "orders", HasAddress: true},
	})
}

// ExerciseStrangers holds an endpoint that asks for tokens to what a connection may cost before its first good one. dial
// opens a connection to a new endpoint.
func ExerciseStrangers(t *testing.T, dial func(*testing.T) func(context.Context) (net.Conn, error)) {
	const many = 20_000
	each := func(name string, f func(t *testing.T, s *Stranger)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, NewStranger(t, dial(t))) })
		})
	}
	until := func(f func(i int) bool) (n int) {
		for n < many && f(n) {
			n++
		}
		return n
	}
	ends := func(t *testing.T, s *Stranger, want wire.Symbol) {
		t.Helper()
		if got := s.Condition(); got != want {
			t.Errorf("the connection ends with %q, want %q", got, want)
		}
	}
	each("sessions", func(t *testing.T, s *Stranger) {
		const most = 16
		if n := until(func(i int) bool { return s.begin(uint16(i)) }); n != most {
			t.Fatalf("%d sessions, want %d", n, most)
		}
		ends(t, s, wire.ErrCondResourceLimitExceeded)
	})
	each("refused links that it does not detach", func(t *testing.T, s *Stranger) {
		const most = 16
		s.begin(0)
		name := strings.Repeat("n", 1000)
		if n := until(func(i int) bool { return s.attach(uint32(i), fmt.Sprint(name, i)) }); n != most {
			t.Fatalf("%d links, want %d", n, most)
		}
		ends(t, s, wire.ErrCondResourceLimitExceeded)
	})
	each("bytes", func(t *testing.T, s *Stranger) {
		const most = 256 << 10
		s.begin(0)
		until(func(int) bool {
			return s.attach(0, "again") && s.Send(0, &wire.Detach{Handle: 0, Closed: true}) && s.taken < 2*most
		})
		if s.taken > most {
			t.Fatalf("%d bytes were taken, want at most %d", s.taken, most)
		}
		ends(t, s, wire.ErrCondResourceLimitExceeded)
	})
	each("names", func(t *testing.T, s *Stranger) {
		s.begin(0)
		if s.attach(0, strings.Repeat("n", 60_000)) {
			t.Fatal("a link with a name of 60,000 bytes is answered")
		}
		ends(t, s, wire.ErrCondDecodeError)
	})
	each("time", func(t *testing.T, s *Stranger) {
		s.begin(0)
		start := time.Now()
		<-s.ended
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("it is parted with after %v, want 20 s", took)
		}
	})
}
