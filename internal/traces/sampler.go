// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"encoding/binary"
	"strconv"
	"strings"

	"overdue/internal/traceparent"
)

// A Sampler decides which spans are recorded. Its zero value is parentbased_always_on: it follows
// the context that a message carries, and records what has none.
type Sampler struct {
	ignoresParent bool   // it asks nobody
	fewer         bool   // it records fewer than all of the traces that begin here, see below
	below         uint64 // a trace is recorded if the last 63 bits of its id are less than this
}

// sampler reads OTEL_TRACES_SAMPLER and its argument.
func (e *environment) sampler() (s Sampler) {
	const name, argument = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	text := strings.TrimSpace(e.getenv(name))
	root, parentBased := strings.CutPrefix(text, "parentbased_")
	s.ignoresParent = text != "" && !parentBased
	switch root {
	case "", "always_on":
	case "always_off":
		s.fewer = true
	case "traceidratio":
		ratio := 1.0
		if text := strings.TrimSpace(e.getenv(argument)); text != "" {
			var err error
			if ratio, err = strconv.ParseFloat(text, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				e.fail(argument, text, "a number from 0 to 1")
			}
		}
		s.fewer, s.below = ratio < 1, uint64(ratio*(1<<63))
	default:
		e.fail(name, text, "always_on, always_off, traceidratio, or one of these after parentbased_")
	}
	return s
}

// samples decides about a span with this parent, if there is one, in the trace.
func (s *Sampler) samples(parent traceparent.Context, hasParent bool, trace [16]byte) bool {
	switch {
	case hasParent && !s.ignoresParent:
		return parent.Sampled
	case s.fewer:
		// Any part of the id would do. This one is that of the OpenTelemetry SDKs, so that all
		// samplers of a trace with one ratio agree.
		return binary.BigEndian.Uint64(trace[8:])>>1 < s.below
	}
	return true
}
