// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"overdue/internal/config"
	"overdue/internal/lifecycle"
	"overdue/internal/testing/freeport"
)

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var freePorts = map[string]string{
	"OVERDUE_LISTEN_AMQP": "127.0.0.1:0", "OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": "127.0.0.1:0", "OVERDUE_BROKER_LISTEN": "127.0.0.1:0",
}

// run is a Run under way, with text as its file.
type run struct {
	stdout, stderr output
	admin          string // its URL
	ended          chan error
}

// startRun runs a role until ctx ends, or the process ends by itself.
func startRun(t *testing.T, ctx context.Context, text string) *run {
	t.Helper()
	c, err := loadHere(t, text, freePorts, nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	load := func() (*config.Config, error) {
		return config.Load(file+"/overdue.yaml", func(name string) string { return freePorts[name] }, nil)
	}
	if text == "" {
		load = func() (*config.Config, error) { return loadText(t, "", freePorts, nil) }
	}
	r := &run{ended: make(chan error, 1)}
	go func() { r.ended <- Run(ctx, config.RoleRun, c, load, &r.stdout, &r.stderr) }()
	eventually(t, "serving", func() bool { return strings.Contains(r.stderr.String(), `"msg":"serving"`) })
	r.admin = regexp.MustCompile(`admin +(http://\S+)`).FindStringSubmatch(r.stdout.String())[1]
	return r
}

func (r *run) logs(t *testing.T, want string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log:\n%s", r.stderr.String())
		}
	})
	eventually(t, "the log has "+want, func() bool { return strings.Contains(r.stderr.String(), want) })
}

func TestAProcessTakesUpItsChangedFileUntilItIsAskedToQuit(t *testing.T) {
	const broker = "broker: {autoCreate: true}\nlog: {format: json}\n"
	r := startRun(t, t.Context(), broker)
	write := func(text string) {
		t.Helper()
		// Replaced as a whole: one that is written in place is read empty if the disk is slow.
		err := os.WriteFile("overdue.yaml.new", []byte(text), 0o600)
		if err = errors.Join(err, os.Rename("overdue.yaml.new", "overdue.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	write(broker + "monitor: {deadline: 1m}\nshutdownTimeout: 21s\n")
	r.logs(t, `"msg":"configuration reloaded","reason":"file","changed":["monitor.deadline is 1m0s, was 0s"]`)
	r.logs(t, `"msg":"changed settings need a restart","reason":"file","settings":["shutdownTimeout"]`)
	write(broker + "monitor: {deadline: soon}\n")
	r.logs(t, `"msg":"configuration refused, the previous one stays in force","reason":"file"`)
	resp, err := http.Get(r.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	err = resp.Write(&b)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`overdue_config_reloads_total{reason="file",result="ok"} 1`, `overdue_config_reloads_total{reason="file",result="refused"} 1`,
		"overdue_config_last_reload_successful 0",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	req, err := http.NewRequest(http.MethodPost, r.admin+"/quitquitquit", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Overdue-Admin", "1")
	if resp, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("quitquitquit = %s, want 202", resp.Status)
	}
	if err := <-r.ended; err != nil {
		t.Errorf("run = %v, want nil", err)
	}
	r.logs(t, `"msg":"stopping","reason":"quitquitquit"`)
}

func TestAProcessWithoutAFileEndsWithItsContext(t *testing.T) {
	for name, tt := range map[string]struct {
		cause error
		want  string
	}{
		"terminated": {lifecycle.ErrTerminated, `"msg":"stopping","reason":"` + lifecycle.ErrTerminated.Error() + `"`},
		"by hand":    {nil, `"msg":"stopping","reason":"signal, or the end of standard input"`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancelCause(t.Context())
			r := startRun(t, ctx, "")
			end(tt.cause)
			if err := <-r.ended; err != nil {
				t.Errorf("run = %v, want nil", err)
			}
			r.logs(t, tt.want)
		})
	}
}

func TestRunReportsAStartThatFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c, err := loadText(t, "", freePorts, map[string]string{"listen.http": taken.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr output
	err = Run(t.Context(), config.RoleRun, c, nil, &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), "is in use") || stdout.String() != "" {
		t.Errorf("run = %v, with %q on stdout, want an error and no banner", err, stdout.String())
	}
	c.Log.Level = "loud"
	if err := Run(t.Context(), config.RoleRun, c, nil, &stdout, &stderr); err == nil || !strings.Contains(err.Error(), "make a log") {
		t.Errorf("run with an unknown level = %v, want an error about the log", err)
	}
}

func TestUntilReadySaysWhyTheNamespaceCannotBeWorkedWith(t *testing.T) {
	p := startTest(t, "")
	if err := p.UntilReady(t.Context()); err != nil {
		t.Errorf("with the embedded broker: %v, want nil", err)
	}
	c, err := loadText(t, "", map[string]string{
		"OVERDUE_LISTEN_AMQP": "127.0.0.1:0", "OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": "127.0.0.1:0",
		"OVERDUE_NAMESPACE": config.ConnectionString(freeport.Address(t), config.AnyKeyName, config.AnyKey),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	absent, err := Start(t.Context(), config.RoleRun, c, zap.NewNop(), zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	defer absent.Stop()
	if err := absent.UntilReady(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("with a namespace that is not there: %v, want its refusal", err)
	}
	if absent.Embedded() != nil || p.Embedded() != p.broker.Broker || p.AdminAddress() != p.servers.addr {
		t.Error("a process without an embedded broker has one, or the other one has not its own")
	}
	p.life.Fail("monitor", errors.New("no such queue"))
	if err := <-p.Failure(); err == nil || err.Error() != "monitor: no such queue" {
		t.Errorf("failure = %v, want that of the monitor", err)
	}
}
