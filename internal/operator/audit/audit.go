// SPDX-License-Identifier: Apache-2.0

// Package audit logs what people change by hand: who did it, why, and to how many messages.
package audit

import (
	"strings"

	"go.uber.org/zap"
)

// Events of an action.
const (
	Started = "started"
	Ended   = "ended"
	Refused = "refused"
)

// MaxText bounds who and why, in bytes.
const MaxText = 500

// A Line is one line of the log about an action. Strings may be empty.
type Line struct {
	Event          string
	Action, Entity string
	To, Filter     string
	Edits          string // what copies have otherwise, by its name
	Chosen, Done   int    // messages
	Person         string // that the reverse proxy names, or that says so
	Why            string
	Caller         string // its address
	Err            error  // why it was refused, or what is left
}

// Write logs the line.
func (l *Line) Write(log *zap.Logger) {
	fields := []zap.Field{zap.String("action", l.Action), zap.String("work_queue", l.Entity)}
	for _, f := range []struct{ key, text string }{
		{"person", l.Person},
		{"why", l.Why},
		{"to", l.To},
		{"filter", l.Filter},
		{"edits", l.Edits},
		{"caller", l.Caller},
	} {
		if f.text != "" {
			fields = append(fields, zap.String(f.key, bounded(f.text)))
		}
	}
	if l.Chosen > 0 {
		fields = append(fields, zap.Int("chosen", l.Chosen))
		if l.Event == Ended {
			fields = append(fields, zap.Int("done", l.Done))
		}
	}
	fields = append(fields, zap.Error(l.Err))
	if l.Event == Refused {
		log.Warn("action refused", fields...)
		return
	}
	log.Info("action "+l.Event, fields...)
}

func bounded(text string) string {
	if len(text) <= MaxText {
		return text
	}
	return strings.ToValidUTF8(text[:MaxText], "") + "…"
}
