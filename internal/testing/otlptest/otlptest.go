// SPDX-License-Identifier: Apache-2.0

// Package otlptest is a receiver of spans for tests, made of the types and the gRPC of
// OpenTelemetry.
package otlptest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // what clients may compress with
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Protocols, as OTEL_EXPORTER_OTLP_PROTOCOL has them.
const (
	GRPC = "grpc"
	HTTP = "http/protobuf"
)

// A Receiver takes spans as a collector does, with the types and the gRPC of OpenTelemetry.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	t        *testing.T
	URL      string
	Protocol string

	mu       sync.Mutex
	requests []*collector.ExportTraceServiceRequest
	headers  map[string]string // of the last request
	answers  []error           // for the next requests; nil: taken
	partial  *collector.ExportTracePartialSuccess
}

func (r *Receiver) take(request *collector.ExportTraceServiceRequest, headers map[string]string) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers = headers
	if len(r.answers) > 0 {
		err := r.answers[0]
		r.answers = r.answers[1:]
		if err != nil {
			return nil, err
		}
	}
	r.requests = append(r.requests, request)
	return &collector.ExportTraceServiceResponse{PartialSuccess: r.partial}, nil
}

// Export serves gRPC.
func (r *Receiver) Export(ctx context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	headers := map[string]string{}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		headers[http.CanonicalHeaderKey(name)] = values[0]
	}
	return r.take(request, headers)
}

// ServeHTTP serves OTLP over HTTP.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	var body io.Reader = hr.Body
	if hr.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	b, err := io.ReadAll(body)
	request := &collector.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.UnmarshalOptions{DiscardUnknown: false}.Unmarshal(b, request)
	}
	if err != nil || hr.URL.Path != "/v1/traces" || hr.Header.Get("Content-Type") != "application/x-protobuf" || hr.Method != http.MethodPost {
		http.Error(w, "not a request of OTLP", http.StatusBadRequest)
		return
	}
	headers := map[string]string{}
	for name, values := range hr.Header {
		headers[http.CanonicalHeaderKey(name)] = values[0]
	}
	answer, err := r.take(request, headers)
	if err != nil {
		code := http.StatusServiceUnavailable
		if status.Code(err) == codes.InvalidArgument {
			code = http.StatusBadRequest
		}
		http.Error(w, status.Convert(err).Message(), code)
		return
	}
	b, err = proto.Marshal(answer)
	if err != nil {
		r.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(b) // the client may be gone
}

// New starts a Receiver with that protocol.
func New(t *testing.T, protocol string) *Receiver {
	t.Helper()
	r := &Receiver{t: t, Protocol: protocol}
	if protocol == HTTP {
		s := httptest.NewServer(r)
		t.Cleanup(s.Close)
		r.URL = s.URL
		return r
	}
	r.URL = "http://" + r.serve()
	return r
}

// NewTLS is New over TLS. authority is a file with the certificate to trust.
func NewTLS(t *testing.T, protocol string) (r *Receiver, authority string) {
	t.Helper()
	r = &Receiver{t: t, Protocol: protocol}
	s := httptest.NewTLSServer(r)
	t.Cleanup(s.Close)
	authority = filepath.Join(t.TempDir(), "authority.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r.URL = s.URL; protocol == GRPC {
		r.URL = "https://" + r.serve(grpc.Creds(credentials.NewServerTLSFromCert(&s.TLS.Certificates[0])))
	}
	return r, authority
}

// serve serves gRPC, and returns where.
func (r *Receiver) serve(options ...grpc.ServerOption) string {
	t := r.t
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	collector.RegisterTraceServiceServer(s, r)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// Answer refuses the next request with a status of gRPC, or its like of HTTP.
func (r *Receiver) Answer(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, err)
}

// Reject refuses n spans of each request from now on.
func (r *Receiver) Reject(n int64, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partial = &collector.ExportTracePartialSuccess{RejectedSpans: n, ErrorMessage: why}
}

// Requests are those that were taken.
func (r *Receiver) Requests() []*collector.ExportTraceServiceRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Headers are those of the last request, in canonical spelling.
func (r *Receiver) Headers() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headers
}

// All are the spans that were taken.
func (r *Receiver) All() (all []*otlp.Span) {
	for _, request := range r.Requests() {
		for _, rs := range request.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				all = append(all, ss.Spans...)
			}
		}
	}
	return all
}

// Spans are the last of each name that were taken, see named.
func (r *Receiver) Spans() map[string]*otlp.Span { return named(r.All()) }

// InTrace are the Spans of one trace.
func (r *Receiver) InTrace(id [16]byte) map[string]*otlp.Span {
	return named(slices.DeleteFunc(r.All(), func(s *otlp.Span) bool { return !bytes.Equal(s.TraceId, id[:]) }))
}

// named returns spans by name. Those of clients have a name that ends in " upstream".
func named(all []*otlp.Span) map[string]*otlp.Span {
	named := map[string]*otlp.Span{}
	for _, s := range all {
		name := s.Name
		if s.Kind == otlp.Span_SPAN_KIND_CLIENT {
			name += " upstream"
		}
		named[name] = s
	}
	return named
}

// Attributes returns the texts and numbers among attributes.
func Attributes(pairs []*common.KeyValue) map[string]any {
	m := map[string]any{}
	for _, p := range pairs {
		switch v := p.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[p.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[p.Key] = v.IntValue
		}
	}
	return m
}
