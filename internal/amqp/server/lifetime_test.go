// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"overdue/internal/amqp"
	"overdue/internal/amqp/transport"
)

func TestConnectionIsHeldForADayByKeepAlives(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		// The client asks for a frame a minute and sends one for our 4 minutes.
		conn := sc.dial(nil, &goamqp.ConnOptions{IdleTimeout: time.Minute, SASLType: goamqp.SASLTypeAnonymous()})
		s := session(t, conn)
		sender, err := s.NewSender(ctx, "q", nil)
		if err != nil {
			t.Fatalf("NewSender: %v", err)
		}
		time.Sleep(24 * time.Hour)
		if err := sender.Send(ctx, goamqp.NewMessage([]byte("x")), nil); err != nil {
			t.Errorf("Send after a day: %v", err)
		}
	})
}

func TestKeepAlivesComeAtHalfOfThePeersTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open(func(o *amqp.Open) { o.IdleTimeout = 10_000 })
		start := time.Now()
		for i := range 5 {
			f := <-p.frames
			if want := time.Duration(i+1) * 5 * time.Second; f != nil || time.Since(start) != want {
				t.Fatalf("frame %d is %v after %v, want a keep-alive after %v", i, f, time.Since(start), want)
			}
		}
	}, func(c *Config) { c.IdleTimeout = time.Hour })
}

func TestSilentPeerIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		start := time.Now()
		for time.Since(start) < time.Hour {
			time.Sleep(7 * time.Minute)
			p.write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
		}
		start = time.Now()
		f := <-p.frames
		if c, ok := f.(*amqp.Close); !ok || c.Error == nil {
			t.Fatalf("got %T, want close with an error", f)
		}
		if got := time.Since(start); got != 8*time.Minute {
			t.Errorf("closed after %v, want 8m", got)
		}
		if err := <-sc.errs; !errors.Is(err, transport.ErrSilent) {
			t.Errorf("ServeConn = %v, want transport.ErrSilent", err)
		}
	})
}

func TestStalledReaderIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		// It reads nothing at all, not even the header.
		nc := sc.pipe()
		if _, err := nc.Write(amqp.ProtoAMQP[:]); err != nil {
			t.Fatalf("Write: %v", err)
		}
		start := time.Now()
		if err := <-sc.errs; err == nil {
			t.Error("ServeConn = nil, want an error")
		}
		if got := time.Since(start); got > 35*time.Second {
			t.Errorf("dropped after %v, want 35s at most", got)
		}
	})
}

// A peer that stops reading while a source sends to it holds up that source, not the memory, and
// not for ever.
func TestStalledReaderOfDeliveriesIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		q := sc.echo.queue("q")
		for range 10_000 {
			q.put(make([]byte, 1000))
		}
		nc := sc.pipe()
		b := append([]byte(nil), amqp.ProtoAMQP[:]...)
		b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "stalled", MaxFrameSize: 65536}, nil)
		b = amqp.AppendFrame(b, 0, &amqp.Begin{IncomingWindow: 1 << 30, OutgoingWindow: 10, HandleMax: 10}, nil)
		b = amqp.AppendFrame(b, 0, rawAttach(0, amqp.RoleReceiver, "q"), nil)
		f := linkFlow(0, 0, 1<<30)
		f.IncomingWindow = 1 << 30
		b = amqp.AppendFrame(b, 0, f, nil)
		if _, err := nc.Write(b); err != nil {
			t.Fatalf("Write: %v", err)
		}
		start := time.Now()
		synctest.Wait()
		q.mu.Lock()
		sent := 10_000 - len(q.messages)
		q.mu.Unlock()
		if sent < 10 || sent > 1000 {
			t.Errorf("%d messages were taken for a peer that does not read, want a buffer full", sent)
		}
		if err := <-sc.errs; err == nil {
			t.Error("ServeConn = nil, want an error")
		}
		if got := time.Since(start); got != 30*time.Second {
			t.Errorf("dropped after %v, want 30s", got)
		}
	})
}

// A peer that asks and does not read the answers stops being read.
func TestUnreadAnswersStopTheReadLoop(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		nc := sc.pipe()
		b := append([]byte(nil), amqp.ProtoAMQP[:]...)
		b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "stalled", MaxFrameSize: 65536}, nil)
		b = amqp.AppendFrame(b, 0, &amqp.Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10}, nil)
		if _, err := nc.Write(b); err != nil {
			t.Fatalf("Write: %v", err)
		}
		echo := amqp.AppendFrame(nil, 0, &amqp.Flow{IncomingWindow: 10, OutgoingWindow: 10, Echo: true}, nil)
		var flood []byte
		for range 1000 {
			flood = append(flood, echo...)
		}
		written := 0
		for {
			n, err := nc.Write(flood)
			written += n
			if err != nil {
				break
			}
			if written > 64<<20 {
				t.Fatalf("%d bytes of questions were taken", written)
			}
		}
		if err := <-sc.errs; err == nil {
			t.Error("ServeConn = nil, want an error")
		}
	})
}

func TestAbruptEndCallsClosed(t *testing.T) {
	abrupt := func(t *testing.T, sc *scene, dial func() net.Conn) {
		for range 20 {
			p := sc.rawOver(dial())
			p.open()
			p.begin(0)
			p.attach(0, 0, amqp.RoleReceiver, "q")
			p.attach(0, 1, amqp.RoleSender, "sink")
			p.nc.Close()
		}
		sc.awaitNotes(60)
		links := 0
		for _, n := range sc.echo.notes() {
			if n == "source q: amqp:connection:forced" || n == "sink sink: amqp:connection:forced" {
				links++
			}
		}
		if links != 40 {
			t.Errorf("%d links got Detached, want 40: %q", links, sc.echo.notes())
		}
	}
	t.Run("pipe", func(t *testing.T) {
		bubble(t, func(t *testing.T, sc *scene) { abrupt(t, sc, sc.pipe) })
	})
	t.Run("tcp", func(t *testing.T) {
		sc := setup(t)
		address := sc.listen()
		abrupt(t, sc, func() net.Conn {
			nc, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatalf("Dial: %v", err)
			}
			return nc
		})
	})
}

func (sc *scene) awaitNotes(n int) {
	sc.t.Helper()
	for range 5000 {
		if len(sc.echo.notes()) >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	sc.t.Fatalf("handler noted %q, want %d notes", sc.echo.notes(), n)
}

func TestShutdownDoesNotWaitForAStalledPeer(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		nc := sc.pipe()
		b := append([]byte(nil), amqp.ProtoAMQP[:]...)
		b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "stalled", MaxFrameSize: 65536}, nil)
		if _, err := nc.Write(b); err != nil {
			t.Fatalf("Write: %v", err)
		}
		sc.pipe() // and one that has said nothing
		synctest.Wait()
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := sc.srv.Shutdown(limited); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown = %v, want its deadline exceeded", err)
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("Shutdown took %v, want 1s", got)
		}
	})
	bubble(t, func(t *testing.T, sc *scene) { // without a deadline, our own bound holds
		p := sc.raw()
		p.open()
		start := time.Now()
		if err := sc.srv.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if got := time.Since(start); got != 5*time.Second {
			t.Errorf("Shutdown took %v, want 5s", got)
		}
		if c := expect[*amqp.Close](p); cond(c.Error) != string(amqp.ErrCondConnectionForced) {
			t.Errorf("close = %v, want connection:forced", c.Error)
		}
	})
}

// A peer that says nonsense and does not read is not waited for longer than one that closes.
func TestStalledPeerThatIsRefusedIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		nc := sc.pipe()
		b := append([]byte(nil), amqp.ProtoAMQP[:]...)
		b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "stalled", MaxFrameSize: 65536}, nil)
		if _, err := nc.Write(b); err != nil {
			t.Fatalf("Write: %v", err)
		}
		synctest.Wait() // the write of our open has begun, with its own deadline
		start := time.Now()
		if _, err := nc.Write([]byte{0x7f, 0, 0, 0, 2, 0, 0, 0}); err != nil {
			t.Fatalf("Write: %v", err)
		}
		if err := <-sc.errs; err == nil {
			t.Error("ServeConn = nil, want an error")
		}
		if got := time.Since(start); got != 5*time.Second {
			t.Errorf("dropped after %v, want 5s", got)
		}
	})
}

func TestConnectionsAreLimited(t *testing.T) {
	bubble(t, func(t *testing.T, sc *scene) {
		p := sc.raw()
		p.open()
		if err := sc.srv.ServeConn(sc.pipeEnd()); !errors.Is(err, ErrTooManyConns) {
			t.Errorf("ServeConn = %v, want ErrTooManyConns", err)
		}
		p.nc.Close()
		synctest.Wait()
		q := sc.raw()
		q.open()
	}, func(c *Config) { c.MaxConns = 1 })
}

func TestTCPPeerThatNeverReadsItsClose(t *testing.T) {
	sc := setup(t, func(c *Config) { c.CloseTimeout = 50 * time.Millisecond })
	nc, err := net.Dial("tcp", sc.listen())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer nc.Close()
	b := append([]byte(nil), amqp.ProtoAMQP[:]...)
	b = amqp.AppendFrame(b, 0, &amqp.Open{ContainerID: "x", MaxFrameSize: 65536}, nil)
	b = append(b, 0x7f, 0, 0, 0, 2, 0, 0, 0)
	b = append(b, make([]byte, 100_000)...) // unread by the server when it refuses
	if _, err := nc.Write(b); err != nil {
		t.Fatalf("Write: %v", err)
	}
	got, err := io.ReadAll(nc)
	if err != nil {
		t.Errorf("reading to the end: %v", err)
	}
	if want := "framing-error"; !contains(got, want) {
		t.Errorf("%q does not say %s", got, want)
	}
}

func contains(b []byte, s string) bool {
	for i := range len(b) - len(s) + 1 {
		if string(b[i:i+len(s)]) == s {
			return true
		}
	}
	return false
}
