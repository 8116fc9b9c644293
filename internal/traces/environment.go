// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// A rule says which values the SDK can read. Of any other value it takes the default instead, which
// may be another receiver or all traces.
type rule struct {
	want   string
	valid  func(value string) bool
	secret bool // the value must not be shown
}

const (
	maxMillis = 60 * 60 * 1000
	maxSpans  = 1 << 20
)

// rules has the variables that are checked. Those of the exporter have a form for traces, see
// ofExporter.
var rules = map[string]rule{
	"OTEL_EXPORTER_OTLP_COMPRESSION": oneOf("gzip", "none"),
	"OTEL_EXPORTER_OTLP_HEADERS":     pairs("name=value", areHeader),
	"OTEL_EXPORTER_OTLP_INSECURE":    truth,
	"OTEL_EXPORTER_OTLP_PROTOCOL":    oneOf(protocolGRPC, "http/protobuf"),
	"OTEL_EXPORTER_OTLP_TIMEOUT":     number("milliseconds", maxMillis),
	"OTEL_BSP_EXPORT_TIMEOUT":        number("milliseconds", maxMillis),
	"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": number("spans", maxSpans),
	"OTEL_BSP_MAX_QUEUE_SIZE":        number("spans", maxSpans),
	"OTEL_BSP_SCHEDULE_DELAY":        number("milliseconds", maxMillis),
	"OTEL_RESOURCE_ATTRIBUTES":       pairs("key=value", areAttribute),
	"OTEL_SDK_DISABLED":              truth,
	"OTEL_TRACES_EXPORTER":           oneOf("otlp", "none"),
	"OTEL_TRACES_SAMPLER": oneOf("always_on", "always_off", "traceidratio",
		"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"),
	"OTEL_TRACES_SAMPLER_ARG": {want: "a number from 0 to 1", valid: isRatio},
}

var truth = rule{
	want:  "true or false",
	valid: func(value string) bool { return strings.EqualFold(value, "true") || strings.EqualFold(value, "false") },
}

func oneOf(values ...string) rule {
	return rule{
		want:  strings.Join(values, " or "),
		valid: func(value string) bool { return slices.Contains(values, value) },
	}
}

func number(unit string, largest int) rule {
	return rule{
		want: fmt.Sprintf("%s, from 1 to %d", unit, largest),
		valid: func(value string) bool {
			n, err := strconv.Atoi(value)
			return err == nil && n >= 1 && n <= largest
		},
	}
}

func isRatio(value string) bool {
	ratio, err := strconv.ParseFloat(value, 64)
	return err == nil && ratio >= 0 && ratio <= 1
}

// pairs is the rule of a list of pairs, each of which has to be valid.
func pairs(form string, valid func(key, value string) bool) rule {
	isValid := func(pair string) bool {
		key, encoded, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(encoded)
		return found && err == nil && valid(strings.TrimSpace(key), value)
	}
	return rule{
		want:   form + ", separated by commas; a value is percent-encoded",
		secret: true,
		valid: func(list string) bool {
			for pair := range strings.SplitSeq(list, ",") {
				if strings.TrimSpace(pair) != "" && !isValid(pair) {
					return false
				}
			}
			return true
		},
	}
}

func areAttribute(key, _ string) bool { return key != "" }

func areHeader(name, value string) bool {
	return httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value)
}

// variables reads the variables of a process.
type variables func(name string) string

func (get variables) read(name string) string { return strings.TrimSpace(get(name)) }

// ofExporter returns a variable of the exporter: that for traces, or else that for all signals.
func (get variables) ofExporter(suffix string) (value, name string) {
	for _, name = range []string{"OTEL_EXPORTER_OTLP_TRACES_" + suffix, "OTEL_EXPORTER_OTLP_" + suffix} {
		if value = get.read(name); value != "" {
			return value, name
		}
	}
	return "", name
}

// check returns the mistakes in the variables that the SDK would not report.
func (get variables) check() error {
	errs := []error{get.checkTLS()}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		errs = append(errs, get.checkRule(name, rules[name]))
		if suffix, found := strings.CutPrefix(name, "OTEL_EXPORTER_OTLP_"); found {
			errs = append(errs, get.checkRule("OTEL_EXPORTER_OTLP_TRACES_"+suffix, rules[name]))
		}
	}
	return errors.Join(errs...)
}

func (get variables) checkRule(name string, r rule) error {
	value := get.read(name)
	switch {
	case value == "" || r.valid(value):
		return nil
	case r.secret:
		return fmt.Errorf("%s: want %s", name, r.want)
	}
	return fmt.Errorf("%s is %.100q: want %s", name, value, r.want)
}

// checkTLS reads the files for TLS, without which the exporters would go on.
func (get variables) checkTLS() error {
	if file, name := get.ofExporter("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(text) {
			return fmt.Errorf("%s: %s has no certificate in PEM", name, file)
		}
	}
	certificate, name := get.ofExporter("CLIENT_CERTIFICATE")
	key, nameOfKey := get.ofExporter("CLIENT_KEY")
	if certificate == "" && key == "" {
		return nil
	}
	if certificate == "" || key == "" {
		return fmt.Errorf("%s and %s: want both, or none", name, nameOfKey)
	}
	if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
