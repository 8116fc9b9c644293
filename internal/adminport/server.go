// SPDX-License-Identifier: Apache-2.0

package adminport

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/netutil"

	"overdue/internal/config"
	"overdue/internal/escape"
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

// configz shows the settings in force and where each that is not a default came from.
func (a *Port) configz(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(cmp.Or(a.Current.Load(), a.Config).Sources.Redacted(), "", "  ")
	if err != nil {
		answer(w, http.StatusInternalServerError, "the configuration cannot be shown: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(escape.JSON(body), '\n')) // an error is the caller's loss only
}

// showLevel answers with the level that is logged.
func (a *Port) showLevel(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, "{\"level\":%q}\n", a.Level.Level()) // the caller's loss
}

// setLevel takes level=debug, {"level":"debug"} and debug, whatever the request says that its body
// is: curl says of each that it is a form.
func (a *Port) setLevel(w http.ResponseWriter, r *http.Request) {
	levels := config.SettingAt("log.level").Choices
	body, err := io.ReadAll(r.Body)
	text := strings.TrimSpace(string(body))
	var asJSON struct {
		Level string `json:"level"`
	}
	if json.Unmarshal(body, &asJSON) == nil {
		text = asJSON.Level
	}
	text = strings.ToLower(strings.TrimPrefix(text, "level="))
	if err != nil || !slices.Contains(levels, text) {
		answer(w, http.StatusBadRequest, fmt.Sprintf("%q is not a level; send level=debug, level=info, level=warn or level=error", config.Clip(text)))
		return
	}
	level, err := zapcore.ParseLevel(text)
	if err != nil {
		answer(w, http.StatusInternalServerError, err.Error()) // the settings have a level that zap has not
		return
	}
	a.Level.SetLevel(level)
	a.showLevel(w, r)
}

// index lists the endpoints of the admin port, for a browser.
const index = `overdue

GET  /dashboard/        deadlines, health, sinks and settings as a page
GET  /livez             the process is there
GET  /startupz          its endpoints are open
GET  /readyz            it can do its work; ?verbose says what was asked
GET  /healthz/outbound  the namespace and the sinks of alerts answer
GET  /metrics           for Prometheus
GET  /configz           the settings in force, without secrets
GET  /notifications     the latest events and the sinks that took them; ?message-id= of one message
GET  /history/missed    missed deadlines; ?since= a time, ?entity= of one queue or topic
GET  /history/slack     how much time was left when messages were settled; parameters as above
GET  /history/minutes   sends, outcomes and alerts by the minute; parameters as above
GET  /history/unknown   deadlines whose outcome is not known, and why; parameters as above
GET  /fleet             the processes that share its Redis, and the outcomes of today and ever
GET  /loglevel          the least level that is logged
PUT  /loglevel          level=debug, info, warn or error: another one
POST /drain             do what SIGTERM does, and stay
POST /quitquitquit      end at once
GET  /debug/pprof/      profiles of Go

PUT and POST need the header Overdue-Admin: 1.
`
