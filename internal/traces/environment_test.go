// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"strings"
	"testing"
)

func TestTracesAreOffUnlessTheVariablesNameAReceiver(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing":      {},
		"a name alone": {"OTEL_SERVICE_NAME": "sidecar", "OTEL_TRACES_SAMPLER": "always_on"},
		"disabled":     {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "True"},
		"no exporter":  {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"},
		"for metrics":  {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://localhost:4318"},
	} {
		if r, err := receiverOf(func(name string) string { return env[name] }); err != nil || r != nil {
			t.Errorf("%s: %v, %v; want traces off", name, r, err)
		}
	}
}

func TestWhereSpansGo(t *testing.T) {
	for _, tt := range []struct{ env, want string }{
		{"ENDPOINT=http://localhost:4318", "http://localhost:4318/v1/traces"},
		{"ENDPOINT=https://otlp.test/base/", "https://otlp.test/base/v1/traces"},
		{"TRACES_ENDPOINT=https://otlp.test/own/path ENDPOINT=http://other.test", "https://otlp.test/own/path"},
		{"TRACES_ENDPOINT=https://otlp.test", "https://otlp.test/"},
		{"ENDPOINT=http://localhost:4317 PROTOCOL=grpc", "http://localhost:4317"},
		{"ENDPOINT=https://otlp.test PROTOCOL=http/protobuf TRACES_PROTOCOL=grpc", "https://otlp.test:4317"},
		{"ENDPOINT=otlp.test:4317 PROTOCOL=grpc", "https://otlp.test:4317"},
		{"ENDPOINT=otlp.test:4317 PROTOCOL=grpc INSECURE=true", "http://otlp.test:4317"},
		{"ENDPOINT=[::1]:4317 PROTOCOL=grpc TRACES_INSECURE=true INSECURE=false", "http://[::1]:4317"},
	} {
		env := map[string]string{}
		for pair := range strings.FieldsSeq(tt.env) {
			name, value, _ := strings.Cut(pair, "=")
			env["OTEL_EXPORTER_OTLP_"+name] = value
		}
		r, err := receiverOf(func(name string) string { return env[name] })
		if err != nil {
			t.Errorf("%s: %v, want %q", tt.env, err, tt.want)
		} else if got := r.url.String(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.env, got, tt.want)
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
		r, err := receiverOf(func(name string) string { return env[name] })
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") || r != nil {
			t.Errorf("%s: %v, want %q, and traces off", tt.env, err, tt.want)
		}
	}
}

func TestFilesForTLSAreRead(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        {"OTEL_EXPORTER_OTLP_CERTIFICATE": "environment_test.go"},
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "nowhere.pem", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "nowhere.pem"},
	} {
		env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "https://localhost"
		if _, err := receiverOf(func(name string) string { return env[name] }); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("receiverOf = %v, want an error that names %s", err, name)
		}
	}
}
