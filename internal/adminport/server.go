// SPDX-License-Identifier: Apache-2.0

package adminport

import (
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
)

const (
	// requestTimeout bounds header and body since the connection was accepted: each carries one
	// request. A peer that merely holds a connection keeps a probe out for no longer.
	requestTimeout = 2 * time.Second
	// WriteTimeout leaves room for a profile of a minute.
	WriteTimeout = 2 * time.Minute
	// ProbesWriteTimeout is that of listen.probes, which has no profiles.
	ProbesWriteTimeout = 10 * time.Second

	maxHeaderBytes = 32 << 10
	maxConns       = 128 // probes, scrapers and an operator
)

// LimitConns makes ln accept no more connections at a time than operators and probes need. Others
// wait until one ends.
func LimitConns(ln net.Listener) net.Listener { return netutil.LimitListener(ln, maxConns) }

// NewServer bounds what one peer can hold: the header and the time to send it, the time to read and
// to write. Each connection carries one request: probes and scrapers come rarely, and a connection
// that waits for its next request has a place that somebody else needs. It does not outlive its
// listener.
func NewServer(h http.Handler, write time.Duration, log *zap.Logger) *http.Server {
	// A peer's faults are the peer's business, and there may be many of them.
	quiet, err := zap.NewStdLogAt(log, zap.DebugLevel)
	if err != nil {
		quiet = zap.NewStdLog(zap.NewNop())
	}
	s := &http.Server{
		Handler:        h,
		MaxHeaderBytes: maxHeaderBytes,
		ReadTimeout:    requestTimeout,
		WriteTimeout:   write,
		ErrorLog:       quiet,
	}
	s.SetKeepAlivesEnabled(false)
	return s
}
