// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"strings"
	"testing"
	"time"

	"overdue/internal/traceparent"
)

func TestTracesAreOffUnlessTheVariablesNameAReceiver(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing":      {},
		"a name alone": {"OTEL_SERVICE_NAME": "sidecar", "OTEL_TRACES_SAMPLER": "always_on"},
		"disabled":     {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "True"},
		"no exporter":  {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"},
		"for metrics":  {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://localhost:4318"},
	} {
		if c, err := FromEnvironment(func(name string) string { return env[name] }); err != nil || c.On() {
			t.Errorf("%s: %+v, %v; want traces off", name, c, err)
		}
	}
}

func TestWhereSpansGo(t *testing.T) {
	for _, tt := range []struct{ env, want string }{
		{"ENDPOINT=http://localhost:4318", "http://localhost:4318/v1/traces"},
		{"ENDPOINT=https://otlp.test/base/", "https://otlp.test/base/v1/traces"},
		{"TRACES_ENDPOINT=https://otlp.test/own/path ENDPOINT=http://other.test", "https://otlp.test/own/path"},
		{"TRACES_ENDPOINT=https://otlp.test", "https://otlp.test/"},
		{"ENDPOINT=http://localhost:4317 PROTOCOL=grpc", "http://localhost:4317" + pathGRPC},
		{"ENDPOINT=https://otlp.test PROTOCOL=http/protobuf TRACES_PROTOCOL=grpc", "https://otlp.test:4317" + pathGRPC},
		{"ENDPOINT=otlp.test:4317 PROTOCOL=grpc", "https://otlp.test:4317" + pathGRPC},
		{"ENDPOINT=otlp.test:4317 PROTOCOL=grpc INSECURE=true", "http://otlp.test:4317" + pathGRPC},
		{"ENDPOINT=[::1]:4317 PROTOCOL=grpc TRACES_INSECURE=true INSECURE=false", "http://[::1]:4317" + pathGRPC},
	} {
		env := map[string]string{}
		for pair := range strings.FieldsSeq(tt.env) {
			name, value, _ := strings.Cut(pair, "=")
			env["OTEL_EXPORTER_OTLP_"+name] = value
		}
		if c, err := FromEnvironment(func(name string) string { return env[name] }); err != nil || c.URL != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.env, c.URL, err, tt.want)
		}
	}
}

func TestAMistakeNamesItsVariable(t *testing.T) {
	const at = "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 "
	for _, tt := range []struct{ env, want string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT: want a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=ftp://localhost", "OTEL_EXPORTER_OTLP_ENDPOINT: want a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://user:secret@localhost", "OTEL_EXPORTER_OTLP_ENDPOINT: want a URL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "want a URL"},
		{at + "OTEL_EXPORTER_OTLP_PROTOCOL=http/json", `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json": want grpc or http/protobuf`},
		{at + "OTEL_EXPORTER_OTLP_COMPRESSION=zstd", "OTEL_EXPORTER_OTLP_COMPRESSION"},
		{at + "OTEL_EXPORTER_OTLP_HEADERS=secret", "OTEL_EXPORTER_OTLP_HEADERS: want name=value"},
		{at + "OTEL_EXPORTER_OTLP_HEADERS=a:b=secret", "OTEL_EXPORTER_OTLP_HEADERS: want name=value"},
		{at + "OTEL_EXPORTER_OTLP_HEADERS=a=secret%0d%0ax", "OTEL_EXPORTER_OTLP_HEADERS: want name=value"},
		{at + "OTEL_EXPORTER_OTLP_TIMEOUT=10s", `OTEL_EXPORTER_OTLP_TIMEOUT is "10s": want milliseconds`},
		{at + "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=-1", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"},
		{at + "OTEL_EXPORTER_OTLP_CLIENT_KEY=key.pem", "OTEL_EXPORTER_OTLP_CLIENT_KEY: want both"},
		{at + "OTEL_TRACES_EXPORTER=zipkin", `OTEL_TRACES_EXPORTER is "zipkin": want otlp or none`},
		{at + "OTEL_TRACES_SAMPLER=xray", "OTEL_TRACES_SAMPLER"},
		{at + "OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=2", "OTEL_TRACES_SAMPLER_ARG"},
		{at + "OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=NaN", "OTEL_TRACES_SAMPLER_ARG"},
		{at + "OTEL_SDK_DISABLED=yes", "OTEL_SDK_DISABLED"},
		{at + "OTEL_RESOURCE_ATTRIBUTES=nothing", "OTEL_RESOURCE_ATTRIBUTES"},
		{at + "OTEL_BSP_MAX_QUEUE_SIZE=0", "OTEL_BSP_MAX_QUEUE_SIZE"},
		{at + "OTEL_BSP_SCHEDULE_DELAY=soon", "OTEL_BSP_SCHEDULE_DELAY"},
	} {
		env := map[string]string{}
		for pair := range strings.FieldsSeq(tt.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		c, err := FromEnvironment(func(name string) string { return env[name] })
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") || c.On() {
			t.Errorf("%s: %v, want %q, and traces off", tt.env, err, tt.want)
		}
	}
}

func TestFilesOfTLSAreRead(t *testing.T) {
	for name, c := range map[string]Config{
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        {URL: "https://localhost", Certificate: "environment_test.go"},
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": {URL: "https://localhost", ClientCert: "nowhere.pem", ClientKey: "nowhere.pem"},
	} {
		if _, err := New(c, Options{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New = %v, want an error that names %s", err, name)
		}
	}
}

func TestTheTableOfVariables(t *testing.T) {
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_EXPORTER_OTLP_TIMEOUT": "2000", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "3000",
		"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100", "OTEL_BSP_EXPORT_TIMEOUT": "4000",
		"OTEL_RESOURCE_ATTRIBUTES": "service.name=unused,a=1,a=2", "OTEL_SERVICE_NAME": "sidecar",
	}
	c, err := FromEnvironment(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if c.Timeout != 3*time.Second || c.Delay != 100*time.Millisecond || c.Queue != 64 || c.BatchSize != 64 || c.BatchTime != 4*time.Second {
		t.Errorf("%+v, want what the variables say, and no batch beyond the queue", c)
	}
	if c.Service != "sidecar" || len(c.Resource) != 1 || c.Resource[0] != Text("a", "2") {
		t.Errorf("service %s and resource %v, want the last of each", c.Service, c.Resource)
	}
}

func TestSamplers(t *testing.T) {
	sampled := traceparent.Context{TraceID: [16]byte{8: 0xff}, SpanID: [8]byte{1}, Sampled: true}
	unsampled := sampled
	unsampled.Sampled = false
	low, high := [16]byte{8: 0x10}, [16]byte{8: 0xf0} // a sixteenth and fifteen sixteenths of all ids
	for name, want := range map[string][4]bool{       // a sampled parent, an unsampled one, none and a low id, none and a high one
		"":                         {true, false, true, true},
		"always_on":                {true, true, true, true},
		"always_off":               {false, false, false, false},
		"traceidratio":             {false, false, true, false},
		"parentbased_always_on":    {true, false, true, true},
		"parentbased_always_off":   {true, false, false, false},
		"parentbased_traceidratio": {true, false, true, false},
	} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": "0.5"}
		c, err := FromEnvironment(func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		got := [4]bool{
			c.Sampler.samples(sampled, true, sampled.TraceID), c.Sampler.samples(unsampled, true, sampled.TraceID),
			c.Sampler.samples(traceparent.Context{}, false, low), c.Sampler.samples(traceparent.Context{}, false, high),
		}
		if got != want {
			t.Errorf("%s samples %v, want %v", name, got, want)
		}
	}
}
