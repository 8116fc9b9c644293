// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"go.uber.org/zap"

	"overdue/scheduler"
)

// logAccepted logs, at level debug, n messages that the broker has accepted. companion is the kind
// of their companions, "none" where they have none; refs are the references. A send that fails is
// logged where its error stops.
func (p *Proxy) logAccepted(via, entity string, n int, companion string, refs []scheduler.Reference) {
	ce := p.cfg.Log.Check(zap.DebugLevel, "send accepted")
	if ce == nil {
		return
	}
	fields := []zap.Field{zap.String("work_queue", entity), zap.String("endpoint", via), zap.Int("messages", n), zap.String("companion", companion)}
	if len(refs) > 0 { // the first stands for all: a batch has thousands
		fields = append(fields, zap.Time("deadline", refs[0].Deadline), zap.String("stated", refs[0].Stated))
		if refs[0].MessageID != "" {
			fields = append(fields, zap.String("message_id", refs[0].MessageID))
		}
	}
	ce.Write(fields...)
}

// failure returns what the log says of a send that failed. The first message stands for all.
func (s *send) failure(err error) []zap.Field {
	fields := []zap.Field{zap.String("work_queue", s.entity), zap.String("endpoint", s.via), zap.Int("messages", s.n), zap.Error(err)}
	id := ""
	if len(s.ms) > 0 {
		id = s.ms[0].ID
	} else if len(s.refs) > 0 { // the promises are made
		id = s.refs[0].MessageID
	}
	if id != "" {
		fields = append(fields, zap.String("message_id", id))
	}
	return fields
}

// companionKind names the kind of the companions of a send, for the log.
func (s *send) companionKind() string {
	switch {
	case len(s.promises) == 0:
		return "none"
	case s.slotted:
		return "slot"
	}
	return "each"
}
