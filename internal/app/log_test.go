// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"overdue/alert"
	"overdue/internal/config"
)

// loggerTo is a logger as a process has it in a format.
func loggerTo(t *testing.T, w io.Writer, format string) *zap.Logger {
	t.Helper()
	log, _, err := NewLog(w, config.Log{Level: "info", Format: format})
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

func TestJSONLogsHaveAnEventInOneShortLine(t *testing.T) {
	var b bytes.Buffer
	if err := alert.NewLog(loggerTo(t, &b, "json")).Alert(t.Context(), missedEvent()); err != nil {
		t.Fatal(err)
	}
	want := `"msg":"deadline missed: orders/order-1, 14 ms late, dead-lettered (TTLExpiredException)",` +
		`"work_queue":"orders","message_id":"order-1","sequence_number":0,"deadline":"` + missedEvent().Data.Deadline.Format(time.RFC3339Nano) +
		`","verdict":"missed","lag":"14ms"}` + "\n"
	if got := b.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %s, want one line that ends with %s", got, want)
	}
}

// An outage has a line for each send; nobody reads the others then.
func TestRepeatedWarningsAreLeftOutAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log, level, err := NewLog(&b, config.Log{Level: "info", Format: "json"})
		if err != nil {
			t.Fatal(err)
		}
		count := func(text string) int { return strings.Count(b.String(), text) }
		for range 200 {
			log.Warn("request refused")
			log.Named("proxy").With(zap.String("work_queue", "orders")).Warn("request refused")
			log.Info("another")
		}
		log.Warn("something else")
		if n := count("request refused"); n != repeatsMax {
			t.Errorf("%d of 400 equal warnings are logged, want %d", n, repeatsMax)
		}
		if n := count("another"); n != 200 {
			t.Errorf("%d of 200 lines of level info are logged, want all", n)
		}
		if !strings.HasSuffix(b.String(), "\"msg\":\"something else\",\"lines_left_out\":395}\n") {
			t.Errorf("the next warning does not say how many lines were left out: %s", b.String()[b.Len()-200:])
		}
		for range 200 {
			log.Named(proxyLog).Info("connection of an app has ended")
		}
		if n := count("connection of an app has ended"); n != repeatsMax {
			t.Errorf("%d of 200 lines about connections are logged, want %d", n, repeatsMax)
		}
		log.Warn("something else")
		b.Reset()
		time.Sleep(repeatSpan)
		log.Warn("request refused")
		if count("request refused") != 1 || count("lines_left_out") != 0 {
			t.Errorf("after %v the log has %q, want the warning again, and no number", repeatSpan, &b)
		}
		b.Reset()
		sink := alert.NewLog(log.Named(alertLog))
		for range 50 {
			if err := sink.Alert(t.Context(), missedEvent()); err != nil {
				t.Fatal(err)
			}
		}
		if n := count("deadline missed"); n != 50 {
			t.Errorf("%d of 50 events are logged, want all", n)
		}
		level.SetLevel(zap.DebugLevel)
		b.Reset()
		for range 50 {
			log.Warn("request refused")
		}
		if n := count("request refused"); n != 50 {
			t.Errorf("at level debug %d of 50 warnings are logged, want all", n)
		}
	})
}

// The errors of several sinks are one, which takes a line for each.
func TestAJoinedErrorIsOneLine(t *testing.T) {
	err := fmt.Errorf("notify: %w", errors.Join(errors.New("a: refused"), errors.New("b: timeout")))
	for format, want := range map[string]string{
		"console": ` WARN alert not taken {"work_queue": "orders", "error": "notify: a: refused; b: timeout"}`,
		"json":    `"msg":"alert not taken","work_queue":"orders","error":"notify: a: refused; b: timeout"}`,
	} {
		var b bytes.Buffer
		log := loggerTo(t, &b, format)
		log.Warn("alert not taken", zap.String("work_queue", "orders"), zap.Error(err))
		log.With(zap.String("work_queue", "orders"), zap.Error(err)).Warn("alert not taken")
		if got := b.String(); strings.Count(got, want+"\n") != 2 || strings.Count(got, "\n") != 2 {
			t.Errorf("%s: logged\n%swant twice %s", format, got, want)
		}
	}
}
