// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// handshake serves c and connects to it under a name.
func handshake(t *testing.T, c *Certificate, client *tls.Config, name string) error {
	t.Helper()
	client = client.Clone()
	client.ServerName = name
	a, b := tcpPipe(t)
	done := make(chan error, 1)
	go func() { done <- tls.Server(a, c.TLS).Handshake() }()
	err := tls.Client(b, client).Handshake()
	b.Close()
	<-done
	return err
}

func TestSelfMadeCertificateIsTrustedByItsNames(t *testing.T) {
	c, err := SelfMade(t.TempDir(), "Broker", "sb.example.test.", "10.1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	client := trust(t, c)
	for _, name := range []string{"localhost", "orders.localhost", "127.0.0.1", "::1", "broker", "sb.example.test", "10.1.2.3"} {
		if err := handshake(t, c, client, name); err != nil {
			t.Errorf("handshake with %s = %v, want nil", name, err)
		}
	}
	if err := handshake(t, c, client, "example.com"); err == nil {
		t.Error("handshake with example.com = nil, want an error")
	}
	if err := handshake(t, c, &tls.Config{RootCAs: x509.NewCertPool()}, "localhost"); err == nil {
		t.Error("handshake of a client that does not trust it = nil, want an error")
	}
	if left := time.Until(c.NotAfter); left < 2*365*24*time.Hour || left > 825*24*time.Hour {
		t.Errorf("it lasts for %v, want two years and at most 825 days", left)
	}
}

func TestSelfMadeCertificateIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first, err := SelfMade(dir, "broker")
	if err != nil {
		t.Fatal(err)
	}
	if !first.Made {
		t.Error("Made = false, want true")
	}
	for name, want := range map[string]os.FileMode{bundleFile: 0o600, caFile: 0o644, ".": 0o755} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); runtime.GOOS != "windows" && got != want {
			t.Errorf("mode of %s = %v, want %v", name, got, want)
		}
	}
	ca, err := os.ReadFile(first.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(ca), "PRIVATE") {
		t.Error("the file that is given away has a key in it")
	}
	if err := os.Remove(first.CAFile); err != nil {
		t.Fatal(err)
	}
	again, err := SelfMade(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again.Made || !again.NotAfter.Equal(first.NotAfter) {
		t.Errorf("the second time Made = %v, NotAfter = %v, want false, %v", again.Made, again.NotAfter, first.NotAfter)
	}
	if err := handshake(t, first, trust(t, again), "broker"); err != nil {
		t.Errorf("the authority's file, restored, does not verify: %v", err)
	}
}

func TestADirectoryOfTheCacheMayBeRelative(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	t.Setenv("XDG_CACHE_HOME", "cache")
	dir, err := DefaultCertificateDir()
	if want := filepath.Join(here, "cache", "overdue", "tls"); dir != want || err != nil {
		t.Errorf("DefaultCertificateDir = %s, %v, want %s", dir, err, want)
	}
}

func TestSelfMadeCertificateIsReplaced(t *testing.T) {
	old, err := newBundle([]string{"localhost", "*.localhost", "127.0.0.1", "::1"}, time.Now().Add(renewBefore-certificateLife-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for name, was := range map[string]string{
		"about to end":    string(old),
		"garbage":         "garbage",
		"key without one": string(old[strings.Index(string(old), "-----BEGIN PRIVATE"):]),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, bundleFile), []byte(was), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := SelfMade(dir)
			if err != nil {
				t.Fatal(err)
			}
			if !c.Made {
				t.Error("Made = false, want true")
			}
			if err := handshake(t, c, trust(t, c), "localhost"); err != nil {
				t.Errorf("handshake = %v, want nil", err)
			}
		})
	}
	t.Run("lacks a name", func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{"one", "two"} {
			c, err := SelfMade(dir, name)
			if err != nil {
				t.Fatal(err)
			}
			if err := handshake(t, c, trust(t, c), name); !c.Made || err != nil {
				t.Errorf("for %s: Made = %v, handshake = %v, want true and nil", name, c.Made, err)
			}
		}
	})
}

func TestProcessesThatStartAtOnceAgreeOnOneCertificate(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	made := make([]*Certificate, 8)
	for i := range made {
		wg.Go(func() {
			var err error
			if made[i], err = SelfMade(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i, c := range made {
		if err := handshake(t, c, trust(t, made[0]), "localhost"); err != nil {
			t.Errorf("certificate %d is not the first one's: %v", i, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 2 {
		t.Errorf("%d files are left, want 2: %v", len(left), left)
	}
}

func TestNamesThatAreNoneAreRefused(t *testing.T) {
	for _, name := range []string{"", "a b", "-a", "a..b", "http://a", "a:1", "*", "b.*", strings.Repeat("a", 64), "a\n"} {
		if name == "*" {
			continue // any single label
		}
		if _, err := SelfMade(t.TempDir(), name); err == nil {
			t.Errorf("SelfMade(%q) = nil, want an error", name)
		}
	}
}

func TestACertificateOfOnesOwnIsLoaded(t *testing.T) {
	dir := t.TempDir()
	made, err := SelfMade(dir, "mine")
	if err != nil {
		t.Fatal(err)
	}
	c, err := LoadCertificate(made.CertFile, made.KeyFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := handshake(t, c, trust(t, made), "mine"); err != nil || c.CAFile != "" {
		t.Errorf("handshake = %v, CAFile = %q, want nil and none", err, c.CAFile)
	}
	if _, err := LoadCertificate(made.CAFile, made.KeyFile, nil); err == nil {
		t.Error("LoadCertificate with the key of another = nil, want an error")
	}
	if _, err := LoadCertificate(filepath.Join(dir, "none"), made.KeyFile, nil); err == nil {
		t.Error("LoadCertificate of no file = nil, want an error")
	}
}

// A secret that is mounted is a link to a folder, which is replaced in one step.
func TestACertificateThatIsRotatedIsServed(t *testing.T) {
	dir := t.TempDir()
	made := make([]*Certificate, 2)
	for i := range made {
		folder := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		names, err := certificateNames([]string{"mine"})
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := newBundle(names, time.Now().Add(-time.Duration(i)*time.Hour)) // they end at different times
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, bundleFile), bundle, 0o600); err != nil {
			t.Fatal(err)
		}
		if made[i], err = SelfMade(folder, "mine"); err != nil {
			t.Fatal(err)
		}
	}
	lead := func(to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "now")); err != nil {
			t.Fatal(err)
		}
	}
	serves := func(c *Certificate, want int) {
		t.Helper()
		for i := range made {
			if err := handshake(t, c, trust(t, made[i]), "mine"); (err == nil) != (i == want) {
				t.Errorf("handshake of a client that trusts certificate %d = %v; want %d to be served", i, err, want)
			}
		}
	}
	lead("0")
	file := filepath.Join(dir, "now", bundleFile)
	var reported []error
	c, err := LoadCertificate(file, file, func(err error) { reported = append(reported, err) })
	if err != nil {
		t.Fatal(err)
	}
	serves(c, 0)
	lead("nowhere")
	serves(c, 0)
	if len(reported) != 0 {
		t.Errorf("reported of %v while the files are away, want nothing", reported)
	}
	if err := os.Mkdir(filepath.Join(dir, "2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "2", bundleFile), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	lead("2")
	serves(c, 0)
	if len(reported) != 1 || reported[0] == nil {
		t.Errorf("reported of %v, want one error", reported)
	}
	lead("1")
	serves(c, 1)
	if got := c.End(); !got.Equal(made[1].NotAfter) || got.Equal(c.NotAfter) {
		t.Errorf("End = %v, want %v of the certificate that is served now", got, made[1].NotAfter)
	}
	if len(reported) != 2 || reported[1] != nil {
		t.Errorf("reported of %v, want one error and one success", reported)
	}
}
