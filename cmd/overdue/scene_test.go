// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/testing/freeport"
	"overdue/internal/testing/redistest"
)

// loadConfig writes text to overdue.yaml (no file when it is empty) and loads it with the given variables.
func loadConfig(t *testing.T, text string, env map[string]string) *config.Config {
	t.Helper()
	file := ""
	if text != "" {
		t.Chdir(t.TempDir())
		file = "overdue.yaml"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(file, func(name string) string { return env[name] }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// waitUntil polls, because what it waits for happens on real sockets.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(scriptTimeout)
	for !ok() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("not within %v: %s", scriptTimeout, what)
		}
	}
}

// Companions that are kept in Redis are shown like those on a monitor queue.
func TestOperatorsSeeTheCompanionsInRedis(t *testing.T) {
	r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	c := loadConfig(t, fmt.Sprintf("companionStore: redis\nredis: redis://%s\nlisten: {amqp: %q, http: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n"+
		"broker: {listen: %q, queues: [{name: orders, deadLetteringOnMessageExpiration: true}]}\n",
		r.Addr, freeport.Address(t), freeport.Address(t)), nil)
	p, err := app.Start(t.Context(), config.RoleRun, c, zap.NewNop(), zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	waitUntil(t, "the process is ready", func() bool { return p.UntilReady(t.Context()) == nil })
	send, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.RestAddr()+"/orders/messages", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	send.Header.Set("BrokerProperties", `{"MessageId":"m-1","TimeToLive":3600}`)
	answer, err := http.DefaultClient.Do(send)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		t.Fatalf("send = %d, want 201", answer.StatusCode)
	}
	for want, args := range map[string][]string{"m-1": {"deadlines", "orders"}, "and monitored": {"explain", "orders", "m-1"}} {
		var out, errs bytes.Buffer
		err := run(context.Background(), append(args, "--config", "overdue.yaml"), func(string) string { return "" }, &out, &errs)
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("overdue %s = %v\n%s%s\nwant %q", args[0], err, &out, &errs, want)
		}
	}
}
