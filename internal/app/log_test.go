// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/config"
)

// loggerTo is a logger as a process has it in a format.
func loggerTo(t *testing.T, w io.Writer, format string) *zap.Logger {
	t.Helper()
	log, _, err := NewLog(w, config.Log{Level: "debug", Format: format})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func missedEvent() alert.Event {
	deadline := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	return alert.Event{ID: "0f5c6f2f", Type: alert.TypeMissed, Subject: "order-1", Data: alert.EventData{
		Entity: "orders", MessageID: "order-1", Deadline: deadline, DeadLetteredTime: deadline.Add(14 * time.Millisecond),
		DeadLetterReason: "TTLExpiredException",
	}}
}

func TestAMissedDeadlineIsOneLineOf100ColumnsOnATerminal(t *testing.T) {
	var b bytes.Buffer
	log := loggerTo(t, &b, "console")
	if err := alert.NewLog(log.Named("alert")).Alert(t.Context(), missedEvent()); err != nil {
		t.Fatal(err)
	}
	want := " WARN deadline missed: orders/order-1, 14 ms late, dead-lettered (TTLExpiredException)\n"
	if got := b.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 || len(got) > 100+1 {
		t.Errorf("logged %q of %d columns, want the time and %q", got, len(got)-1, want)
	}
}

func TestJSONLogsHaveTheCloudEventOnce(t *testing.T) {
	var b bytes.Buffer
	if err := alert.NewLog(loggerTo(t, &b, "json")).Alert(t.Context(), missedEvent()); err != nil {
		t.Fatal(err)
	}
	var line struct {
		Msg   string
		Event struct{ SpecVersion, ID, Type string }
	}
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if e := line.Event; e.SpecVersion != "1.0" || e.ID != "0f5c6f2f" || e.Type != alert.TypeMissed || !strings.HasPrefix(line.Msg, "deadline missed: ") {
		t.Errorf("logged %s, want a sentence and the CloudEvent", b.Bytes())
	}
	for _, once := range []string{`"0f5c6f2f"`, `"overdue.deadline.missed"`} {
		if n := strings.Count(b.String(), once); n != 1 {
			t.Errorf("%s stands %d times in %s, want once", once, n, b.Bytes())
		}
	}
}
