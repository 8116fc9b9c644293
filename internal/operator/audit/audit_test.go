// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestALineNamesWhoDidWhatAndWhy(t *testing.T) {
	core, lines := observer.New(zapcore.InfoLevel)
	log := zap.New(core)
	line := Line{Event: Started, Action: "resubmit", Entity: "orders", To: "again", Chosen: 3, Person: "anna", Why: strings.Repeat("x", MaxText+1)}
	line.Write(log)
	line = Line{Event: Ended, Action: "resubmit", Entity: "orders", Chosen: 3, Person: "anna"}
	line.Write(log)
	line = Line{Event: Refused, Action: "purge", Entity: "orders", Filter: "reason X", Chosen: 1, Caller: "192.0.2.1:5", Err: errors.New("the token is wrong")}
	line.Write(log)
	line = Line{Event: Ended, Action: "mute", Entity: "orders"}
	line.Write(log)
	var got []string
	var fields []map[string]any
	for _, e := range lines.All() {
		got = append(got, e.Level.String()+" "+e.Message)
		fields = append(fields, e.ContextMap())
	}
	if diff := cmp.Diff([]string{"info action started", "info action ended", "warn action refused", "info action ended"}, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	want := []map[string]any{
		{"action": "resubmit", "work_queue": "orders", "to": "again", "chosen": int64(3), "person": "anna", "why": strings.Repeat("x", MaxText) + "…"},
		{"action": "resubmit", "work_queue": "orders", "chosen": int64(3), "done": int64(0), "person": "anna"},
		{"action": "purge", "work_queue": "orders", "filter": "reason X", "chosen": int64(1), "caller": "192.0.2.1:5", "error": "the token is wrong"},
		{"action": "mute", "work_queue": "orders"}, // it is about no messages
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}
