// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// installedHAProxy fails the test where HAProxy is missing: one that is skipped tests nothing.
func installedHAProxy(t *testing.T) {
	t.Helper()
	version, err := haproxyVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if version == "" {
		t.Fatal("HAProxy is not installed; `make sdks` installs it")
	}
	if !strings.Contains(version, ".") {
		t.Errorf("version = %q, want one with numbers", version)
	}
}

func TestHAProxyRelaysUntilItIsStopped(t *testing.T) {
	installedHAProxy(t)
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }() // the client sees what is missing
		}
	}()
	h, err := startHAProxy(far.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialTimeout("tcp", h.address, time.Minute)
	if err != nil {
		t.Fatal(err, h.complaint())
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, 5)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, back); err != nil || string(back) != "hello" {
		t.Fatalf("%q came back, %v, want what was sent; %v", back, err, h.complaint())
	}
	if err := h.complaint(); err != nil {
		t.Errorf("complaint = %v, want none", err)
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", h.pid)); err != nil || string(name) != "haproxy\n" {
		t.Errorf("process %d is %q, %v, want HAProxy", h.pid, name, err)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, back); err == nil {
		t.Error("the connection goes on after the stop, want its end")
	}
	if c, err := net.Dial("tcp", h.address); err == nil {
		_ = c.Close()
		t.Errorf("somebody listens at %s after the stop", h.address)
	}
}

func TestHAProxyThatRefusesItsConfigurationSaysWhy(t *testing.T) {
	installedHAProxy(t)
	h, err := startHAProxy("nowhere.invalid:1:2")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", h.address)
	if err == nil { // it was in the queue of the listener, which ends with HAProxy
		_, err = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	if err == nil {
		t.Error("it relays to an address that is none")
	}
	if err := h.stop(); err != nil { // then its log is complete
		t.Error(err)
	}
	if err := h.complaint(); err == nil || !strings.Contains(err.Error(), "nowhere.invalid") {
		t.Errorf("complaint = %v, want one about the address", err)
	}
}

func TestWithoutHAProxyThereIsNoVersion(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if version, err := haproxyVersion(t.Context()); version != "" || err != nil {
		t.Errorf("version = %q, %v, want none", version, err)
	}
}
