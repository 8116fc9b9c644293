// SPDX-License-Identifier: Apache-2.0

// Package traces records spans of sends and of missed deadlines with the SDK of OpenTelemetry, and
// exports them with OTLP, over HTTP or gRPC, as the variables of OpenTelemetry say.
//
//	Begin ─▶ Send ─ End ─┐
//	                     ├─▶ queue ─▶ batches of the SDK ─▶ receiver
//	         Missed ─────┘     └─ full: dropped
//
// A send never waits for any of this: it puts spans into the queue, and the SDK does the rest.
package traces

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"overdue/internal/traceparent"
)

// stopTimeout bounds the export of the spans that are left at the stop.
const stopTimeout = 3 * time.Second

// schemaURL names the conventions that the attributes follow.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"

// Options are what a Tracer needs besides the variables of OpenTelemetry.
type Options struct {
	Namespace    string                     // host or host:port
	MonitorQueue func(entity string) string // that has the companions of an entity
	Version      string                     // of this program
	Log          *zap.Logger                // nil: none
	Registerer   prometheus.Registerer      // nil: none
}

// A Tracer records spans. Those of sends and of missed deadlines begin with Begin and Missed; Run
// ends the export. A nil Tracer records none.
type Tracer struct {
	tracer       trace.Tracer
	provider     *sdk.TracerProvider
	delivery     *delivery
	monitorQueue func(entity string) string
	toProxy      []attribute.KeyValue // of the spans of all sends
	upstream     []attribute.KeyValue // those and where the namespace is
	server       []attribute.KeyValue // where the namespace is
}

// New makes a Tracer, nil when traces are off, and starts its export. It reads the variables of
// this process and the files that they name, and connects to nobody.
func New(o Options) (*Tracer, error) {
	r, err := receiverOf(os.Getenv)
	if r == nil || err != nil {
		return nil, err
	}
	exporter, err := r.exporter(context.Background())
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return newTracer(r, exporter, o)
}

// Check reports what New would find wrong with the variables.
func Check() error {
	r, err := receiverOf(os.Getenv)
	if r == nil || err != nil {
		return err
	}
	exporter, err := r.exporter(context.Background())
	if err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	return exporter.Shutdown(context.Background())
}

func newTracer(r *receiver, exporter sdk.SpanExporter, o Options) (*Tracer, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	about, err := describeProcess(o.Version)
	if err != nil {
		return nil, err
	}
	d := newDelivery(r, exporter, o.Log)
	if o.Registerer != nil {
		if err := o.Registerer.Register(d.counts); err != nil {
			return nil, fmt.Errorf("traces: register metrics: %w", err)
		}
	}
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(newQueue(d)), sdk.WithIDGenerator(ids{}), sdk.WithResource(about))
	toProxy := []attribute.KeyValue{
		attribute.String("messaging.system", system),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", operation),
	}
	server := describeServer(o.Namespace)
	return &Tracer{
		tracer:       provider.Tracer("overdue", trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(schemaURL)),
		provider:     provider,
		delivery:     d,
		monitorQueue: o.MonitorQueue,
		toProxy:      toProxy,
		upstream:     append(toProxy[:len(toProxy):len(toProxy)], server...),
		server:       server,
	}, nil
}

// Receiver is where the spans go, for the log.
func (t *Tracer) Receiver() string { return t.delivery.receiver.String() }

// Run waits until ctx ends, and exports what is left then, as far as stopTimeout allows.
func (t *Tracer) Run(ctx context.Context) error {
	<-ctx.Done()
	defer time.AfterFunc(stopTimeout, t.delivery.abandon).Stop()
	if err := t.provider.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	return nil
}

// describeProcess returns the attributes of all spans. Those of the variables come first.
func describeProcess(version string) (*resource.Resource, error) {
	about, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "overdue"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) { // an attribute less is no failure
		return nil, fmt.Errorf("traces: %w", err)
	}
	return about, nil
}

// describeServer returns the attributes of a namespace, which is host or host:port.
func describeServer(address string) []attribute.KeyValue {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "" {
		return nil
	}
	about := []attribute.KeyValue{attribute.String("server.address", host)}
	if port, err := strconv.Atoi(text); err == nil {
		about = append(about, attribute.Int("server.port", port))
	}
	return about
}

// maxTextBytes bounds a value in a span: Service Bus bounds neither correlation-ids nor the
// descriptions of its errors.
const maxTextBytes = 1024

// Text is an attribute whose value comes from a message or from an error.
func Text(key, value string) attribute.KeyValue { return attribute.String(key, bound(value)) }

// bound returns s as a receiver takes it. The exporter fails a whole batch for a text that is not
// UTF-8.
func bound(s string) string {
	if len(s) <= maxTextBytes && utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s[:min(len(s), maxTextBytes)], "\uFFFD")
}

// remote returns the context of a span of another process.
func remote(c traceparent.Context, state trace.TraceState) trace.SpanContext {
	config := trace.SpanContextConfig{
		TraceID:    c.TraceID,
		SpanID:     c.SpanID,
		TraceState: state,
		Remote:     true,
	}
	if c.Sampled {
		config.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(config)
}

// contextOf returns the context of a span that is recorded.
func contextOf(s trace.Span) traceparent.Context {
	c := s.SpanContext()
	return traceparent.Context{
		TraceID: c.TraceID(),
		SpanID:  c.SpanID(),
		Sampled: c.IsSampled(),
	}
}

// ids gives the span of an event its id from there, and other spans random ids. A trace that begins
// with an event has its id from there as well.
type ids struct{}

// eventKey is the key of the id of an event in a context.
type eventKey struct{}

func withEvent(ctx context.Context, id trace.TraceID) context.Context {
	return context.WithValue(ctx, eventKey{}, id)
}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if event, ok := ctx.Value(eventKey{}).(trace.TraceID); ok {
		return event, trace.SpanID(event[:8])
	}
	var id trace.TraceID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) // an id of zeros is none
	return id, newSpanID()
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if event, ok := ctx.Value(eventKey{}).(trace.TraceID); ok {
		return trace.SpanID(event[:8])
	}
	return newSpanID()
}

func newSpanID() (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}
