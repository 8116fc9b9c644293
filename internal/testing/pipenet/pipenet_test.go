// SPDX-License-Identifier: Apache-2.0

package pipenet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// setup returns a network with one connection, the dialler's end first.
func setup(t *testing.T) (n *Network, dialer, accepted net.Conn) {
	t.Helper()
	n = New()
	l, err := n.Listen("broker")
	if err != nil {
		t.Fatal(err)
	}
	dialer, err = n.Dial(t.Context(), "broker")
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		_ = dialer.Close()
		_ = accepted.Close()
		n.Resume(Both)
		n.Cut()
	})
	return n, dialer, accepted
}

// send writes from another goroutine and returns the channel with its error.
func send(c net.Conn, text string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, text)
		done <- err
	}()
	return done
}

func read(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatalf("Read = %v", err)
	}
	return string(buf)
}

func TestBytesArriveInBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, a := setup(t)
		done := send(d, "ping")
		if got := read(t, a, 4); got != "ping" {
			t.Errorf("accepted end read %q, want ping", got)
		}
		done2 := send(a, "pong")
		if got := read(t, d, 4); got != "pong" {
			t.Errorf("dialling end read %q, want pong", got)
		}
		if err := errors.Join(<-done, <-done2); err != nil {
			t.Errorf("Write = %v, want nil", err)
		}
		if got := n.Conns(); got != 1 {
			t.Errorf("Conns = %d, want 1", got)
		}
		_ = d.Close()
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("Read after the peer closed = %v, want io.EOF", err)
		}
		if _, err := a.Write([]byte{1}); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after the peer closed = %v, want EPIPE", err)
		}
		if _, err := d.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read of a closed conn = %v, want net.ErrClosed", err)
		}
		if got := n.Conns(); got != 0 {
			t.Errorf("Conns after Close = %d, want 0", got)
		}
	})
}

func TestDialFailsLikeTCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		var netErr net.Error
		if _, err := n.Dial(t.Context(), "nobody"); !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &netErr) {
			t.Errorf("Dial without a listener = %v, want a net.Error that wraps ECONNREFUSED", err)
		}
		l, err := n.Listen("broker")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Listen("broker"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("second Listen = %v, want EADDRINUSE", err)
		}
		for range backlog {
			if _, err := n.Dial(t.Context(), "broker"); err != nil {
				t.Fatalf("Dial into the backlog = %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "broker"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial with a full backlog = %v, want DeadlineExceeded", err)
		}
		waiting := make(chan error)
		go func() {
			_, err := n.Dial(t.Context(), "broker")
			waiting <- err
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting; !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial while the listener closed = %v, want ECONNREFUSED", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close = %v, want net.ErrClosed", err)
		}
		if got := n.Conns(); got != 0 {
			t.Errorf("Conns after the listener closed = %d, want 0", got)
		}
		if _, err := n.Listen("broker"); err != nil {
			t.Errorf("Listen on a freed address = %v", err)
		}
	})
}

func TestRefuseStopsDialsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, a := setup(t)
		n.Refuse(true)
		if _, err := n.Dial(t.Context(), "broker"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial while refused = %v, want ECONNREFUSED", err)
		}
		done := send(d, "x")
		read(t, a, 1)
		if err := <-done; err != nil {
			t.Errorf("Write on a live connection = %v", err)
		}
		n.Refuse(false)
		if _, err := n.Dial(t.Context(), "broker"); err != nil {
			t.Errorf("Dial after Refuse(false) = %v", err)
		}
	})
}

func TestCutBreaksBothSidesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, a := setup(t)
		readErr := make(chan error, 1)
		go func() {
			_, err := d.Read(make([]byte, 1))
			readErr <- err
		}()
		synctest.Wait()
		if got := n.Cut(); got != 1 {
			t.Errorf("Cut = %d connections, want 1", got)
		}
		if err := <-readErr; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Read = %v, want ECONNRESET", err)
		}
		if _, err := a.Write([]byte{1}); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Write = %v, want ECONNRESET", err)
		}
		if got := n.Cut(); got != 0 {
			t.Errorf("second Cut = %d connections, want 0", got)
		}
	})
}

func TestCutAfterLetsExactlyThatManyBytesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, a := setup(t)
		n.CutAfter(ToListener, 6)
		first, second := send(d, "abcd"), ""
		read(t, a, 4)
		if err := <-first; err != nil {
			t.Fatalf("Write within the allowance = %v", err)
		}
		done := send(d, "efgh")
		buf := make([]byte, 8)
		k, err := io.ReadFull(a, buf)
		second = string(buf[:k])
		if second != "ef" || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read %q, %v; want ef and ECONNRESET", second, err)
		}
		if err := <-done; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Write over the allowance = %v, want ECONNRESET", err)
		}
		if d2, err := n.Dial(t.Context(), "broker"); err != nil || d2 == nil {
			t.Errorf("Dial after the cut = %v; the fault happens once", err)
		}
	})
}

func TestStallHoldsOneDirectionUntilResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, a := setup(t)
		n.Stall(ToListener)
		held := send(d, "held")
		free := send(a, "free")
		if got := read(t, d, 4); got != "free" {
			t.Errorf("read %q from the direction that is not stalled", got)
		}
		if err := <-free; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		select {
		case err := <-held:
			t.Fatalf("Write into a stall returned %v", err)
		default:
		}
		n.Resume(ToListener)
		if got := read(t, a, 4); got != "held" {
			t.Errorf("read %q after Resume, want held", got)
		}
		if err := <-held; err != nil {
			t.Errorf("Write = %v after Resume", err)
		}
	})
}

func TestStalledWriteMeetsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, _ := setup(t)
		n.Stall(ToListener)
		start := time.Now()
		if err := d.SetWriteDeadline(start.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		_, err := d.Write([]byte("x"))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("Write = %v after %v, want deadline exceeded after 1m", err, time.Since(start))
		}
		var netErr net.Error
		if !errors.As(err, &netErr) || !netErr.Timeout() {
			t.Errorf("%v is no timeout in the sense of net.Error", err)
		}
		// A later deadline revives the connection.
		if err := d.SetWriteDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		done := send(d, "y")
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("Write without a deadline = %v, want it to wait", err)
		default:
		}
	})
}

func TestStallHidesACloseFromThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, a := setup(t)
		n.Stall(Both)
		_ = d.Close()
		if err := a.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read from a half-open connection = %v, want deadline exceeded", err)
		}
		if err := a.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		n.Resume(Both)
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("Read after Resume = %v, want io.EOF", err)
		}
	})
}

func TestDelayShiftsBytesWithoutHoldingTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, a := setup(t)
		n.Delay(ToListener, 10*time.Millisecond)
		start := time.Now()
		for _, s := range []string{"a", "b", "c"} {
			if _, err := io.WriteString(d, s); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if got := time.Since(start); got != 3*time.Millisecond {
			t.Errorf("three writes took %v, want the 3ms slept between them", got)
		}
		n.Delay(ToListener, 0) // the next one must not overtake
		if _, err := io.WriteString(d, "d"); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"a", "b", "c", "d"} {
			if got := read(t, a, 1); got != want {
				t.Errorf("byte %d = %q, want %q", i, got, want)
			}
		}
		if got := time.Since(start); got != 12*time.Millisecond {
			t.Errorf("the last byte arrived after %v, want 12ms", got)
		}
	})
}

func TestDelayedBytesSurviveACloseAndFillUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, a := setup(t)
		n.Delay(ToListener, time.Second)
		if _, err := d.Write(make([]byte, lineLimit)); err != nil {
			t.Fatal(err)
		}
		full := send(d, "tail")
		synctest.Wait()
		select {
		case err := <-full:
			t.Fatalf("Write into a full line = %v, want it to wait", err)
		default:
		}
		read(t, a, lineLimit)
		if err := <-full; err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after Close = %v, want net.ErrClosed", err)
		}
		// Nor does a deadline set late revive it.
		if err := d.SetReadDeadline(time.Now().Add(time.Hour)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("SetReadDeadline after Close = %v, want net.ErrClosed", err)
		}
		start := time.Now()
		if _, err := d.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) || time.Since(start) > 0 {
			t.Errorf("Read after Close = %v after %v, want net.ErrClosed at once", err, time.Since(start))
		}
		rest, err := io.ReadAll(a)
		if string(rest) != "tail" || err != nil {
			t.Errorf("read %q, %v behind the close, want tail and no error", rest, err)
		}
	})
}

func TestClosedConnectionDoesNotLingerForASilentReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, _ := setup(t)
		n.Delay(ToListener, time.Millisecond)
		if _, err := io.WriteString(d, "never read"); err != nil {
			t.Fatal(err)
		}
		n.Stall(ToListener)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(linger)
		synctest.Wait() // the bubble fails if the line's goroutine stays
		if got := n.Conns(); got != 0 {
			t.Errorf("Conns = %d after the linger time, want 0", got)
		}
	})
}
