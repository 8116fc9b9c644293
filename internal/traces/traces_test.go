// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"overdue/internal/testing/otlptest"
)

// both runs a test with each protocol, plain and compressed.
func both(t *testing.T, test func(t *testing.T, r *otlptest.Receiver, variables ...string)) {
	for _, protocol := range []string{otlptest.HTTP, otlptest.GRPC} {
		for _, compression := range []string{"none", "gzip"} {
			t.Run(protocol+"/"+compression, func(t *testing.T) {
				test(t, otlptest.New(t, protocol), "OTEL_EXPORTER_OTLP_COMPRESSION", compression)
			})
		}
	}
}

func TestASendContinuesTheTraceOfItsMessage(t *testing.T) {
	both(t, func(t *testing.T, r *otlptest.Receiver, variables ...string) {
		tr, stop := tracer(t, r, append(variables, "OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test%20one", "OTEL_SERVICE_NAME", "sidecar")...)
		sent(tr, map[string]any{"Diagnostic-Id": appTrace, "tracestate": "vendor=1"})
		stop()
		all := r.Spans()
		if len(all) != 3 {
			t.Fatalf("spans %v, want send, companion and upstream", all)
		}
		app := known(t)
		whole := all["send orders"]
		const flags = 1<<0 | uint32(otlp.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK|otlp.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
		if !bytes.Equal(whole.TraceId, app.TraceID[:]) || !bytes.Equal(whole.ParentSpanId, app.SpanID[:]) || whole.Kind != otlp.Span_SPAN_KIND_SERVER || whole.TraceState != "vendor=1" {
			t.Errorf("send is %v, want a child of %s", whole, appTrace)
		}
		if whole.Flags != flags || whole.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET || whole.EndTimeUnixNano < whole.StartTimeUnixNano {
			t.Errorf("send is %v, want it sampled, with a remote parent and without an error", whole)
		}
		for _, name := range []string{"send monitor", "send orders upstream"} {
			if s := all[name]; !bytes.Equal(s.ParentSpanId, whole.SpanId) || !bytes.Equal(s.TraceId, whole.TraceId) {
				t.Errorf("%s is %v, want it below the send", name, s)
			}
		}
		about := otlptest.Attributes(whole.Attributes)
		for key, want := range map[string]any{
			"messaging.system": "servicebus", "messaging.destination.name": "orders", "messaging.message.id": "order-1",
			"messaging.operation.type": "send", "overdue.endpoint": "amqp", "overdue.stated": "ttl",
		} {
			if about[key] != want {
				t.Errorf("send has %s %v, want %v", key, about[key], want)
			}
		}
		if about := otlptest.Attributes(all["send monitor"].Attributes); about["messaging.destination.name"] != "monitor" || about["overdue.companion"] != "each" || about["server.address"] != "contoso.servicebus.windows.net" {
			t.Errorf("companion has %v", about)
		}
		resource := otlptest.Attributes(r.Requests()[0].ResourceSpans[0].Resource.Attributes)
		if resource["service.name"] != "sidecar" || resource["deployment.environment"] != "test one" || resource["service.version"] != "v1" {
			t.Errorf("resource %v, want that of the variables", resource)
		}
		if n := testutil.ToFloat64(tr.delivery.counts.WithLabelValues(resultExported)); n != 3 {
			t.Errorf("%v spans exported, want 3", n)
		}
	})
}

func TestABatchIsOneSpanWithLinks(t *testing.T) {
	r := otlptest.New(t, otlptest.HTTP)
	tr, stop := tracer(t, r)
	context := func(i int, flags string) map[string]any {
		return map[string]any{"traceparent": fmt.Sprintf("00-4bf92f3577b34da6a3ce929d0e0e4736-%016x-%s", i+1, flags)}
	}
	messages := []map[string]any{context(0, "00"), context(1, "01"), nil, {"Diagnostic-Id": "|old.1."}, context(2, "01")}
	for i := range 1000 {
		messages = append(messages, context(i+3, "01"))
	}
	sent(tr, messages...)
	stop()
	s := r.Spans()["send orders"]
	if s == nil || s.ParentSpanId[7] != 2 {
		t.Fatalf("send %v, want below the first context that is sampled", s)
	}
	if len(s.Links) != maxLinks-2 || s.Links[0].SpanId[7] != 1 || s.Links[1].SpanId[7] != 3 {
		t.Errorf("%d links, want those of the first %d messages but the parent", len(s.Links), maxLinks+1)
	}
	if about := otlptest.Attributes(s.Attributes); about["messaging.batch.message_count"] != int64(1005) || about["messaging.message.id"] != nil {
		t.Errorf("attributes %v, want those of a batch", about)
	}
}

func TestAFailedSendSaysWhy(t *testing.T) {
	r := otlptest.New(t, otlptest.HTTP)
	tr, stop := tracer(t, r)
	s := tr.Begin(Start{Entity: "orders", Endpoint: "rest", Messages: 1, Began: time.Now()}, propertiesOf())
	s.Schedules(1)
	s.Scheduled(Failure{Type: "com.microsoft:server-busy", Text: "busy \xff" + strings.Repeat("x", 5000)})
	s.End(Failure{Type: "com.microsoft:server-busy", Text: "send it again"})
	stop()
	all := r.Spans()
	if len(all) != 2 {
		t.Fatalf("spans %v, want send and companion", all)
	}
	for _, s := range all {
		if s.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || otlptest.Attributes(s.Attributes)["error.type"] != "com.microsoft:server-busy" {
			t.Errorf("%v, want an error", s)
		}
	}
	if text := all["send monitor"].Status.Message; len(text) > maxTextBytes+8 || !strings.HasPrefix(text, "busy \uFFFD") {
		t.Errorf("status %.20q of %d bytes, want valid UTF-8 and a bound", text, len(text))
	}
	if all["send orders"].ParentSpanId != nil {
		t.Errorf("%v, want a trace of its own", all["send orders"])
	}
}

const eventID = "0123456789abcdef0123456789abcdef"

func TestAMissedDeadlineIsASpanLinkedToItsSend(t *testing.T) {
	both(t, func(t *testing.T, r *otlptest.Receiver, variables ...string) {
		tr, stop := tracer(t, r, variables...)
		s := sent(tr, map[string]any{"Diagnostic-Id": appTrace})
		due := time.Date(2026, 1, 31, 12, 0, 30, 0, time.UTC)
		d := Deadline{
			EventID: eventID, Message: appTrace, Send: s.Context().String(), Verdict: "missed", Entity: "orders", MessageID: "order-1",
			Due: due, Seen: due.Add(14 * time.Millisecond), About: []attribute.KeyValue{Text("overdue.evidence", "deadLetter")},
		}
		tr.Missed(&d)
		stop()
		m := r.Spans()["deadline missed orders"]
		if m == nil {
			t.Fatalf("spans %v, want a missed deadline", r.Spans())
		}
		app, send := known(t), s.Context()
		if !bytes.Equal(m.TraceId, app.TraceID[:]) || !bytes.Equal(m.ParentSpanId, app.SpanID[:]) {
			t.Errorf("missed is %v, want it in the trace of the message", m)
		}
		if len(m.Links) != 1 || !bytes.Equal(m.Links[0].SpanId, send.SpanID[:]) || !bytes.Equal(m.Links[0].TraceId, send.TraceID[:]) {
			t.Errorf("links %v, want one to the send", m.Links)
		}
		if took := m.EndTimeUnixNano - m.StartTimeUnixNano; took != 14e6 || m.StartTimeUnixNano != uint64(due.UnixNano()) {
			t.Errorf("missed takes %d ns, want the lag", took)
		}
		about := otlptest.Attributes(m.Attributes)
		if about["overdue.lag_ms"] != int64(14) || about["overdue.verdict"] != "missed" || about["overdue.evidence"] != "deadLetter" {
			t.Errorf("attributes %v, want lag, verdict and evidence", about)
		}
		if m.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR {
			t.Errorf("status %v, want an error", m.Status)
		}
		if c := tr.Context(&d); !bytes.Equal(c.SpanID[:], m.SpanId) || !c.Sampled {
			t.Errorf("the event has the context %s, want that of the span", c)
		}
	})
}

func TestTheContextOfAMissedDeadline(t *testing.T) {
	r := otlptest.New(t, otlptest.HTTP)
	on, stopOn := tracer(t, r)
	off, stopOff := tracer(t, r, "OTEL_TRACES_SAMPLER", "always_off")
	unsampled := strings.TrimSuffix(appTrace, "01") + "00"
	own := "4bf92f3577b34da6a3ce929d0e0e4736-0123456789abcdef-01"
	for name, tt := range map[string]struct {
		t    *Tracer
		d    Deadline
		want string
	}{
		"off, with a message":           {nil, Deadline{EventID: eventID, Message: appTrace}, appTrace},
		"off, with a send":              {nil, Deadline{EventID: eventID, Send: appTrace}, appTrace},
		"off, with nothing":             {nil, Deadline{EventID: eventID}, ""},
		"on, with a message":            {on, Deadline{EventID: eventID, Message: appTrace}, "00-" + own},
		"on, with a send":               {on, Deadline{EventID: eventID, Send: appTrace}, "00-" + own},
		"on, with nothing":              {on, Deadline{EventID: eventID}, "00-" + eventID + "-" + eventID[:16] + "-01"},
		"on, not sampled":               {on, Deadline{EventID: eventID, Message: unsampled}, unsampled},
		"on, an id that is none":        {on, Deadline{EventID: "test", Message: appTrace}, appTrace},
		"sampled never":                 {off, Deadline{EventID: eventID, Message: appTrace}, appTrace},
		"on, with a context of nothing": {on, Deadline{EventID: eventID, Message: "|old", Send: appTrace}, "00-" + own},
	} {
		if got := tt.t.Context(&tt.d).String(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		tt.t.Missed(&tt.d)
	}
	stopOff()
	stopOn()
	if n := len(r.Requests()); n != 1 {
		t.Errorf("%d requests, want one, of the spans that are recorded", n)
	}
	if n := testutil.ToFloat64(on.delivery.counts.WithLabelValues(resultExported)); n != 4 {
		t.Errorf("%v spans exported, want 4", n)
	}
}

func TestARefusedBatchIsTriedAgainIfThatHelps(t *testing.T) {
	for _, protocol := range []string{otlptest.HTTP, otlptest.GRPC} {
		for _, tt := range []struct {
			name             string
			answer           error
			exported, failed float64
		}{
			{"away", status.Error(codes.Unavailable, "not yet"), 3, 0},
			{"refused", status.Error(codes.InvalidArgument, "no such tenant"), 0, 3},
		} {
			t.Run(protocol+"/"+tt.name, func(t *testing.T) {
				r := otlptest.New(t, protocol)
				r.Answer(tt.answer)
				tr, stop := tracer(t, r)
				sent(tr, nil)
				stop()
				exported, failed := testutil.ToFloat64(tr.delivery.counts.WithLabelValues(resultExported)), testutil.ToFloat64(tr.delivery.counts.WithLabelValues(resultFailed))
				if exported != tt.exported || failed != tt.failed {
					t.Errorf("%v spans exported and %v failed, want %v and %v", exported, failed, tt.exported, tt.failed)
				}
			})
		}
	}
}

func TestSpansThatAreRefusedAreCounted(t *testing.T) {
	both(t, func(t *testing.T, r *otlptest.Receiver, variables ...string) {
		r.Reject(2, "too old")
		tr, stop := tracer(t, r, variables...)
		sent(tr, nil)
		stop()
		if exported, failed := testutil.ToFloat64(tr.delivery.counts.WithLabelValues(resultExported)), testutil.ToFloat64(tr.delivery.counts.WithLabelValues(resultFailed)); exported != 1 || failed != 2 {
			t.Errorf("%v spans exported and %v failed, want 1 and 2", exported, failed)
		}
	})
}

func TestHeadersAreSentWithEachRequest(t *testing.T) {
	both(t, func(t *testing.T, r *otlptest.Receiver, variables ...string) {
		tr, stop := tracer(t, r, append(variables, "OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20secret, x-tenant=one")...)
		sent(tr, nil)
		stop()
		if h := r.Headers(); h["Api-Key"] != "a secret" || h["X-Tenant"] != "one" {
			t.Errorf("headers %v, want those of the variable", h)
		}
	})
}

func TestAReceiverIsTrustedByItsAuthority(t *testing.T) {
	for _, protocol := range []string{otlptest.HTTP, otlptest.GRPC} {
		t.Run(protocol, func(t *testing.T) {
			r, authority := otlptest.NewTLS(t, protocol)
			tr, stop := tracer(t, r, "OTEL_EXPORTER_OTLP_CERTIFICATE", authority)
			sent(tr, nil)
			stop()
			if n := len(r.All()); n != 3 {
				t.Errorf("%d spans over TLS, want 3", n)
			}
			stranger, stop := tracer(t, r, "OTEL_EXPORTER_OTLP_CERTIFICATE", "")
			sent(stranger, nil)
			stop()
			if failed := testutil.ToFloat64(stranger.delivery.counts.WithLabelValues(resultFailed)); failed != 3 {
				t.Errorf("%v spans failed with a certificate of nobody, want 3", failed)
			}
		})
	}
}
