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

// An Unauthenticated is an AMQP client with SASL ANONYMOUS and no token unless a test sends one. It
// reads and drops all frames, and keeps the error of the close.
type Unauthenticated struct {
	nc    net.Conn
	ended chan struct{}
	close *wire.Close // valid once ended is closed
	taken int         // bytes
}

// NewUnauthenticated opens a connection and sends headers, SASL and open.
func NewUnauthenticated(t testing.TB, dial func(context.Context) (net.Conn, error)) *Unauthenticated {
	t.Helper()
	nc, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &Unauthenticated{nc: nc, ended: make(chan struct{})}
	go s.read()
	t.Cleanup(func() {
		nc.Close()
		<-s.ended
	})
	s.write(wire.ProtoSASL[:])
	s.write(wire.AppendSASLFrame(nil, &wire.SASLInit{Mechanism: "ANONYMOUS"}))
	s.write(wire.ProtoAMQP[:])
	s.Send(0, &wire.Open{ContainerID: "unauthenticated", Hostname: "overdue.test", ChannelMax: 65535})
	return s
}

func (s *Unauthenticated) read() {
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

func (s *Unauthenticated) write(b []byte) bool {
	n, err := s.nc.Write(b)
	s.taken += n
	return err == nil
}

// Send sends one frame, waits until it is handled, and reports whether the connection is open. Call
// it in a bubble of synctest.
func (s *Unauthenticated) Send(ch uint16, p wire.Performative) bool {
	if !s.write(wire.AppendFrame(nil, ch, p, nil)) {
		return false
	}
	synctest.Wait()
	return !s.Ended()
}

// Ended reports whether the connection has ended.
func (s *Unauthenticated) Ended() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Condition waits for the end and returns the error condition of the close, or "".
func (s *Unauthenticated) Condition() wire.Symbol {
	<-s.ended
	if s.close == nil || s.close.Error == nil {
		return ""
	}
	return s.close.Error.Condition
}

func (s *Unauthenticated) begin(ch uint16) bool {
	return s.Send(ch, &wire.Begin{IncomingWindow: 1000, OutgoingWindow: 1000, HandleMax: 1 << 20})
}

func (s *Unauthenticated) attach(handle uint32, name string) bool {
	return s.Send(0, &wire.Attach{
		Name: name, Handle: handle, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{Address: "orders", HasAddress: true},
	})
}

// ExerciseUnauthenticated checks the limits of a connection without a valid token at an endpoint
// that requires tokens. dial connects to a new endpoint.
func ExerciseUnauthenticated(t *testing.T, dial func(*testing.T) func(context.Context) (net.Conn, error)) {
	const many = 20_000
	each := func(name string, f func(t *testing.T, s *Unauthenticated)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, NewUnauthenticated(t, dial(t))) })
		})
	}
	until := func(f func(i int) bool) (n int) {
		for n < many && f(n) {
			n++
		}
		return n
	}
	ends := func(t *testing.T, s *Unauthenticated, want wire.Symbol) {
		t.Helper()
		if got := s.Condition(); got != want {
			t.Errorf("the connection ends with %q, want %q", got, want)
		}
	}
	each("sessions", func(t *testing.T, s *Unauthenticated) {
		const most = 16
		if n := until(func(i int) bool { return s.begin(uint16(i)) }); n != most {
			t.Fatalf("%d sessions, want %d", n, most)
		}
		ends(t, s, wire.ErrCondResourceLimitExceeded)
	})
	each("refused links that it does not detach", func(t *testing.T, s *Unauthenticated) {
		const most = 16
		s.begin(0)
		name := strings.Repeat("n", 1000)
		if n := until(func(i int) bool { return s.attach(uint32(i), fmt.Sprint(name, i)) }); n != most {
			t.Fatalf("%d links, want %d", n, most)
		}
		ends(t, s, wire.ErrCondResourceLimitExceeded)
	})
	each("bytes", func(t *testing.T, s *Unauthenticated) {
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
	each("names", func(t *testing.T, s *Unauthenticated) {
		s.begin(0)
		if s.attach(0, strings.Repeat("n", 60_000)) {
			t.Fatal("a link with a name of 60,000 bytes is answered")
		}
		ends(t, s, wire.ErrCondDecodeError)
	})
	each("time", func(t *testing.T, s *Unauthenticated) {
		s.begin(0)
		start := time.Now()
		<-s.ended
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("it is closed after %v, want 20 s", took)
		}
	})
}
