// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"overdue/internal/testing/wiretap"
)

// Kinds of messages that an SDK puts on the wire, by the argument of its program. The queues of a
// kind have its name behind that of the SDK.
const (
	wholeKind = "whole" // messages with ids and times to live
	bareKind  = "bare"  // messages without
	lateKind  = "late"  // messages with a second to live, which nobody receives
	brimKind  = "brim"  // such without ids, in a batch that has no room for any
)

// A wireQueue is one that each SDK has.
type wireQueue struct {
	name, kind string
	monitored  string // its element of monitor.entities, but for the name
}

var wireQueues = []wireQueue{
	{"unmonitored-whole", wholeKind, ""},
	{"unmonitored-bare", bareKind, ""},
	{"monitored-whole", wholeKind, "{}"},
	{"monitored-bare", bareKind, "{deadline: 1h}"}, // without a deadline nothing would be there to be added
	{"late", lateKind, "{}"},
	{"brim", brimKind, "{}"},
}

// leavesIDs is the SDK that leaves ids to the app. The others give one to every message of a batch.
const leavesIDs = "js"

// wirePrograms start what sends and receives with an SDK, as suites do.
var wirePrograms = map[string]func(ctx context.Context, installed, scratch string) *exec.Cmd{
	"js": func(ctx context.Context, _, scratch string) *exec.Cmd {
		return exec.CommandContext(ctx, "node", filepath.Join(scratch, "wire.js"))
	},
	"python": func(ctx context.Context, installed, _ string) *exec.Cmd {
		return exec.CommandContext(ctx, filepath.Join(installed, "bin", "python"), "-B", filepath.Join("python", "wire.py"))
	},
	"java": func(ctx context.Context, installed, scratch string) *exec.Cmd {
		return runJava(ctx, installed, scratch, "Wire")
	},
}

// A wireScene is a namespace with a proxy and a monitor before it, and taps where bytes go by:
//
//	SDK ── direct ───────────────────────▶ broker
//	SDK ── front ──▶ overdue run ── behind ──▶ broker
type wireScene struct {
	direct, front, behind *wiretap.Tap
	missed                *events
}

// Every SDK sends the same messages twice: straight to the broker, and through the endpoint.
func TestBytesOfSDKsPassTheEndpointUnchanged(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs node, Python, Java and their packages; not with -short")
	}
	installed := install(t)
	sc := newWireScene(t, buildBroker(t))
	for _, s := range suites {
		if wirePrograms[s.sdk] == nil {
			continue // it is no SDK of Azure
		}
		t.Run(s.sdk, func(t *testing.T) {
			t.Parallel()
			scratch := t.TempDir()
			if err := s.prepare(t.Context(), installed[s.sdk], scratch); err != nil {
				t.Fatal(err)
			}
			sc.try(t, s.sdk, func(ctx context.Context, to string, args ...string) error {
				cmd := wirePrograms[s.sdk](ctx, installed[s.sdk], scratch)
				cmd.Args = append(cmd.Args, args...)
				cmd.Env = append(os.Environ(), "SERVICEBUS_CONNECTION_STRING="+to)
				out, err := cmd.CombinedOutput()
				if err != nil {
					return fmt.Errorf("%w\n%s", err, tail(out, 8<<10))
				}
				if !strings.HasSuffix(string(out), "done\n") {
					return fmt.Errorf("the output does not end with done:\n%s", tail(out, 8<<10))
				}
				return nil
			})
		})
	}
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		sc.try(t, "go", exchangeInGo)
	})
	t.Run("raw", func(t *testing.T) {
		t.Parallel()
		sc.try(t, "raw", exchangeRaw)
	})
}

func newWireScene(t *testing.T, program string) *wireScene {
	t.Helper()
	sc := &wireScene{missed: newEvents(t)}
	var listed strings.Builder
	for _, sdk := range []string{"js", "python", "java", "go", "raw"} {
		for _, q := range wireQueues {
			if q.monitored != "" {
				// YAML flow maps, joined: {queue: NAME, …}
				more := strings.TrimPrefix(strings.TrimSuffix(q.monitored, "}"), "{")
				fmt.Fprintf(&listed, "    - {queue: %s-%s, %s}\n", sdk, q.name, more)
			}
		}
	}
	config := filepath.Join(t.TempDir(), "overdue.yaml")
	text := fmt.Sprintf("monitor:\n  entities:\n%salerts:\n  - webhook: {url: %q}\n", &listed, sc.missed.url)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	var broker, endpoint string
	start(t, exec.Command(program, "broker", "--broker-listen", "127.0.0.1:0", "--monitor-queue", "overdue-monitor"), &broker)
	sc.direct, sc.behind = wiretap.Start(t, broker), wiretap.Start(t, broker)
	start(t, exec.Command(program, "run", "--config", config, "--namespace", plainConnectionString(sc.behind.Addr),
		"--listen-amqp", "127.0.0.1:0", "--listen-http", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0"), &endpoint)
	sc.front = wiretap.Start(t, endpoint)
	return sc
}

// plainConnectionString is for a namespace that takes every key.
func plainConnectionString(addr string) string {
	return "Endpoint=sb://" + addr + ";SharedAccessKeyName=any;SharedAccessKey=YW55;UseDevelopmentEmulator=true"
}

// try has exchange send and receive, directly and through the endpoint, and compares.
func (sc *wireScene) try(t *testing.T, sdk string, exchange func(ctx context.Context, to string, args ...string) error) {
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	var args []string
	for _, q := range wireQueues {
		if q.kind != lateKind && q.kind != brimKind {
			args = append(args, fmt.Sprintf("%s-%s=%s", sdk, q.name, q.kind))
		}
	}
	if err := exchange(ctx, plainConnectionString(sc.direct.Addr), args...); err != nil {
		t.Fatalf("directly: %v", err)
	}
	args = append(args, sdk+"-late="+lateKind)
	if sdk == leavesIDs {
		args = append(args, sdk+"-brim="+brimKind)
	}
	if err := exchange(ctx, plainConnectionString(sc.front.Addr), args...); err != nil {
		t.Fatalf("through the endpoint: %v", err)
	}
	for _, q := range wireQueues {
		name := sdk + "-" + q.name
		if q.kind == lateKind {
			sc.missed.expect(ctx, t, name, 3)
			continue
		}
		if q.kind == brimKind {
			if sdk == leavesIDs {
				sc.tryBrim(ctx, t, name)
			}
			continue
		}
		made := bySDK
		if q.kind == bareKind {
			made |= ids
		}
		front, behind := sc.front.Sent(name), sc.behind.Sent(name)
		compareMessages(t, name+": the SDK sends (-directly +to the endpoint)", sc.direct.Sent(name), front, made)
		if q.name == "monitored-bare" {
			compareAdditions(t, name, front, behind)
		} else {
			compareDeliveries(t, name+": sent (-before the endpoint +behind it)", front, behind)
		}
		received := sc.front.Received(name)
		compareDeliveries(t, name+": received (-behind the endpoint +before it)", sc.behind.Received(name), received)
		compareMessages(t, name+": received (-directly +through the endpoint)", unreleased(t, sc.direct.Received(name)), unreleased(t, received), made|byBroker)
	}
}

// tryBrim wants the batch of a queue to have passed without a byte of change, and all of its
// messages to be notified of.
func (sc *wireScene) tryBrim(ctx context.Context, t *testing.T, queue string) {
	t.Helper()
	front := sc.front.Sent(queue)
	compareDeliveries(t, queue+": sent (-before the endpoint +behind it)", front, sc.behind.Sent(queue))
	n := 0
	for _, d := range front {
		n += len(messagesOf(t, d))
	}
	if n < 30 {
		t.Errorf("%d messages in %d deliveries to %s, want a batch", n, len(front), queue)
	}
	sc.missed.expectAny(ctx, t, queue, n)
}

// events are the missed deadlines that a webhook was notified of.
type events struct {
	url string

	mu   sync.Mutex
	seen map[string][]string // message ids, by queue
}

func newEvents(t *testing.T) *events {
	e := &events{seen: map[string][]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			Type string
			Data struct {
				Entity, MessageID string
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Errorf("an event: %v", err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.seen[event.Data.Entity] = append(e.seen[event.Data.Entity], event.Data.MessageID)
	}))
	t.Cleanup(server.Close)
	e.url = server.URL
	return e
}

// expect waits until the deadlines of n messages, called QUEUE-1 and so on, have been notified.
func (e *events) expect(ctx context.Context, t *testing.T, queue string, n int) {
	t.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("%s-%d", queue, i+1))
	}
	e.await(ctx, t, queue, fmt.Sprintf("%q", want), func(got []string) bool { return slices.Equal(got, want) })
}

// expectAny waits until the deadlines of n messages have been notified, whatever the broker calls
// these.
func (e *events) expectAny(ctx context.Context, t *testing.T, queue string, n int) {
	t.Helper()
	e.await(ctx, t, queue, fmt.Sprint(n, " of them"), func(got []string) bool { return len(slices.Compact(got)) == n })
}

func (e *events) await(ctx context.Context, t *testing.T, queue, want string, enough func(sorted []string) bool) {
	t.Helper()
	for {
		e.mu.Lock()
		got := slices.Clone(e.seen[queue])
		e.mu.Unlock()
		slices.Sort(got)
		if enough(got) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("missed deadlines notified in %s: %q, want %s", queue, got, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
