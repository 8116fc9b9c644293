// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"overdue/internal/testing/otlptest"
	"overdue/internal/traceparent"
)

// tracesTimeout bounds a program that sends, and the wait for what becomes of its messages.
const tracesTimeout = 5 * time.Minute

// The SDKs put the context of a span into each message themselves. The spans of Overdue are in
// those traces, from the send to the missed deadline.
func TestSpansContinueTheTracesOfSDKs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python and their packages; not with -short")
	}
	installed, program := install(t), buildBroker(t)
	for _, tt := range []struct{ sdk, protocol string }{{"js", otlptest.HTTP}, {"python", otlptest.GRPC}} {
		t.Run(tt.sdk, func(t *testing.T) {
			t.Parallel()
			spans := otlptest.New(t, tt.protocol)
			var endpoint, broker string
			cmd := exec.Command(program, "run", "--broker-listen", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0", "--listen-amqp", "127.0.0.1:0", "--listen-http", "127.0.0.1:0")
			cmd.Env = append(os.Environ(), "OVERDUE_COMPANIONS=each", "OTEL_EXPORTER_OTLP_ENDPOINT="+spans.URL, "OTEL_EXPORTER_OTLP_PROTOCOL="+tt.protocol, "OTEL_BSP_SCHEDULE_DELAY=100")
			start(t, cmd, &endpoint, &broker)
			connection := "Endpoint=sb://" + endpoint + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=any;UseDevelopmentEmulator=true"
			sendTraced(t, tt.sdk, installed[tt.sdk], connection)

			const all = 9 // for each of two sends itself, companion and upstream; three missed deadlines
			for deadline := time.Now().Add(tracesTimeout); len(spans.All()) < all && time.Now().Before(deadline); {
				time.Sleep(20 * time.Millisecond)
			}
			if n := len(spans.All()); n != all {
				t.Fatalf("%d spans, want %d: %v", n, all, spans.All())
			}
			contexts := deadLetterContexts(t, connection)
			single, first, second := contexts["single"], contexts["first"], contexts["second"]
			one, batch := below(spans, single), below(spans, first)
			if one == nil || batch == nil {
				t.Fatalf("spans %v, want a send below each of %v", spans.All(), contexts)
			}
			if len(one.Links) != 0 || len(batch.Links) != 1 || !bytes.Equal(batch.Links[0].SpanId, second.SpanID[:]) {
				t.Errorf("links %v and %v, want that of the batch to its other message", one.Links, batch.Links)
			}
			for id, send := range map[string]*otlp.Span{"single": one, "first": batch, "second": batch} {
				at := contexts[id]
				missed := spanOf(spans, id)
				if missed == nil || !bytes.Equal(missed.TraceId, at.TraceID[:]) || !bytes.Equal(missed.ParentSpanId, at.SpanID[:]) {
					t.Errorf("missed deadline of %s: %v, want it below %s", id, missed, at)
					continue
				}
				if len(missed.Links) != 1 || !bytes.Equal(missed.Links[0].SpanId, send.SpanId) {
					t.Errorf("missed deadline of %s has links %v, want one to its send", id, missed.Links)
				}
			}
		})
	}
}

// sendTraced runs the program that sends with tracing on.
func sendTraced(t *testing.T, sdk, installed, connection string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tracesTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(installed, "bin", "python"), "-B", filepath.Join("python", "traces.py"))
	if sdk == "js" {
		scratch := t.TempDir() // modules are found next to the program
		if out, err := exec.CommandContext(ctx, "sh", "-c", `cp js/traces.js js/package.json "$1" && ln -s "$0/node_modules" "$1/node_modules"`, installed, scratch).CombinedOutput(); err != nil {
			t.Fatalf("copying: %v\n%s", err, out)
		}
		cmd = exec.CommandContext(ctx, "node", filepath.Join(scratch, "traces.js"))
	}
	cmd.Env = append(os.Environ(), "SERVICEBUS_CONNECTION_STRING="+connection)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("sending: %v\n%s", err, tail(out, 8<<10))
	}
}

// deadLetterContexts returns what the SDK has put into the messages, by message-id.
func deadLetterContexts(t *testing.T, connection string) map[string]traceparent.Context {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(context.WithoutCancel(t.Context())) }() // the program ends next
	r, err := client.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		t.Fatal(err)
	}
	letters, err := r.PeekMessages(t.Context(), 10, nil)
	if err != nil || len(letters) != 3 {
		t.Fatalf("%d dead letters, %v; want 3", len(letters), err)
	}
	contexts := map[string]traceparent.Context{}
	for _, m := range letters {
		id, _ := m.ApplicationProperties[traceparent.DiagnosticID].(string)
		c, ok := traceparent.Parse(id)
		if !ok || !c.Sampled {
			t.Fatalf("message %s has %v, want a context of the SDK", m.MessageID, m.ApplicationProperties)
		}
		contexts[m.MessageID] = c
	}
	return contexts
}

// below returns the send whose parent is c.
func below(r *otlptest.Receiver, c traceparent.Context) *otlp.Span {
	for _, s := range r.All() {
		if s.Kind == otlp.Span_SPAN_KIND_SERVER && bytes.Equal(s.ParentSpanId, c.SpanID[:]) && bytes.Equal(s.TraceId, c.TraceID[:]) {
			return s
		}
	}
	return nil
}

// spanOf returns the missed deadline of a message.
func spanOf(r *otlptest.Receiver, id string) *otlp.Span {
	for _, s := range r.All() {
		if about := otlptest.Attributes(s.Attributes); about["overdue.verdict"] == "missed" && about["messaging.message.id"] == id {
			return s
		}
	}
	return nil
}
