// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"go.uber.org/zap"

	"overdue/internal/config"
)

// Bounds of the admin port and of that for probes.
const (
	maxHeaderBytes    = 32 << 10
	readHeaderTimeout = 2 * time.Second // since the connection was accepted: each carries one request
	maxAdminConns     = 128             // probes, scrapers and an operator
)

// listen opens the address of a setting. Its errors say how to change it.
func listen(c *config.Config, key, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		return ln, nil
	}
	s := config.SettingAt(key)
	ways := fmt.Sprintf("--%s, %s or %s in the configuration file", s.Flag, s.Env(), key)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use by another process; stop that one, or choose another port with %s", c.At(key), addr, ways)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: this user may not listen on %s; choose a port above 1023 with %s", c.At(key), addr, ways)
	}
	return nil, fmt.Errorf("%s: cannot listen on %s: %w; choose another address with %s", c.At(key), addr, err, ways)
}

// newServer bounds what one peer can hold: the header and the time to send it, the time to read and to write. Each connection
// carries one request: probes and scrapers come seldom, and a connection that waits for its next request has a place that
// somebody else needs. It does not outlive its listener.
func newServer(h http.Handler, read, write time.Duration, log *zap.Logger) *http.Server {
	// What a peer does wrong is the peer's business, and there may be much of it.
	quiet, err := zap.NewStdLogAt(log, zap.DebugLevel)
	if err != nil {
		quiet = zap.NewStdLog(zap.NewNop())
	}
	s := &http.Server{
		Handler: busyWhileAnswering(h), ConnContext: withYieldingConn, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout: read, WriteTimeout: write, ErrorLog: quiet,
	}
	s.SetKeepAlivesEnabled(false)
	return s
}
