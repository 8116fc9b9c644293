// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"overdue/internal/testing/freeport"
	built "overdue/internal/testing/program"
)

// program is a running `overdue run`.
type program struct{ rest, admin, broker string }

// startOverdue builds and starts the program with a queue orders, a topic events and more settings.
// Its AMQP endpoint is at an address of the caller's, if there is one.
func startOverdue(t *testing.T, more string, amqp ...string) program {
	t.Helper()
	binary, dir := built.Build(t), t.TempDir()
	p := program{rest: freeport.Address(t), admin: freeport.Address(t), broker: freeport.Address(t)}
	write(t, filepath.Join(dir, "overdue.yaml"), fmt.Sprintf(`
listen: {amqp: %q, http: %q, admin: %q}
monitor: {entities: [{queue: orders}, {topic: events}]}
canary: {queue: canary, interval: 10s}
broker:
  listen: %q
  queues: [{name: orders, deadLetteringOnMessageExpiration: true}]
  topics: [{name: events, subscriptions: [{name: audit, deadLetteringOnMessageExpiration: true}]}]
%s`, strings.Join(append(amqp, "127.0.0.1:0")[:1], ""), p.rest, p.admin, p.broker, more))
	start(t, binary, "run", "--config", filepath.Join(dir, "overdue.yaml"))
	eventually(t, "the program is ready", func() error { return get("http://" + p.admin + "/readyz") })
	return p
}

func (p program) send(t *testing.T, id string, ttl time.Duration) {
	t.Helper()
	if status := p.post(t, "orders", id, ttl); status != http.StatusCreated {
		t.Fatalf("send %s: %d", id, status)
	}
}

// refuse makes the broker refuse the next send to an entity.
func (p program) refuse(t *testing.T, entity string) {
	t.Helper()
	fault := fmt.Sprintf(`{"entity":%q,"operation":"send","error":"full","times":1}`, entity)
	resp, err := http.Post("http://"+p.broker+"/_overdue/faults", "application/json", strings.NewReader(fault))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("inject a fault: %s", resp.Status)
	}
}

// post sends a message through the REST endpoint, and returns the status of the answer.
func (p program) post(t *testing.T, entity, id string, ttl time.Duration) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.rest+"/"+entity+"/messages", strings.NewReader("order"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId":%q,"TimeToLive":%g}`, id, ttl.Seconds()))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// start runs a server until the test ends, and shows what it has printed if that failed.
func start(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; `make sdks` installs it", err)
	}
	var last []string
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			last = append(last[max(len(last)-50, 0):], lines.Text())
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was asked to end
		_ = w.Close()
		<-read
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(name), strings.Join(last, "\n"))
		}
	})
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func get(address string) error { return getJSON(address, nil) }

// getJSON reads what is at address into v, unless that is nil.
func getJSON(address string, v any) error {
	resp, err := http.Get(address)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if !slices.Contains([]int{http.StatusOK, http.StatusBadRequest}, resp.StatusCode) || v == nil && resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", address, resp.Status)
	}
	if v == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
