// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Bounds of the admin port.
const (
	maxHeaderBytes    = 32 << 10
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxAdminConns     = 128 // probes, scrapers and an operator
)

// listen opens the address of a setting. Its errors say how to change it.
func (c *config) listen(key, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		return ln, nil
	}
	s := byPath[key]
	ways := fmt.Sprintf("--%s, %s or %s in the configuration file", s.flag, s.env(), key)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use by another process; stop that one, or choose another port with %s", c.at(key), addr, ways)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: this user may not listen on %s; choose a port above 1023 with %s", c.at(key), addr, ways)
	}
	return nil, fmt.Errorf("%s: cannot listen on %s: %w; choose another address with %s", c.at(key), addr, err, ways)
}

// newServer bounds what one peer can hold: header, time to send it, time to read and to
// write, and idle time. It does not outlive its listener.
func newServer(h http.Handler, read, write time.Duration, log *zap.Logger) *http.Server {
	// What a peer does wrong is the peer's business, and there may be much of it.
	quiet, err := zap.NewStdLogAt(log, zap.DebugLevel)
	if err != nil {
		quiet = zap.NewStdLog(zap.NewNop())
	}
	return &http.Server{
		Handler: h, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout: read, WriteTimeout: write, IdleTimeout: idleTimeout, ErrorLog: quiet,
	}
}

// A limitListener accepts no more than so many connections at a time. Others wait in the
// kernel's queue, which is bounded.
type limitListener struct {
	net.Listener
	places chan struct{}
	once   sync.Once
	closed chan struct{}
}

// limit makes ln wait with the next connection while n are open.
func limit(ln net.Listener, n int) net.Listener {
	return &limitListener{Listener: ln, places: make(chan struct{}, n), closed: make(chan struct{})}
}

func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitConn{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitConn struct {
	net.Conn
	leave func()
}

func (c *limitConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
