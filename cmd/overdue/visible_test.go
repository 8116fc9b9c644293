// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/escape"
	"overdue/internal/history"
)

// hostileID is a message-id that a terminal would obey and a reader not see, or take for lines of ours.
const hostileID = "a\nlevel=error b\r\t\x00\x07\x1b[31m\x7f\u0080\u0085\u009b31m\u009d\u009f\ufeff\u2028\u2029\u202a\u202e\u2066\u2069z"

// lockedBuffer takes what several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// logsTo is a logger as a process has it in a format.
func logsTo(t *testing.T, w io.Writer, format string) *zap.Logger {
	t.Helper()
	log, _, err := app.NewLog(w, config.Log{Level: "debug", Format: format})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestLogsHideNothing(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		log := logsTo(t, &out, format).With(zap.String("with\u0085", hostileID))
		log.Info(hostileID, zap.String("id", hostileID), zap.Error(errors.New(hostileID)), zap.Any("map", map[string]string{hostileID: hostileID}),
			zap.Strings("list", []string{hostileID}), zap.ByteString("bytes", []byte(hostileID+"\x9b")), zap.Namespace(hostileID), zap.Stringer("by", bytes.NewBufferString(hostileID)))
		if hidden := escape.Hidden(out.Bytes()); hidden != "" || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
			t.Errorf("%s: %s, in %d lines; want one with nothing hidden:\n%s", format, hidden, bytes.Count(out.Bytes(), []byte("\n")), out.Bytes())
		}
		if format != "json" {
			continue
		}
		var read struct{ Msg, ID string }
		if err := json.Unmarshal(out.Bytes(), &read); err != nil || read.Msg != hostileID || read.ID != hostileID {
			t.Errorf("read back %q, %v; want what was logged", read, err)
		}
	}
}

// unasked are commands that print nothing that comes from outside, or are asked elsewhere.
var unasked = []string{"bench", "completion", "demo", "help", "inject", "inject serve", "plan", "broker", "emulator", "monitor", "proxy", "run", "doctor lag", "doctor plan", "doctor verify", "verify", "config example", "config schema", "version", "wait"}

// A message whose texts are all hostile goes through everything that prints. Where it says what it says, it says so visibly.
func TestNoCommandPrintsWhatATerminalWouldObey(t *testing.T) {
	logged := &lockedBuffer{}
	c := loadConfig(t, "", map[string]string{
		"OVERDUE_LISTEN_AMQP": "127.0.0.1:0", "OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": "127.0.0.1:0", "OVERDUE_BROKER_LISTEN": "127.0.0.1:0",
		"OVERDUE_HISTORY_DIRECTORY": t.TempDir(),
	})
	log := zap.New(zapcore.NewTee(logsTo(t, logged, "json").Core(), logsTo(t, logged, "console").Core()))
	p, err := app.Start(t.Context(), config.RoleRun, c, log, zap.NewAtomicLevelAt(zap.DebugLevel))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if hidden := escape.Hidden(logged.Bytes()); hidden != "" {
			t.Errorf("the log has %s", hidden)
		}
	}()
	hostileMessages(t, p)
	waitUntil(t, "an alert is logged", func() bool { return bytes.Contains(logged.Bytes(), []byte("overdue.deadline.missed")) })

	_, broker, _ := strings.Cut(p.OwnConnectionString(), "sb://")
	broker, _, _ = strings.Cut(broker, ";")
	env := map[string]string{"OVERDUE_LISTEN_AMQP": p.AMQPAddr(), "OVERDUE_LISTEN_ADMIN": p.AdminAddress(), "OVERDUE_BROKER_LISTEN": broker}
	waitUntil(t, "the history has it", func() bool { // it is written every few seconds
		missed, err := history.Fetch[history.Fetched](t.Context(), p.AdminAddress(), history.MissedPath, "", time.Now().Add(-time.Hour))
		return err == nil && len(missed.Found) > 0
	})
	asked := map[string]bool{}
	ask := func(shows bool, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), args, func(name string) string { return env[name] }, &stdout, &stderr)
		exitCode(err, &stderr)
		for name, out := range map[string][]byte{"stdout": stdout.Bytes(), "stderr": stderr.Bytes()} {
			if hidden := escape.Hidden(out); hidden != "" {
				t.Errorf("overdue %q: %s has %s", args, name, hidden)
			}
		}
		// A line that an id begins would be one of ours to a reader.
		all := stdout.String() + stderr.String()
		for line := range strings.Lines(all) {
			if strings.HasPrefix(line, "level=error") {
				t.Errorf("overdue %q: an id begins a line: %q", args, line)
			}
		}
		if shows && !strings.Contains(all, `\u009b31m\u009d\u009f\ufeff`) {
			t.Errorf("overdue %q does not show the id:\n%s", args, all)
		}
		if slices.Contains(args, "--json") && err == nil && !json.Valid(stdout.Bytes()) {
			t.Errorf("overdue %q prints no JSON:\n%s", args, stdout.Bytes())
		}
		for i := range args {
			asked[strings.Join(args[:i+1], " ")] = true
		}
	}
	for _, json := range [][]string{nil, {"--json"}} {
		ask(true, slices.Concat([]string{"dlq", "list", "orders"}, json)...)
		ask(true, slices.Concat([]string{"dlq", "show", "orders", "--message-id", hostileID}, json)...)
		ask(true, slices.Concat([]string{"explain", "orders", hostileID}, json)...)
		ask(false, slices.Concat([]string{"explain", "orders", hostileID + "!"}, json)...)
		ask(false, slices.Concat([]string{"deadlines"}, json)...)
		ask(true, slices.Concat([]string{"deadlines", "orders"}, json)...)
		for _, command := range []string{"history", "deadlines"} {
			ask(true, slices.Concat([]string{command, "missed", "orders"}, json)...)
			ask(false, slices.Concat([]string{command, "slack", "orders"}, json)...)
			ask(false, slices.Concat([]string{command, "minutes"}, json)...)
		}
		ask(false, slices.Concat([]string{"history", "unknown"}, json)...)
		ask(false, slices.Concat([]string{"history", "fleet"}, json)...)
		ask(true, slices.Concat([]string{"dlq", "resubmit", "orders", "--all", "--dry-run"}, json)...)
		ask(true, slices.Concat([]string{"dlq", "purge", "orders", "--all", "--dry-run"}, json)...)
		ask(true, slices.Concat([]string{"send", "orders", "--message-id", hostileID, "--within", "1h"}, json)...)
		ask(false, slices.Concat([]string{"mute", "orders", "--for", "1h", "--as", "anna", "--reason", hostileID}, json)...)
		ask(true, slices.Concat([]string{"mute"}, json)...)
		ask(false, slices.Concat([]string{"doctor"}, json)...)
		ask(false, slices.Concat([]string{"config", "print"}, json)...)
	}
	ask(false, "config", "copy", p.OwnConnectionString())
	ask(false, "healthcheck")
	ask(false, "wait", "--once")
	ask(false, "config", "check", "--config", hostileConfig(t))
	ask(true, "dlq", "list", hostileID)
	ask(true, "send", hostileID)
	ask(true, hostileID)
	ask(true, "dlq", "purge", "orders", "--json", "--all", "--yes")
	walk(tree(), func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "overdue ")
		skipped := slices.ContainsFunc(unasked, func(u string) bool { return path == u || strings.HasPrefix(path, u+" ") })
		if c.Runnable() && c.HasParent() && !asked[path] && !skipped {
			t.Errorf("overdue %s is a command of which nobody looks at the output", path)
		}
	})
	for _, target := range []string{history.NotificationsPath, history.UnknownPath, history.FleetPath, "/configz", "/readyz?verbose", "/healthz/outbound?verbose"} {
		resp, err := http.Get("http://" + p.AdminAddress() + target)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if hidden := escape.Hidden(body); hidden != "" || err != nil {
			t.Errorf("GET %s has %s, %v", target, hidden, err)
		}
	}
}

// hostileMessages leaves in orders a dead letter and a message that waits, and one that misses its deadline.
func hostileMessages(t *testing.T, p *app.Process) {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(config.ConnectionString(p.AMQPAddr(), "app", "c2VjcmV0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := client.NewReceiverForQueue("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	send := func(ttl time.Duration) {
		t.Helper()
		if err := sender.SendMessage(t.Context(), &azservicebus.Message{
			Body: []byte("body " + strings.ReplaceAll(hostileID, "\n", " ")), MessageID: to.Ptr(hostileID), SessionID: to.Ptr(hostileID), CorrelationID: to.Ptr(hostileID), Subject: to.Ptr(hostileID),
			ContentType: to.Ptr(hostileID[:strings.Index(hostileID, "\u0080")]), ReplyTo: to.Ptr(hostileID), To: to.Ptr(hostileID), TimeToLive: to.Ptr(ttl),
			ApplicationProperties: map[string]any{hostileID: hostileID},
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	send(time.Hour)
	got, err := receiver.ReceiveMessages(t.Context(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.DeadLetterMessage(t.Context(), got[0], &azservicebus.DeadLetterOptions{Reason: to.Ptr(hostileID), ErrorDescription: to.Ptr(hostileID)}); err != nil {
		t.Fatal(err)
	}
	if err := receiver.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(300 * time.Millisecond)
	send(time.Hour)
}

// hostileConfig is a file with a mistake that is reported.
func hostileConfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "overdue.yaml")
	if err := os.WriteFile(file, []byte("\"listen\\u009b\": x\nlog: {level: \"in\\u0085fo\\u202e\"}\nalerts: [{webhook: {url: \"ht\\e[31m\"}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Text that is not escaped is drawn by the code in this list. All other text is printed by
// functions that escape.
func TestOnlyDrawnOutputIsRaw(t *testing.T) {
	root := filepath.Join("..", "..")
	drawn := map[string]bool{
		"cmd/overdue/broker.go": true, "cmd/overdue/doctor.go": true, "cmd/overdue/verify.go": true,
		"internal/demo/screen.go": true, "internal/terminal/terminal.go": true,
	}
	seen := map[string]bool{}
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return checkOutput(t, path, filepath.ToSlash(file), seen)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file := range seen {
		if !drawn[file] {
			t.Errorf("%s writes without escapes; if nothing in it comes from outside, name it in this test", file)
		}
	}
	for file := range drawn {
		if !seen[file] {
			t.Errorf("%s writes with escapes; take it out of this test", file)
		}
	}
}

// checkOutput records in seen whether a file writes without escapes, and finds what it prints past
// the writers that escape.
func checkOutput(t *testing.T, path, file string, seen map[string]bool) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "Raw" && parsed.Name.Name == "terminal" {
				seen[file] = true
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			switch {
			case !ok:
			case x.Name == "terminal" && n.Sel.Name == "Raw":
				seen[file] = true
			case x.Name == "os" && (n.Sel.Name == "Stdout" || n.Sel.Name == "Stderr") && file != "cmd/overdue/main.go":
				t.Errorf("%s names os.%s; print to a writer that is passed in, which escapes", file, n.Sel.Name)
			case x.Name == "fmt" && (n.Sel.Name == "Print" || n.Sel.Name == "Println" || n.Sel.Name == "Printf"):
				t.Errorf("%s has fmt.%s; print to a writer that is passed in, which escapes", file, n.Sel.Name)
			}
		}
		return true
	})
	return nil
}
