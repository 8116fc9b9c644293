// SPDX-License-Identifier: Apache-2.0

package adminport

import (
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

const (
	readTimeout = 10 * time.Second
	// WriteTimeout leaves room for a profile of a minute, of which there is none at listen.probes.
	WriteTimeout       = 2 * time.Minute
	ProbesWriteTimeout = 10 * time.Second

	maxHeaderBytes    = 32 << 10
	readHeaderTimeout = 2 * time.Second // since the connection was accepted: each carries one request
	maxConns          = 128             // probes, scrapers and an operator
)

// LimitConns makes ln keep no more connections than operators and probes need. Its server must be
// one of NewServer.
func LimitConns(ln net.Listener) net.Listener { return yielding(ln, maxConns) }

// NewServer bounds what one peer can hold: the header and the time to send it, the time to read and
// to write. Each connection carries one request: probes and scrapers come rarely, and a connection
// that waits for its next request has a place that somebody else needs. It does not outlive its
// listener.
func NewServer(h http.Handler, write time.Duration, log *zap.Logger) *http.Server {
	// What a peer does wrong is the peer's business, and there may be much of it.
	quiet, err := zap.NewStdLogAt(log, zap.DebugLevel)
	if err != nil {
		quiet = zap.NewStdLog(zap.NewNop())
	}
	s := &http.Server{
		Handler: busyWhileAnswering(h), ConnContext: withYieldingConn, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout: readTimeout, WriteTimeout: write, ErrorLog: quiet,
	}
	s.SetKeepAlivesEnabled(false)
	return s
}
