// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"overdue/internal/listener"
	"overdue/internal/testing/freeport"
)

// writeCertificate writes a new certificate for 127.0.0.1, and returns its authority.
func writeCertificate(t *testing.T, dir string) []byte {
	t.Helper()
	made, err := listener.MakeBundle([]string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"tls.crt": made.Certificate, "tls.key": made.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return made.Authority
}

// client trusts one authority.
func client(authority []byte) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
}

// eventually tries until it works: the server is another goroutine with sockets.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func review1(c *http.Client, addr string) error {
	body := fmt.Sprintf(asked, "Pod", "CREATE", fmt.Sprintf(pod, ""))
	resp, err := c.Post("https://"+addr+Path, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Contains(text, []byte(`"patchType":"JSONPatch"`)) {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

func TestTheWebhookServesTheLatestCertificate(t *testing.T) {
	dir := t.TempDir()
	authority := writeCertificate(t, dir)
	c := Config{
		Options: options, Log: zap.NewNop(), Listen: freeport.Address(t), ListenProbes: freeport.Address(t),
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"),
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, c) }()
	eventually(t, func() error { return review1(client(authority), c.Listen) })
	for _, path := range []string{"/livez", "/readyz", "/startupz", "/metrics"} {
		resp, err := http.Get("http://" + c.ListenProbes + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s %s, %v", path, resp.Status, text, err)
		}
		if path == "/metrics" && !bytes.Contains(text, []byte(`overdue_injections_total{result="added"} 1`)) {
			t.Errorf("/metrics has\n%s", text)
		}
	}
	next := writeCertificate(t, dir)
	eventually(t, func() error { return review1(client(next), c.Listen) })
	if err := review1(client(authority), c.Listen); err == nil {
		t.Error("the certificate before is served, too")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestServeSaysWhatIsTaken(t *testing.T) {
	dir := t.TempDir()
	c := Config{Options: options, Log: zap.NewNop(), Listen: "127.0.0.1:0", ListenProbes: "127.0.0.1:0", CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	if err := Serve(t.Context(), c); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the files: %v", err)
	}
	writeCertificate(t, dir)
	for _, change := range []func(*Config){func(c *Config) { c.Listen = "nowhere" }, func(c *Config) { c.ListenProbes = "nowhere" }} {
		c := c
		change(&c)
		if err := Serve(t.Context(), c); err == nil || !strings.Contains(err.Error(), "listen") {
			t.Errorf("Serve = %v, want an error of an address", err)
		}
	}
}
