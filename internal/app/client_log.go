// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.uber.org/zap"

	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/listener"
)

// clientLog logs what the clients of the embedded broker do: everything at level debug, and once
// what the person who tries it for the first time has to change.
type clientLog struct {
	log *zap.Logger

	mu   sync.Mutex
	said map[string]bool // causes
}

// maxCauses bounds the names that clients can make a warning of.
const maxCauses = 100

// maxCandidates bounds the names that are compared with one that does not exist.
const maxCandidates = 1000

// first reports whether nobody has heard of a cause yet. The last one that is heard of says so.
func (l *clientLog) first(cause string) bool {
	isFirst, isLast := l.remember(cause)
	if isLast {
		l.log.Warn("clients name much that does not exist: further names are logged at level debug alone")
	}
	return isFirst
}

func (l *clientLog) remember(cause string) (isFirst, isLast bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said[cause] || len(l.said) >= maxCauses {
		return false, false
	}
	if l.said == nil {
		l.said = make(map[string]bool)
	}
	l.said[cause] = true
	return true, len(l.said) == maxCauses
}

// ended logs why a connection has ended.
func (l *clientLog) ended(err error) {
	if errors.Is(err, listener.ErrNoTLS) && l.first("TLS") {
		l.log.Warn("a client of the embedded broker begins with TLS, and the broker has no certificate: "+
			"end its connection string with UseDevelopmentEmulator=true, or start the broker with --broker-tls-enabled",
			zap.Error(err))
	}
	l.log.Debug("broker connection ended", zap.Error(err))
}

// An activityLine is how an operation is logged.
type activityLine struct {
	text   string
	detail string // key of broker.Activity.Detail; "": it has none
}

var activityLines = map[broker.Operation]activityLine{
	broker.OnAttach:     {"client attaches a link", "role"},
	broker.OnSend:       {"client sends", ""},
	broker.OnReceive:    {"client receives", ""},
	broker.OnSettle:     {"client settles", "outcome"},
	broker.OnManagement: {"client sends a request to $management", "request"},
	broker.OnToken:      {"client puts a token", ""},
	broker.OnRequest:    {"client sends a request over HTTP", "method"},
}

// note logs an activity.
func (l *clientLog) note(a broker.Activity) {
	if a.IsMissing() {
		l.noteMissing(a)
	}
	if !l.log.Core().Enabled(zap.DebugLevel) {
		return
	}
	line := activityLines[a.Operation]
	fields := []zap.Field{zap.Stringer("client", a.Client), zap.String("path", config.Clip(a.Path))}
	if line.detail != "" && a.Detail != "" {
		fields = append(fields, zap.String(line.detail, config.Clip(a.Detail)))
	}
	if a.Messages > 0 {
		fields = append(fields, zap.Int("messages", a.Messages))
	}
	if a.Namespace != nil && a.Namespace.Name() != "" {
		fields = append(fields, zap.String("namespace", a.Namespace.Name()))
	}
	if a.Refusal != nil {
		fields = append(fields, zap.String("refused", string(a.Refusal.Condition)+": "+a.Refusal.Description))
	}
	l.log.Debug(line.text, fields...)
}

// noteMissing says which entity a client names that does not exist, and which it may mean. The names
// are in the message, since equal messages are sampled.
func (l *clientLog) noteMissing(a broker.Activity) {
	name := a.Entity()
	shown := config.Clip(name)
	if !l.first("missing " + a.Namespace.Name() + " " + strings.ToLower(shown)) {
		return
	}
	var names []string
	for _, e := range a.Namespace.Entities() {
		names = append(names, e.Path())
	}
	hint := "GET /_overdue/entities lists those that exist"
	if near := config.Nearest(name, names[:min(len(names), maxCandidates)]); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	l.log.Warn(fmt.Sprintf("a client names %q, which does not exist in the embedded broker; %s", shown, hint), zap.Stringer("client", a.Client))
}
