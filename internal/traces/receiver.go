// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"overdue/internal/httpclient"
)

// A receiver is where spans go.
type receiver struct {
	url  *url.URL
	grpc bool
}

// protocolGRPC is a value of OTEL_EXPORTER_OTLP_PROTOCOL.
const protocolGRPC = "grpc"

// receiverOf returns the receiver that the variables of OpenTelemetry name, nil if traces are off.
// An error names the variable, and no value that may be a secret.
//
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
func receiverOf(getenv func(string) string) (*receiver, error) {
	get := variables(getenv)
	endpoint, name := get.ofExporter("ENDPOINT")
	isOff := endpoint == "" || strings.EqualFold(get.read("OTEL_SDK_DISABLED"), "true") || get.read("OTEL_TRACES_EXPORTER") == "none"
	if isOff {
		return nil, nil
	}
	if err := get.check(); err != nil {
		return nil, err
	}
	u, isGRPC := get.address(endpoint)
	if u == nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s: want a URL such as http://localhost:4318, of http or https, without user, query and fragment", name)
	}
	switch {
	case isGRPC && u.Port() == "":
		u.Host += ":4317"
	case !isGRPC && name == "OTEL_EXPORTER_OTLP_ENDPOINT":
		u = u.JoinPath("v1/traces")
	case !isGRPC && u.Path == "":
		u.Path = "/"
	}
	return &receiver{url: u, grpc: isGRPC}, nil
}

// address reads an endpoint, nil if it cannot be read.
func (get variables) address(endpoint string) (u *url.URL, isGRPC bool) {
	protocol, _ := get.ofExporter("PROTOCOL")
	isGRPC = protocol == protocolGRPC
	if isGRPC && !strings.Contains(endpoint, "://") {
		// The address alone, as gRPC has it. Then another variable says whether TLS is spoken.
		if _, _, err := net.SplitHostPort(endpoint); err != nil {
			return nil, true
		}
		scheme := "https://"
		if insecure, _ := get.ofExporter("INSECURE"); strings.EqualFold(insecure, "true") {
			scheme = "http://"
		}
		endpoint = scheme + endpoint
	}
	u, err := httpclient.ParseURL(endpoint)
	if err != nil {
		return nil, isGRPC
	}
	return u, isGRPC
}

// String returns the receiver for the log. Its path may be a secret.
func (r *receiver) String() string { return r.url.Scheme + "://" + r.url.Host }

// retries are those of the exporters, but for the first, which comes after five seconds there: none
// would come before stopTimeout.
var retries = otlptracehttp.RetryConfig{
	Enabled:         true,
	InitialInterval: 500 * time.Millisecond,
	MaxInterval:     30 * time.Second,
	MaxElapsedTime:  time.Minute,
}

// exporter makes the exporter of the SDK, which reads the other variables itself.
func (r *receiver) exporter(ctx context.Context) (*otlptrace.Exporter, error) {
	otel.SetLogger(logr.Discard()) // it shows values of variables, and they can be secrets
	if r.grpc {
		return otlptracegrpc.New(ctx,
			otlptracegrpc.WithEndpointURL(r.url.String()), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig(retries)))
	}
	refusesRedirects := httpclient.Transport().Proxy
	return otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(r.url.String()), otlptracehttp.WithRetry(retries), otlptracehttp.WithProxy(refusesRedirects))
}
