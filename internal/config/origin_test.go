// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"testing"
)

func TestSourcesCountVariablesAndFlags(t *testing.T) {
	c := &Sources{origin: map[string]string{
		"log.level": "C:/overdue.yaml:3", "namespace": "OVERDUE_NAMESPACE", "listen.amqp": "OVERDUE_LISTEN_AMQP", "monitorQueue": "--monitor-queue",
	}}
	if got, want := c.String(), "C:/overdue.yaml, environment (2), flags (1)"; got != want {
		t.Errorf("sources = %q, want %q", got, want)
	}
	c = &Sources{origin: map[string]string{"log.level": "b.yaml:3", "log.format": "a.yaml:1", "redis": "c.yaml:2", "log.frames": "log.frames", "monitorQueue": "b.yaml:9"}}
	for range 20 { // maps have no order
		if got, want := c.String(), "a.yaml, b.yaml, c.yaml, flags (1)"; got != want {
			t.Fatalf("sources = %q, want %q", got, want)
		}
	}
	if got, want := (&Sources{}).String(), "defaults"; got != want {
		t.Errorf("sources of nothing = %q, want %q", got, want)
	}
}

// Unknown variables are errors as unknown keys are. What Kubernetes, tests and tools set passes.
func TestAVariableThatIsNoSettingIsAnError(t *testing.T) {
	for entry, want := range map[string]string{
		"OVERDUE_NAMESPAC=x":                   "OVERDUE_NAMESPAC is not a known variable; did you mean OVERDUE_NAMESPACE?",
		"OVERDUE_NAMESPACE_FILES=x":            "OVERDUE_NAMESPACE_FILES is not a known variable; did you mean OVERDUE_NAMESPACE_FILE?",
		"OVERDUE_LISTEN_HTPP=":                 "OVERDUE_LISTEN_HTPP is not a known variable; did you mean OVERDUE_LISTEN_HTTP?",
		"OVERDUE_REDIS_AUTHORITY_DOCUMENT=x":   "OVERDUE_REDIS_AUTHORITY_DOCUMENT is not a known variable; did you mean OVERDUE_REDIS_AUTHORITY_FILE?",
		"OVERDUE_X=x":                          "OVERDUE_X is not a known variable; docs/reference/configuration.md lists them",
		"OVERDUE_LISTEN_PORT=5672":             "OVERDUE_LISTEN_PORT is not a known variable; docs/reference/configuration.md lists them",
		"OVERDUE_PORT=5672":                    "OVERDUE_PORT is not a known variable; docs/reference/configuration.md lists them",
		"OVERDUE_PORT_X_TCP=tcp://10.0.0.1:1":  "OVERDUE_PORT_X_TCP is not a known variable; docs/reference/configuration.md lists them",
		"OVERDUE_SERVICE=x":                    "OVERDUE_SERVICE is not a known variable; docs/reference/configuration.md lists them",
		"OVERDUE_NAMESPACE=x":                  "",
		"OVERDUE_CONFIG=x":                     "",
		"OVERDUE_SEED=random":                  "",
		"OVERDUE_TEST_CONNECTION_STRING=x":     "",
		"OVERDUE=/bin/overdue":                 "",
		"HOME=/":                               "",
		"OVERDUE_SERVICE_HOST=10.0.0.1":        "",
		"OVERDUE_SERVICE_PORT=5672":            "",
		"OVERDUE_SERVICE_PORT_HTTP_5300=5300":  "",
		"OVERDUE_PORT=tcp://10.0.0.1:5672":     "",
		"OVERDUE_PORT_5672_TCP=tcp://10.0.0.1": "",
		"OVERDUE_PORT_5672_TCP_ADDR=10.0.0.1":  "",
		"OVERDUE_PORT_5672_TCP_PORT=5672":      "",
		"OVERDUE_PORT_5672_TCP_PROTO=tcp":      "",
		"OVERDUE_PORT_53_UDP_PORT=53":          "",
		"OVERDUE_MONITOR_SERVICE_HOST=fd00::1": "",
		"OVERDUE_MONITOR_SERVICE_PORT=9096":    "",
		"OVERDUE_MONITOR_SERVICE_PORT_AMQP=1":  "",
		"OVERDUE_MONITOR_PORT=tcp://10.0.0.1":  "",
		"OVERDUE_MY_OWN_PORT_9096_TCP_PORT=1":  "",
	} {
		got := ""
		if err := CheckVariables([]string{"PATH=/", entry}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
	}
}

// A setting whose variable has the form of one of Kubernetes would never be found misspelt.
func TestNoSettingHasTheFormOfAVariableOfKubernetes(t *testing.T) {
	for _, s := range Settings {
		if name := s.Env(); notOfSettings.MatchString(name) || slices.Contains(notSettings, name) {
			t.Errorf("%s is passed over", name)
		}
	}
}
