// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// flakyListener fails a few times before it gives out connections.
type flakyListener struct {
	net.Listener
	errs  []error
	conns chan net.Conn
	once  sync.Once
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	nc, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return nc, nil
}

func (l *flakyListener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

func newFlaky(errs ...error) *flakyListener {
	return &flakyListener{errs: errs, conns: make(chan net.Conn, 4)}
}

func TestServeOutlivesAShortageOfDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := make(chan error, 8)
		table := New[net.Conn]("test", 4, func(err error) { logged <- err })
		ln := newFlaky(&net.OpError{Op: "accept", Err: syscall.EMFILE}, &net.OpError{Op: "accept", Err: syscall.EMFILE})
		near, far := net.Pipe()
		defer near.Close()
		ln.conns <- far
		served, ended, broken := make(chan time.Duration, 1), make(chan error, 1), errors.New("it broke")
		start := time.Now()
		go func() {
			ended <- table.Serve(ln, func(nc net.Conn) error {
				served <- time.Since(start)
				nc.Close()
				return broken
			})
		}()
		if got, want := <-served, 3*acceptPause; got != want {
			t.Errorf("accepted after %v, want %v", got, want)
		}
		for _, want := range []error{syscall.EMFILE, syscall.EMFILE, broken} {
			if got := <-logged; !errors.Is(got, want) {
				t.Errorf("logged %v, want %v", got, want)
			}
		}
		table.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
		if err := table.Serve(newFlaky(), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("Serve after Close = %v, want ErrClosed", err)
		}
	})
}

func TestServeReturnsWhatBreaksItsListener(t *testing.T) {
	want := errors.New("cable cut")
	if err := New[net.Conn]("test", 4, nil).Serve(newFlaky(want), nil); !errors.Is(err, want) {
		t.Errorf("Serve = %v, want %v", err, want)
	}
}

func TestATableTakesNoMoreThanItsBoundAndEndsWithTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New[int]("test", 2, nil)
		enter := func() (int, net.Conn, error) {
			near, far := net.Pipe()
			t.Cleanup(func() { near.Close() })
			id, err := table.Enter(far, func(id uint64) int { return int(id) })
			return id, near, err
		}
		a, _, errA := enter()
		b, _, errB := enter()
		if errA != nil || errB != nil || a == b {
			t.Fatalf("Enter = %d %v and %d %v, want two numbers", a, errA, b, errB)
		}
		_, peer, err := enter()
		if !errors.Is(err, ErrTooMany) {
			t.Errorf("Enter beyond the bound = %v, want ErrTooMany", err)
		}
		if _, err := peer.Read(make([]byte, 1)); err == nil {
			t.Error("a refused connection is open, want it closed")
		}
		table.Leave(a)
		c, _, err := enter()
		if err != nil {
			t.Errorf("Enter after one left = %v, want nil", err)
		}
		if n := len(table.Close()); n != 2 {
			t.Errorf("Close returned %d connections, want 2", n)
		}
		if _, _, err := enter(); !errors.Is(err, ErrClosed) {
			t.Errorf("Enter after Close = %v, want ErrClosed", err)
		}
		gone := table.Gone()
		table.Leave(b)
		synctest.Wait()
		select {
		case <-gone:
			t.Error("Gone before the last connection left")
		default:
		}
		table.Leave(c)
		<-gone
		<-table.Gone()
	})
}

// A caller that waits for the last connection may end the target of the log.
func TestNothingIsLoggedAfterTheLastConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logging, logged := make(chan struct{}), make(chan struct{})
		table := New[net.Conn]("test", 4, func(error) { close(logging); <-logged })
		ln := newFlaky()
		near, far := net.Pipe()
		defer near.Close()
		ln.conns <- far
		ended := make(chan error, 1)
		go func() {
			ended <- table.Serve(ln, func(nc net.Conn) error {
				if _, err := table.Enter(nc, func(uint64) net.Conn { return nc }); err != nil {
					return err
				}
				defer table.Leave(nc)
				defer nc.Close()
				return errors.New("it broke")
			})
		}()
		<-logging
		table.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
		gone := table.Gone()
		synctest.Wait()
		select {
		case <-gone:
			t.Error("the last connection has left before its end was logged")
		default:
		}
		close(logged)
		<-gone
		<-table.Gone()
	})
}
