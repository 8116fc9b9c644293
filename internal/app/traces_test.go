// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/testing/otlptest"
	"overdue/internal/traceparent"
)

const appTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// traced is a process whose spans and events are recorded.
type traced struct {
	*Process
	spans *otlptest.Receiver

	mu      sync.Mutex
	events  map[string]map[string]any // by message-id
	headers map[string]string         // traceparent of the request, likewise
}

// startTraced starts a process with a webhook, in one protocol.
func startTraced(t *testing.T, protocol string, more map[string]string) *traced {
	t.Helper()
	tr := &traced{spans: otlptest.New(t, protocol), events: map[string]map[string]any{}, headers: map[string]string{}}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e map[string]any
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
			return
		}
		tr.mu.Lock()
		defer tr.mu.Unlock()
		id, _ := e["subject"].(string)
		tr.events[id], tr.headers[id] = e, r.Header.Get("traceparent")
	}))
	t.Cleanup(hook.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", tr.spans.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	env := maps.Clone(freePorts)
	env["OVERDUE_ALERTS"] = `[{webhook: {url: "` + hook.URL + `"}}]`
	for name, value := range more {
		if strings.HasPrefix(name, "OTEL_") { // the SDK reads the variables of this process
			t.Setenv(name, value)
		}
		env[name] = value
	}
	c, err := loadText(t, "", env, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr.Process, err = Start(t.Context(), config.RoleRun, c, zap.NewNop(), zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Stop(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func (tr *traced) client(t *testing.T) *azservicebus.Client {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(config.ConnectionString(tr.AMQPAddr(), "app", "any"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(t.Context()) })
	return client
}

// event waits for the event about a message, and returns its traceparent and that of its request.
func (tr *traced) event(t *testing.T, id string) (event, header string) {
	t.Helper()
	eventually(t, "the event about "+id, func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		_, ok := tr.events[id]
		return ok
	})
	tr.mu.Lock()
	defer tr.mu.Unlock()
	event, _ = tr.events[id]["traceparent"].(string)
	return event, tr.headers[id]
}

// The Go SDK sets no context itself, so the apps of these tests set it as other SDKs do.
func message(id, property, context string) *azservicebus.Message {
	life := 300 * time.Millisecond
	m := &azservicebus.Message{Body: []byte("hello"), MessageID: &id, TimeToLive: &life}
	if property != "" {
		m.ApplicationProperties = map[string]any{property: context}
	}
	return m
}

func TestAMessageIsTracedFromItsSendToItsMissedDeadline(t *testing.T) {
	for _, protocol := range []string{otlptest.HTTP, otlptest.GRPC} {
		for _, companions := range []string{"each", "slot"} {
			t.Run(protocol+"/"+companions, func(t *testing.T) {
				tr := startTraced(t, protocol, map[string]string{"OVERDUE_COMPANIONS": companions})
				sender, err := tr.client(t).NewSender("orders", nil)
				if err != nil {
					t.Fatal(err)
				}
				var id, event, header string
				var app traceparent.Context
				var all map[string]*otlp.Span
				kind := "" // there are no slots before the clock of the broker is measured, and on a machine too busy to measure it
				for i := 0; i < 10 && kind != companions; i++ {
					id = fmt.Sprint("order-", i)
					app, _ = traceparent.Parse(fmt.Sprintf("00-%032x-00f067aa0ba902b7-01", i+1))
					m := message(id, traceparent.DiagnosticID, app.String())
					if companions == "slot" {
						life := time.Second // the shortest for which there are slots
						m.TimeToLive = &life
					}
					if err := sender.SendMessage(t.Context(), m, nil); err != nil {
						t.Fatal(err)
					}
					event, header = tr.event(t, id)
					eventually(t, "four spans", func() bool { all = tr.spans.InTrace(app.TraceID); return len(all) >= 4 })
					if c := all["send overdue-monitor"]; c != nil {
						kind, _ = otlptest.Attributes(c.Attributes)["overdue.companion"].(string)
					}
				}
				send, missed := all["send orders"], all["deadline missed orders"]
				if len(all) != 4 || send == nil || missed == nil || all["send overdue-monitor"] == nil || all["send orders upstream"] == nil {
					t.Fatalf("spans %v, want send, companion, upstream and missed deadline", slices.Collect(maps.Keys(all)))
				}
				for name, s := range all {
					parent := send.SpanId
					if s == send || s == missed {
						parent = app.SpanID[:]
					}
					if !bytes.Equal(s.TraceId, app.TraceID[:]) || !bytes.Equal(s.ParentSpanId, parent) {
						t.Errorf("%s is %v, want it in the trace of the app, below %x", name, s, parent)
					}
				}
				link := app.SpanID[:] // a slot names no send
				if kind == "each" {
					link = send.SpanId
				}
				if len(missed.Links) != 1 || !bytes.Equal(missed.Links[0].SpanId, link) {
					t.Errorf("links %v, want one to %x", missed.Links, link)
				}
				about := otlptest.Attributes(missed.Attributes)
				if about["overdue.verdict"] != "missed" || about["overdue.evidence"] != "deadLetter" || about["messaging.message.id"] != id || about["overdue.dead_letter_reason"] != "TTLExpiredException" {
					t.Errorf("missed deadline has %v", about)
				}
				if kind != "each" && kind != companions {
					t.Errorf("the companion is of the kind %q, want %s", kind, companions)
				}
				if c, ok := traceparent.Parse(event); !ok || event != header || !bytes.Equal(c.SpanID[:], missed.SpanId) || !bytes.Equal(c.TraceID[:], missed.TraceId) {
					t.Errorf("the event has traceparent %q and its request %q, want that of the missed deadline", event, header)
				}
			})
		}
	}
}

func TestTracesFollowTheAppAndStartWhereItHasNone(t *testing.T) {
	tr := startTraced(t, otlptest.HTTP, map[string]string{"OVERDUE_COMPANIONS": "each"})
	sender, err := tr.client(t).NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	unsampled := strings.TrimSuffix(appTrace, "01") + "00"
	for _, m := range []*azservicebus.Message{message("unsampled", "traceparent", unsampled), message("alone", "", "")} {
		if err := sender.SendMessage(t.Context(), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	if event, header := tr.event(t, "unsampled"); event != unsampled || header != unsampled {
		t.Errorf("the event of a message whose trace is not sampled has %q and %q, want its own context", event, header)
	}
	event, _ := tr.event(t, "alone")
	eventually(t, "four spans", func() bool { return len(tr.spans.All()) >= 4 })
	all := tr.spans.Spans()
	send, missed := all["send orders"], all["deadline missed orders"]
	if len(tr.spans.All()) != 4 || send.ParentSpanId != nil || !bytes.Equal(missed.TraceId, send.TraceId) || len(missed.Links) != 1 || !bytes.Equal(missed.Links[0].SpanId, send.SpanId) {
		t.Errorf("spans %v, want those of one message, in a trace that began at the endpoint", all)
	}
	if c, ok := traceparent.Parse(event); !ok || !bytes.Equal(c.TraceID[:], send.TraceId) {
		t.Errorf("the event has %q, want the trace of the send", event)
	}
	// No message changes its content.
	client := tr.client(t)
	receiver, err := client.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		t.Fatal(err)
	}
	dead, err := receiver.PeekMessages(t.Context(), 5, nil)
	if err != nil || len(dead) != 2 {
		t.Fatalf("%d dead letters, %v; want 2", len(dead), err)
	}
	for _, m := range dead {
		if m.MessageID == "alone" && (m.ApplicationProperties["traceparent"] != nil || m.ApplicationProperties[traceparent.DiagnosticID] != nil) {
			t.Errorf("the message has %v, want no context that its app did not set", m.ApplicationProperties)
		}
	}
}

func TestRESTSendsAreTracedAndMetricsHaveTheirTraces(t *testing.T) {
	tr := startTraced(t, otlptest.HTTP, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+tr.RestAddr()+"/orders/messages", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("BrokerProperties", `{"MessageId":"rest-1","TimeToLive":0.3}`)
	r.Header.Set("traceparent", appTrace)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("status %d, want 201", resp.StatusCode)
	}
	if event, _ := tr.event(t, "rest-1"); !strings.HasPrefix(event, appTrace[:36]) {
		t.Errorf("the event has %q, want the trace of the request", event)
	}
	eventually(t, "four spans", func() bool { return len(tr.spans.All()) >= 4 })
	send := tr.spans.Spans()["send orders"]
	if about := otlptest.Attributes(send.Attributes); about["overdue.endpoint"] != "rest" {
		t.Errorf("send has %v, want that it came over REST", about)
	}
	scrape := func(accept string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+tr.AdminAddress()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const exemplar = `trace_id="4bf92f3577b34da6a3ce929d0e0e4736"`
	if text := scrape("application/openmetrics-text; version=1.0.0"); !strings.Contains(text, exemplar) || !strings.Contains(text, "# EOF") {
		t.Errorf("no exemplar in %s", text)
	}
	if text := scrape("text/plain"); strings.Contains(text, exemplar) || !strings.Contains(text, "overdue_spans_total") {
		t.Error("the text format has exemplars, which it does not know, or lacks the spans")
	}
}

// A sidecar must send although its traces cannot go anywhere.
func TestNothingDependsOnTheReceiverOfTraces(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"away":                     {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"a mistake in a variable":  {"OTEL_TRACES_SAMPLER": "xray"},
		"a file that is not there": {"OTEL_EXPORTER_OTLP_CERTIFICATE": "nowhere.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := startTraced(t, otlptest.HTTP, env)
			sender, err := tr.client(t).NewSender("orders", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := sender.SendMessage(t.Context(), message("order-1", "Diagnostic-Id", appTrace), nil); err != nil {
				t.Fatal(err)
			}
			if event, _ := tr.event(t, "order-1"); !strings.HasPrefix(event, appTrace[:36]) {
				t.Errorf("the event has %q, want the trace of the message", event)
			}
		})
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_TRACES_SAMPLER", "xray")
	c, err := loadText(t, "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(c, config.RoleRun); err == nil || !strings.Contains(err.Error(), "OTEL_TRACES_SAMPLER") {
		t.Errorf("the check of the configuration finds %v, want the variable", err)
	}
}
