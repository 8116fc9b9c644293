// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"strings"
	"testing"
)

// A trace is worth no deadline: what is no context is as good as none.
func TestACompanionCarriesTheTracesOfItsMessages(t *testing.T) {
	const send, message = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0123456789abcdef-00"
	for _, tt := range []struct{ send, message, wantSend, wantMessage string }{
		{send, message, send, message},
		{"", "", "", ""},
		{"00-xyz", strings.Repeat("x", 1000), "", ""},
	} {
		c := goldenCompanion()
		c.References[1].Traceparent = tt.send
		c.References[1].Missed = &Missed{SequenceNumber: 7, Traceparent: tt.message}
		body, _, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseCompanion(body)
		if err != nil {
			t.Fatal(err)
		}
		if r := got.References[1]; r.Traceparent != tt.wantSend || r.Missed.Traceparent != tt.wantMessage {
			t.Errorf("a reference with %.60q and %.60q comes back with %q and %q", tt.send, tt.message, r.Traceparent, r.Missed.Traceparent)
		}
		if r := got.References[0]; r.Traceparent != "" {
			t.Errorf("the reference before has the trace %q, want none", r.Traceparent)
		}
	}
}
