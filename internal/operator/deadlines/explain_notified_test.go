// SPDX-License-Identifier: Apache-2.0

package deadlines

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/alert"
	"overdue/internal/history"
	"overdue/internal/operator/dlq"
)

// adminPort serves a history as the admin port does.
func adminPort(t *testing.T) (h *history.History, addr string) {
	t.Helper()
	h = &history.History{}
	mux := http.NewServeMux()
	mux.Handle("GET "+history.NotificationsPath, h)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return h, strings.TrimPrefix(server.URL, "http://")
}

type sink string

func (s sink) Name() string                             { return string(s) }
func (s sink) Alert(context.Context, alert.Event) error { return nil }

func notify(t *testing.T, h *history.History, name string, d alert.EventData) {
	t.Helper()
	e := alert.Event{ID: "e-" + d.Entity, Type: alert.TypeMissed, Subject: d.MessageID, Data: d}
	if err := h.Record(sink(name)).Alert(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// The admin port is a real one, so time is real as well. Nothing waits for the deadline, which the
// event puts before the message, to know the order of the timeline.
func TestExplainAsksTheMonitorForNotifications(t *testing.T) {
	s := setup(t)
	h, addr := adminPort(t)
	s.send("orders", "m", time.Hour)
	m := s.receive(func(r *azservicebus.Receiver, m *azservicebus.ReceivedMessage) error {
		return r.DeadLetterMessage(t.Context(), m, &azservicebus.DeadLetterOptions{Reason: to.Ptr("DeadlineExceeded")})
	})
	d := alert.EventData{
		Entity: "Orders", MessageID: "m", SequenceNumber: *m.SequenceNumber, EnqueuedTime: *m.EnqueuedTime, Strategy: "scan",
		Deadline: m.EnqueuedTime.Add(-15 * time.Millisecond), DeadLetteredTime: m.EnqueuedTime.Add(-time.Millisecond), DeadLetterReason: "DeadlineExceeded",
	}
	notify(t, h, "pager", d)
	d.Entity = "bills"
	notify(t, h, "elsewhere", d)
	o := ExplainOptions{MessageID: "m", AdminAddress: addr}
	x := s.explainWith(o)
	const verdict = "in the dead-letter queue."
	s.check(x, verdict,
		"dead-lettered: dead-lettered 14ms after its deadline (scan), DeadlineExceeded",
		"enqueued: enqueued with sequence number 1, time to live 1h0m0s",
		"notified: overdue.deadline.missed e-Orders sent to pager",
		"deadline: its deadline, as the message states it",
	)
	if x.Note != "" {
		t.Errorf("note %q, want none", x.Note)
	}

	// Once the dead letter is gone, the event is all that is left.
	if _, _, err := dlq.Purge(t.Context(), s.source.Links, orders, map[int64]bool{*m.SequenceNumber: true}, time.Second, 0, nil); err != nil {
		t.Fatal(err)
	}
	s.check(s.explainWith(o), "not there any more: it missed its deadline, and has left the dead-letter queue since.",
		"deadline: its deadline",
		"dead-lettered: dead-lettered 14ms after its deadline (scan), DeadlineExceeded",
		"enqueued: enqueued with sequence number 1",
		"notified: overdue.deadline.missed e-Orders sent to pager",
	)
}

func TestExplainSaysThatNoMonitorAnswers(t *testing.T) {
	s := setup(t)
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	x := s.explainWith(ExplainOptions{MessageID: "m", AdminAddress: addr})
	const verdict = "m in orders is not there: it was completed, removed from the dead-letter queue, or never sent.\n"
	want := verdict + "Notifications are unknown: no monitor answers at listen.admin, " + addr + ".\n"
	if got := s.text(func(w io.Writer) error { return x.WriteText(w, 100) }); got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}
