// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"overdue/internal/amqp"
)

// goodbye is the last that the Python SDK says: it ends its session, detaches what it had in it,
// closes, and hangs up.
func goodbye() []byte {
	b := amqp.AppendFrame(nil, 0, &amqp.End{}, nil)
	b = amqp.AppendFrame(b, 0, &amqp.Detach{Handle: 0}, nil)
	return amqp.AppendFrame(b, 0, &amqp.Close{}, nil)
}

// A hungUp is a connection that takes no more writes since its peer has hung up. The bytes that the
// peer sent before are still to be read, as on a socket.
type hungUp struct {
	net.Conn
	gone *atomic.Bool
}

func (h hungUp) Write(b []byte) (int, error) {
	if h.gone.Load() {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	return h.Conn.Write(b)
}

func TestAClientThatClosesAndHangsUpHasNotFailed(t *testing.T) {
	for _, tc := range []struct {
		name string
		last func(p *peer, gone *atomic.Bool)
	}{
		{"at once", func(p *peer, gone *atomic.Bool) {
			gone.Store(true)
			_, err := p.nc.Write(goodbye())
			p.s.must(err)
		}},
		{"before what it asked for is written", func(p *peer, gone *atomic.Bool) {
			gone.Store(true)
			p.write(0, &amqp.Flow{IncomingWindow: 1000, OutgoingWindow: 1000, Echo: true}, nil)
			time.Sleep(time.Second)
			_, err := p.nc.Write(goodbye())
			p.s.must(err)
		}},
		{"having read everything", func(p *peer, _ *atomic.Bool) {
			_, err := p.nc.Write(goodbye())
			p.s.must(err)
			p.expect("close")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup(t, func(c *Config) { c.ErrorLog = func(err error) { t.Errorf("an ordinary close is logged: %v", err) } })
				var gone atomic.Bool
				s.wrap = func(nc net.Conn) net.Conn { return hungUp{nc, &gone} }
				p := s.peer()
				p.attachSender("s", 0, "orders")
				p.expect("flow")
				tc.last(p, &gone)
				s.must(p.nc.Close())
				time.Sleep(time.Minute)
				synctest.Wait()
			})
		})
	}
}

func TestAClientThatHangsUpWithoutACloseIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := make(chan error, 10)
		s := setup(t, func(c *Config) { c.ErrorLog = func(err error) { logged <- err } })
		p := s.peer()
		s.must(p.nc.Close())
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(logged) != 1 {
			t.Errorf("%d errors are logged, want one", len(logged))
		}
	})
}
