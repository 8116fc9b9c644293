// SPDX-License-Identifier: Apache-2.0

package adminport

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// A yieldingListener keeps no more than so many connections. When there are as many and one more
// comes, the one closes that has been idle the longest: nobody who merely holds a connection keeps
// a probe out. A connection whose request is being answered is not idle, and keeps its place; where
// all are busy the newcomer waits for the first that is not.
type yieldingListener struct {
	net.Listener
	most int

	mu     sync.Mutex
	idle   []*yieldingConn // since when is their order: the first one yields first
	busy   int
	change chan struct{} // has a value when a connection became idle or left since the last check

	once   sync.Once
	closed chan struct{}
}

// yielding makes ln keep at most so many connections. Its server must be one of NewServer.
func yielding(ln net.Listener, most int) *yieldingListener {
	return &yieldingListener{Listener: ln, most: most, change: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (l *yieldingListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &yieldingConn{Conn: nc, l: l}
	for {
		entered, out := l.enter(c)
		if out != nil {
			_ = out.Conn.Close() // its server learns of it by its next read
		}
		if entered {
			return c, nil
		}
		select {
		case <-l.change:
		case <-l.closed:
			_ = nc.Close()
			return nil, net.ErrClosed
		}
	}
}

// Close ends an Accept that waits for a place, too.
func (l *yieldingListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// enter gives c a place if there is one. out is the connection that has lost its own to c.
func (l *yieldingListener) enter(c *yieldingConn) (entered bool, out *yieldingConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy+len(l.idle) >= l.most {
		if len(l.idle) == 0 {
			return false, nil
		}
		out = l.idle[0]
		l.moveLocked(out, connGone)
	}
	l.moveLocked(c, connIdle)
	return true, out
}

// moveLocked makes a connection idle, busy or gone, and is the only place that does.
func (l *yieldingListener) moveLocked(c *yieldingConn, to connState) {
	switch c.state {
	case connIdle:
		for i, other := range l.idle {
			if other == c {
				l.idle = append(l.idle[:i], l.idle[i+1:]...)
				break
			}
		}
	case connBusy:
		l.busy--
	}
	switch c.state = to; to {
	case connIdle:
		l.idle = append(l.idle, c)
	case connBusy:
		l.busy++
		return
	}
	select {
	case l.change <- struct{}{}:
	default: // the waiting goroutine checks again anyway
	}
}

type connState uint8

const (
	connGone connState = iota // has no place: closed, or not let in yet
	connIdle                  // sends its request, has been answered, or is silent
	connBusy                  // its request is being answered
)

// A yieldingConn is a connection of a yieldingListener.
type yieldingConn struct {
	net.Conn
	l     *yieldingListener
	state connState // guarded by l.mu
}

// move reports false of a connection that has lost its place.
func (c *yieldingConn) move(to connState) bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.state == connGone {
		return false
	}
	c.l.moveLocked(c, to)
	return true
}

func (c *yieldingConn) Close() error {
	c.move(connGone)
	return c.Conn.Close()
}

// yieldingConnKey is where the context of a request has its connection.
type yieldingConnKey struct{}

func withYieldingConn(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, yieldingConnKey{}, c)
}

// answerGrace is how long an answer may take to be written before its connection may yield.
const answerGrace = 100 * time.Millisecond

// busyWhileAnswering keeps the connection of a request from yielding until h has answered, and for
// answerGrace longer: the server writes the end of an answer only after h has returned.
func busyWhileAnswering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(yieldingConnKey{}).(*yieldingConn); ok {
			if !c.move(connBusy) {
				return // it has yielded, and nobody reads the answer
			}
			defer time.AfterFunc(answerGrace, func() { c.move(connIdle) }) // nothing to do if closed by then
		}
		h.ServeHTTP(w, r)
	})
}
