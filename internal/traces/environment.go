// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Protocols of OTLP.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// A Config says where spans go. The zero value records none.
type Config struct {
	URL      string // of the receiver, with the path; "" = traces are off
	Protocol string // protocolGRPC or protocolHTTP

	Headers     map[string]string // added to each request
	Gzip        bool
	Timeout     time.Duration // of one request
	Certificate string        // a file in PEM: authorities of the receiver; "" = those of the machine
	ClientCert  string        // files in PEM: how this process shows who it is; "" = it does not
	ClientKey   string

	Sampler Sampler

	Service  string      // service.name
	Resource []Attribute // more attributes of the resource

	Delay     time.Duration // from the first span of a batch to its export
	Queue     int           // spans that wait at most
	BatchSize int           // spans of one export
	BatchTime time.Duration // of an export, with its retries
}

// On reports whether spans are recorded.
func (c *Config) On() bool { return c.URL != "" }

const (
	defaultService   = "overdue"
	defaultTimeout   = 10 * time.Second
	defaultDelay     = 5 * time.Second
	defaultQueue     = 2048
	defaultBatch     = 512
	defaultBatchTime = 30 * time.Second
	maxQueue         = 1 << 20
	maxResource      = 64 // attributes
)

// FromEnvironment reads the variables of OpenTelemetry. Traces are off unless one of them names a
// receiver. An error names the variable; the Config is then off.
//
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
func FromEnvironment(getenv func(string) string) (Config, error) {
	e := environment{getenv: getenv}
	c := e.config()
	if len(e.errs) > 0 {
		return Config{}, errors.Join(e.errs...)
	}
	return c, nil
}

type environment struct {
	getenv func(string) string
	errs   []error
}

func (e *environment) config() Config {
	if e.bool("OTEL_SDK_DISABLED") {
		return Config{}
	}
	switch exporter := strings.TrimSpace(e.getenv("OTEL_TRACES_EXPORTER")); exporter {
	case "", "otlp":
	case "none":
		return Config{}
	default:
		e.fail("OTEL_TRACES_EXPORTER", exporter, "otlp or none")
	}
	base, _ := e.otlp("ENDPOINT")
	if base == "" {
		return Config{}
	}
	c := Config{
		Timeout: e.millis("OTEL_EXPORTER_OTLP_TIMEOUT", defaultTimeout), Service: defaultService,
		Delay: e.millis("OTEL_BSP_SCHEDULE_DELAY", defaultDelay), BatchTime: e.millis("OTEL_BSP_EXPORT_TIMEOUT", defaultBatchTime),
		Queue: e.count("OTEL_BSP_MAX_QUEUE_SIZE", defaultQueue), BatchSize: e.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", defaultBatch),
		Sampler: e.sampler(),
	}
	if value, name := e.otlp("TIMEOUT"); value != "" {
		c.Timeout = e.millis(name, defaultTimeout)
	}
	c.BatchSize = min(c.BatchSize, c.Queue)
	e.protocol(&c)
	e.url(&c)
	e.headers(&c)
	e.tls(&c)
	e.resource(&c)
	return c
}

// otlp returns a variable of the exporter: that for traces, or else that for all signals.
func (e *environment) otlp(suffix string) (value, name string) {
	for _, name = range []string{"OTEL_EXPORTER_OTLP_TRACES_" + suffix, "OTEL_EXPORTER_OTLP_" + suffix} {
		if value = strings.TrimSpace(e.getenv(name)); value != "" {
			return value, name
		}
	}
	return "", name
}

// fail notes a value that cannot be taken. The value may be a secret only where show is "".
func (e *environment) fail(name, show, want string) {
	if show != "" {
		show = fmt.Sprintf(" is %.100q", show)
	}
	e.errs = append(e.errs, fmt.Errorf("%s%s: want %s", name, show, want))
}

func (e *environment) bool(name string) bool {
	text := strings.TrimSpace(e.getenv(name))
	switch strings.ToLower(text) {
	case "", "false":
		return false
	case "true":
		return true
	}
	e.fail(name, text, "true or false")
	return false
}

func (e *environment) millis(name string, standard time.Duration) time.Duration {
	text := strings.TrimSpace(e.getenv(name))
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > int(time.Hour/time.Millisecond) {
		e.fail(name, text, "milliseconds, from 1 to an hour")
		return standard
	}
	return time.Duration(n) * time.Millisecond
}

func (e *environment) count(name string, standard int) int {
	text := strings.TrimSpace(e.getenv(name))
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxQueue {
		e.fail(name, text, fmt.Sprintf("a number from 1 to %d", maxQueue))
		return standard
	}
	return n
}

func (e *environment) protocol(c *Config) {
	protocol, name := e.otlp("PROTOCOL")
	switch protocol {
	case "", protocolHTTP:
		c.Protocol = protocolHTTP
	case protocolGRPC:
		c.Protocol = protocolGRPC
	default:
		e.fail(name, protocol, "grpc or http/protobuf")
	}
	compression, name := e.otlp("COMPRESSION")
	switch compression {
	case "", "none":
	case "gzip":
		c.Gzip = true
	default:
		e.fail(name, compression, "gzip or none")
	}
}

// Paths of requests.
const (
	pathHTTP = "/v1/traces"
	pathGRPC = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
)

func (e *environment) url(c *Config) {
	text, name := e.otlp("ENDPOINT")
	const want = "a URL such as http://localhost:4318, of http or https, without user, query and fragment"
	if c.Protocol == protocolGRPC && !strings.Contains(text, "://") {
		// The address alone, as gRPC has it. Then another variable says whether TLS is spoken.
		scheme := "https://"
		if insecure, name := e.otlp("INSECURE"); insecure != "" && e.bool(name) {
			scheme = "http://"
		}
		if _, _, err := net.SplitHostPort(text); err != nil {
			e.fail(name, "", want)
			return
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		e.fail(name, "", want) // it may have a secret in it
		return
	}
	switch {
	case c.Protocol == protocolGRPC:
		u.Path = pathGRPC
		if u.Port() == "" {
			u.Host += ":4317"
		}
	case name == "OTEL_EXPORTER_OTLP_ENDPOINT":
		u.Path = strings.TrimSuffix(u.Path, "/") + pathHTTP
	case u.Path == "":
		u.Path = "/"
	}
	c.URL = u.String()
}

func (e *environment) headers(c *Config) {
	text, name := e.otlp("HEADERS")
	c.Headers = map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || !isToken(key) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			// The value has secrets in it.
			e.fail(name, "", "name=value, separated by commas; a value is percent-encoded")
			return
		}
		c.Headers[key] = value
	}
}

// isToken reports whether s is the name of a header (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func (e *environment) tls(c *Config) {
	c.Certificate, _ = e.otlp("CERTIFICATE")
	c.ClientCert, _ = e.otlp("CLIENT_CERTIFICATE")
	var name string
	c.ClientKey, name = e.otlp("CLIENT_KEY")
	if (c.ClientCert == "") != (c.ClientKey == "") {
		e.fail(name, "", "both of client certificate and client key, or none")
	}
}

func (e *environment) resource(c *Config) {
	const name = "OTEL_RESOURCE_ATTRIBUTES"
	for pair := range strings.SplitSeq(e.getenv(name), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || key == "" || len(c.Resource) == maxResource {
			e.fail(name, "", fmt.Sprintf("at most %d pairs key=value, separated by commas; a value is percent-encoded", maxResource))
			return
		}
		if key == "service.name" {
			c.Service = value
			continue
		}
		// The last one counts.
		c.Resource = slices.DeleteFunc(c.Resource, func(a Attribute) bool { return a.Key == key })
		c.Resource = append(c.Resource, Text(key, value))
	}
	if service := strings.TrimSpace(e.getenv("OTEL_SERVICE_NAME")); service != "" {
		c.Service = service
	}
}
