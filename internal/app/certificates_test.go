// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"overdue/internal/config"
	"overdue/internal/listener"
)

func TestMetricsSayWhenCertificatesEnd(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	var authorities []byte
	for _, begin := range []time.Time{now.Add(-24 * time.Hour), now} {
		b, err := listener.MakeBundle([]string{"hooks.example"}, begin)
		if err != nil {
			t.Fatal(err)
		}
		authorities = append(b.Authority, authorities...) // the latest is the first
	}
	file := filepath.Join(dir, "authorities.pem")
	if err := os.WriteFile(file, authorities, 0o600); err != nil {
		t.Fatal(err)
	}
	p := startRole(t, config.RoleRun, fmt.Sprintf(`
listen: {tls: {directory: %[1]q}, amqps: "127.0.0.1:0"}
broker: {autoCreate: true, tls: {enabled: true, directory: %[1]q}}
alerts: [{name: desk, webhook: {url: "https://hooks.example/", authorityFile: %[2]q}}]
`, filepath.Join(dir, "tls"), file))
	_, page := askAdmin(p.admin, "GET", "/metrics", "")
	for _, c := range []struct {
		use string
		end time.Time
	}{
		{"listen.tls", p.endpoints.certificate.NotAfter},
		{"broker.tls", p.broker.certificate.NotAfter},
		{"sink desk", lastEnd(string(authorities))},
	} {
		want := fmt.Sprintf("overdue_certificate_expiry_timestamp_seconds{servicebus_namespace=\"embedded\",use=%q} %s", c.use, strings.TrimSuffix(fmt.Sprintf("%g", float64(c.end.Unix())), "\n"))
		if !strings.Contains(page, want) {
			t.Errorf("GET /metrics lacks %s", want)
		}
	}
	if strings.Contains(page, `use="redis"`) {
		t.Error("there is a certificate of a Redis that is not there")
	}
	if end := lastEnd(string(authorities)); end.Before(now) || end.Sub(now) < 800*24*time.Hour {
		t.Errorf("the last of two authorities ends at %v", end)
	}
	if end := lastEnd("no certificate"); !end.IsZero() {
		t.Errorf("lastEnd without a certificate = %v, want zero", end)
	}
}

func TestAServedCertificateThatHasEndedIsAFailedCheck(t *testing.T) {
	b, err := listener.MakeBundle([]string{"localhost"}, time.Now().Add(-10*365*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "endpoints.pem")
	if err := os.WriteFile(file, append(b.Certificate, b.Key...), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startRole(t, config.RoleRun, fmt.Sprintf(`
listen: {tls: {enabled: true, certFile: %[1]q, keyFile: %[1]q}}
broker: {autoCreate: true, tls: {enabled: true, directory: %[2]q}}
`, file, filepath.Join(dir, "tls")))
	status, body := askAdmin(p.admin, "GET", "/healthz/outbound?verbose", "")
	if ended := "[-] listen.tls: apps refuse its certificate, which ended at "; status != http.StatusServiceUnavailable || !strings.Contains(body, ended) || !strings.Contains(body, "[+] broker.tls") {
		t.Errorf("GET /healthz/outbound = %d %s, want %d with %q", status, body, http.StatusServiceUnavailable, ended)
	}
}
