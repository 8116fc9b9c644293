// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSourcesCountVariablesAndFlags(t *testing.T) {
	c := &Config{origin: map[string]string{
		"log.level": "C:/overdue.yaml:3", "namespace": "OVERDUE_NAMESPACE", "listen.amqp": "OVERDUE_LISTEN_AMQP", "monitorQueue": "--monitor-queue",
	}}
	if got, want := c.Sources(), "C:/overdue.yaml, environment (2), flags (1)"; got != want {
		t.Errorf("sources = %q, want %q", got, want)
	}
	c = &Config{origin: map[string]string{"log.level": "b.yaml:3", "log.format": "a.yaml:1", "redis": "c.yaml:2", "log.frames": "log.frames", "monitorQueue": "b.yaml:9"}}
	for range 20 { // maps have no order
		if got, want := c.Sources(), "a.yaml, b.yaml, c.yaml, flags (1)"; got != want {
			t.Fatalf("sources = %q, want %q", got, want)
		}
	}
	if got, want := (&Config{}).Sources(), "defaults"; got != want {
		t.Errorf("sources of nothing = %q, want %q", got, want)
	}
}

func TestOnlyVariablesCloseToASettingAreMisspelt(t *testing.T) {
	got := MisspeltVariables([]string{"OVERDUE_NAMESPCE=x", "OVERDUE_NAMESPACE=x", "OVERDUE_CONFIG=x", "OVERDUE_REDIS_AUTHORITY_DOCUMENT=x", "OVERDUE_SERVICE_PORT_HTTP_5300=1", "HOME=/"})
	want := []string{"OVERDUE_NAMESPCE is no setting, and has no effect; did you mean OVERDUE_NAMESPACE?"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
