// SPDX-License-Identifier: Apache-2.0

package proxy

import "overdue/internal/traces"

// A tracedSend is the trace of a send, nil if it is not recorded.
type tracedSend = *traces.Send

// traced begins the trace of s, if it is recorded. Its parent is the context that its messages
// carry. The proxy adds none to a message without one: no message changes its content.
func (s *send) traced() *traces.Send {
	if s.p.cfg.Traces == nil || len(s.ms) == 0 || s.via == endpointCanary {
		return nil
	}
	return s.p.cfg.Traces.Begin(traces.Start{Entity: s.entity, Endpoint: s.via, Messages: s.n, Began: s.began}, func(yield func(func(string) any) bool) {
		for _, m := range s.ms {
			if m.Property != nil && !yield(m.Property) {
				return
			}
		}
	})
}

// tracePromises adds what was promised to the trace, and returns the traceparent for references.
func (s *send) tracePromises(id string) string {
	if s.trace == nil {
		return ""
	}
	ref := &s.promises[0].ref
	s.trace.Promised(id, ref.Deadline, ref.Stated, s.slotted)
	return s.trace.Context().String()
}

// traceSchedules notes that companions are being written.
func (s *send) traceSchedules(references int) {
	if s.trace != nil {
		s.mu.Lock()
		s.trace.Schedules(references)
		s.mu.Unlock()
	}
}

// traceLocked notes an outcome in the trace.
func (s *send) traceLocked(in input, err error) {
	switch {
	case s.trace == nil:
	case in == brokerSettled:
		s.trace.Settled(s.left, fault(err, s.entity))
	case in == companionScheduled:
		s.trace.Scheduled(fault(err, s.entity))
	}
}

// fault describes err in a span.
func fault(err error, entity string) traces.Failure {
	if err == nil {
		return traces.Failure{}
	}
	said := refusal(err, entity)
	return traces.Failure{Type: string(said.Condition), Text: said.Description}
}
