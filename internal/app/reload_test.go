// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/config"
)

// reloaded starts `overdue run` with a configuration, and returns it with what adopts another one.
func reloaded(t *testing.T, text string) (*Process, func(text string) (changed, restart []string, err error)) {
	t.Helper()
	return reloadedWithLog(t, text, zap.NewNop())
}

func reloadedWithLog(t *testing.T, text string, log *zap.Logger) (*Process, func(text string) (changed, restart []string, err error)) {
	t.Helper()
	env := map[string]string{
		"OVERDUE_LISTEN_AMQP": "127.0.0.1:0", "OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": "127.0.0.1:0", "OVERDUE_BROKER_LISTEN": "127.0.0.1:0",
	}
	read := func(text string) (*config.Config, error) {
		c, err := loadHere(t, text, env, nil)
		if err == nil {
			err = c.CheckRole(config.RoleRun)
		}
		return c, err
	}
	c, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), config.RoleRun, c, log, zap.NewAtomicLevel())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p, func(text string) ([]string, []string, error) {
		c, err := read(text)
		if err != nil {
			return nil, nil, err
		}
		return (&reloader{p: p}).adopt(t.Context(), c)
	}
}

const reloadQueues = "broker: {queues: [{name: orders}, {name: events}]}\n"

func TestWhatIsLiveIsAdoptedAndTheRestIsNamed(t *testing.T) {
	p, adopt := reloaded(t, reloadQueues+"monitor: {entities: [{queue: orders}]}\nlisten: {keys: [{name: app, key: s3cr3t-of-12-a, send: true}]}\n")
	changed, restart, err := adopt(reloadQueues + "log: {level: warn}\nproxy: {maxInFlight: 5}\nmonitor: {entities: [{queue: events, deadline: 1m}]}\n" +
		"listen: {keys: [{name: app, key: s3cr3t-of-12-b, send: true}, {name: more, key: s3cr3t-of-12-c, listen: true}]}\nshutdownTimeout: 5s\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"log.level is warn, was info", "monitor.entities: events is new", "monitor.entities: orders is gone",
		"listen.keys: app has changed", "listen.keys: more is new",
	}
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"proxy.maxInFlight", "shutdownTimeout"}, slices.Sorted(slices.Values(restart))); diff != "" {
		t.Errorf("needs a restart (-want +got):\n%s", diff)
	}
	c := p.current()
	if c.Proxy.MaxInFlight != 1024 || c.Log.Level != "warn" || p.admin.Level.Level() != zap.WarnLevel {
		t.Errorf("in force are %d sends, level %s (%s)", c.Proxy.MaxInFlight, c.Log.Level, p.admin.Level.Level())
	}
	if place := c.At("monitor.entities[0].deadline"); place != "overdue.yaml:4: monitor.entities[0].deadline" {
		t.Errorf("the deadline is said to come from %q", place)
	}
	if p.catalog.Settings("orders").Monitored {
		t.Error("what is gone from the list is still monitored")
	}
	s, err := p.catalog.Learn(t.Context(), "events")
	if err != nil || !s.Monitored || s.Deadline != time.Minute {
		t.Errorf("settings of what is new = %+v, %v", s, err)
	}
	// Back to what it was: nothing of it is left.
	if changed, restart, err = adopt(reloadQueues + "monitor: {entities: [{queue: orders}]}\nlisten: {keys: [{name: app, key: s3cr3t-of-12-a, send: true}]}\n"); err != nil || len(restart) > 0 || len(changed) != 5 {
		t.Errorf("back again: changed %q, restart %q, %v", changed, restart, err)
	}
	if diff := cmp.Diff(p.cfg.Sources.Redacted(), p.current().Sources.Redacted()); diff != "" {
		t.Errorf("in force is something else than at the start:\n%s", diff)
	}
}

// Whether the endpoints ask for keys at all is no matter of a file that somebody edits.
func TestEndpointsWithKeysNeverComeToAskForNone(t *testing.T) {
	p, adopt := reloaded(t, reloadQueues+"listen: {keys: [{name: app, key: s3cr3t-of-12-a, send: true}]}\n")
	_, restart, err := adopt(reloadQueues)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"listen.keys"}, restart); diff != "" {
		t.Errorf("needs a restart (-want +got):\n%s", diff)
	}
	resp, err := http.Post("http://"+p.RestAddr()+"/orders/messages", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a send without a key = %s, want 401", resp.Status)
	}
	if len(p.current().Listen.Keys) != 1 {
		t.Errorf("in force are %d keys, want the one of before", len(p.current().Listen.Keys))
	}
}

func TestSinksThatStayAreKept(t *testing.T) {
	hook := httptest.NewServer(http.NotFoundHandler())
	defer hook.Close()
	sink := func(name string) string {
		return "{name: " + name + ", webhook: {url: \"" + hook.URL + "\", grouped: true}}"
	}
	p, adopt := reloaded(t, reloadQueues+"alerts: ["+sink("first")+", "+sink("second")+"]\n")
	before := slices.Clone(p.sinks.active)
	changed, _, err := adopt(reloadQueues + "alerts: [" + sink("third") + ", " + sink("second") + "]\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"alerts: third is new", "alerts: first is gone"}, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	after := p.sinks.active
	if len(after) != 2 || after[1].sink != before[1].sink || after[0].sink == before[0].sink {
		t.Errorf("the sinks are %v, were %v", after, before)
	}
	// One that cannot be made changes nothing, whatever else is new.
	if _, _, err := adopt(reloadQueues + "log: {level: debug}\nalerts: [{name: third, title: \"{{.Nope\", slack: {url: \"" + hook.URL + "\"}}]\n"); err == nil {
		t.Error("a sink with a broken template was taken")
	}
	if p.current().Log.Level != "info" || len(p.sinks.active) != 2 {
		t.Errorf("what was refused is in force in part: level %s", p.current().Log.Level)
	}
}

// An operator who reads in /configz that a deadline is in force sends messages that count on it.
func TestAConfigurationShowsOnceItIsInForce(t *testing.T) {
	configured := func(deadline int) string {
		return fmt.Sprintf("%smonitor: {entities: [{queue: orders, deadline: %ds}]}\n", reloadQueues, deadline)
	}
	p, adopt := reloaded(t, configured(1))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for shown := time.Duration(0); shown < 300*time.Second && !t.Failed(); {
			shown = p.current().Monitor.Entities[0].Deadline
			if inForce := p.catalog.Settings("orders").Deadline; inForce < shown {
				t.Errorf("the deadline of %v shows while %v is in force", shown, inForce)
			}
		}
	}()
	for deadline := 2; deadline <= 300; deadline++ {
		if _, _, err := adopt(configured(deadline)); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
}

// The new file may have changed since it was read, before anybody watched it.
func TestAFileThatIsNewInTheConfigurationIsReadOnceItIsWatched(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	for _, f := range []string{first, second} {
		if err := os.WriteFile(f, []byte("read"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, err := watchFiles([]string{first})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := os.WriteFile(second, []byte("written since"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.follow([]string{first, second})
	select {
	case <-w.changed():
	case <-time.After(2 * time.Minute):
		t.Fatal("what was written before the file was watched is not noticed")
	}
}

// A file that is being written while a process starts is empty at first.
func TestAFileThatDiffersAtTheStartIsReadWhenNobodyWritesItAnyMore(t *testing.T) {
	p, _ := reloaded(t, reloadQueues)
	loads := 0
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := newReloader(p, func() (*config.Config, error) {
		if loads++; loads == 2 {
			stop()
		}
		return nil, errors.New("half a file")
	})
	if err := r.run(ctx); err != nil {
		t.Fatal(err)
	}
	if loads != 2 {
		t.Fatalf("the file was read %d times, want twice", loads)
	}
}

// A reload that would lose something is refused, with what and how to say that it is meant; one
// that may is a warning.
func TestAReloadThatLosesSinksNeedsTheEndOfTheFile(t *testing.T) {
	const sinks = "alerts:\n  - {name: first, webhook: {url: \"http://127.0.0.1:1/\"}}\n"
	const second = "  - {name: second, webhook: {url: \"http://127.0.0.1:1/\"}}\n"
	p, _ := reloaded(t, reloadQueues+sinks+second)
	core, logs := observer.New(zap.InfoLevel)
	var text string
	r := newReloader(p, func() (*config.Config, error) { return loadHere(t, text, nil, nil) })
	r.log = zap.New(core)
	for _, tt := range []struct {
		text, level, message, with string
		sinks                      int
	}{
		{" \n", "error", "configuration refused, the previous one stays in force", "is empty", 2},
		{"# nothing\n", "error", "configuration refused, the previous one stays in force", "alerts: first is gone, alerts: second is gone", 2},
		{reloadQueues + sinks, "error", "configuration refused, the previous one stays in force", "overdue.yaml may be cut short: alerts: second is gone", 2},
		{reloadQueues + sinks + "...\n", "warn", "the configuration has less than before", "alerts: second is gone", 1},
	} {
		text = tt.text
		logs.TakeAll()
		r.reload(t.Context(), "file")
		all := logs.TakeAll()
		if !slices.ContainsFunc(all, func(e observer.LoggedEntry) bool {
			return e.Level.String() == tt.level && e.Message == tt.message && strings.Contains(fmt.Sprint(e.ContextMap()), tt.with)
		}) {
			t.Errorf("%q: logged %v, want %s %s with %q", tt.text, all, tt.level, tt.message, tt.with)
		}
		if n := len(p.current().Alerts); n != tt.sinks || len(p.sinks.active) != n {
			t.Errorf("%q: %d sinks are in force, want %d", tt.text, n, tt.sinks)
		}
	}
}

func TestSettingsThatWaitForARestartAreShownUntilTheyAreInForce(t *testing.T) {
	p, _ := reloaded(t, reloadQueues)
	var text string
	r := newReloader(p, func() (*config.Config, error) {
		c, err := loadHere(t, text, nil, nil)
		if err == nil {
			c.Listen, c.Broker = p.cfg.Listen, p.cfg.Broker // the ports of this test
		}
		return c, err
	})
	for _, tt := range []struct{ text, waits string }{
		{reloadQueues, ""},
		{reloadQueues + "shutdownTimeout: 5s\nproxy: {maxInFlight: 5}\n", "proxy.maxInFlight, shutdownTimeout"},
		{reloadQueues + "shutdownTimeout: five\n", "proxy.maxInFlight, shutdownTimeout"}, // it is refused
		{reloadQueues + "shutdownTimeout: 5s\n", "shutdownTimeout"},
		{reloadQueues, ""},
	} {
		text = tt.text
		r.reload(t.Context(), "file")
		_, metrics := askAdmin(p.admin, "GET", "/metrics", "")
		var shown []string
		for _, m := range regexp.MustCompile(`(?m)^overdue_config_restart_pending\{setting="([^"]+)"\} 1$`).FindAllStringSubmatch(metrics, -1) {
			shown = append(shown, m[1])
		}
		slices.Sort(shown)
		if got := strings.Join(shown, ", "); got != tt.waits {
			t.Errorf("%q: metrics show %q, want %q", tt.text, got, tt.waits)
		}
		_, ready := askAdmin(p.admin, "GET", "/readyz?verbose", "")
		if got := strings.Contains(ready, "[+] configuration: changed settings wait for a restart: "); got != (tt.waits != "") {
			t.Errorf("%q: /readyz says %q", tt.text, ready)
		}
	}
}

func TestAChangeOfFilesIsNoticed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// As a cluster mounts it: the file is a link into a folder that is a link itself, which is replaced.
	must(os.MkdirAll(filepath.Join(dir, "..1"), 0o700))
	write("..1/mounted", "one")
	must(os.Symlink("..1", filepath.Join(dir, "..data")))
	must(os.Symlink("..data/mounted", filepath.Join(dir, "mounted")))
	// A link into another folder, whose target is edited in place.
	elsewhere := t.TempDir()
	must(os.WriteFile(filepath.Join(elsewhere, "target"), []byte("one"), 0o600))
	must(os.Symlink(filepath.Join(elsewhere, "target"), filepath.Join(dir, "linked")))
	write("plain", "one")
	w, err := watchFiles([]string{filepath.Join(dir, "mounted"), filepath.Join(dir, "linked"), filepath.Join(dir, "plain")})
	must(err)
	defer w.close()
	notices := func(what string) {
		t.Helper()
		select {
		case <-w.changed():
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s was not noticed", what)
		}
	}
	write("plain", "two")
	notices("a file that was written")
	write("plain.new", "three")
	must(os.Rename(filepath.Join(dir, "plain.new"), filepath.Join(dir, "plain")))
	notices("a file that was replaced")
	must(os.MkdirAll(filepath.Join(dir, "..2"), 0o700))
	write("..2/mounted", "two")
	must(os.Symlink("..2", filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	notices("a folder that was replaced")
	must(os.WriteFile(filepath.Join(elsewhere, "target"), []byte("two"), 0o600))
	notices("the target of a link")
	must(os.Remove(filepath.Join(dir, "plain")))
	notices("a file that is gone")
	// A value that stays the same is not logged, however often it is written.
	write("other", "x")
	w.check()
	w.check()
	select {
	case <-w.changed():
		t.Error("a file that is none of the configuration was logged")
	default:
	}
}

// New entities appear, in every namespace. Those that exist are left to their clients.
func TestEntitiesThatAreNewAppearWithoutARestart(t *testing.T) {
	config := func(queues string) string {
		return "broker:\n  queues: " + queues + "\n  emulatorConfig: '{\"UserConfig\": {\"Namespaces\": [{\"Name\": \"one\", \"Queues\": [{\"Name\": \"theirs\"}]}, {\"Name\": \"two\"}]}}'\n"
	}
	core, logged := observer.New(zap.WarnLevel)
	p, adopt := reloadedWithLog(t, config("[{name: orders}, {name: gone}]"), zap.New(core))
	logged.TakeAll() // what the start warns of
	next := strings.Replace(config("[{name: orders, lockDuration: 30s}, {name: bills, deadLetteringOnMessageExpiration: true}]"), `"two"`, `"two", "Queues": [{"Name": "also"}]`, 1)
	changed, restart, err := adopt(next)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"queue bills is new", "namespace two: queue also is new"}, changed); diff != "" || len(restart) > 0 {
		t.Errorf("changed (-want +got):\n%s\nneeds a restart: %q", diff, restart)
	}
	if _, err := p.broker.Default().QueueInfo("bills"); err != nil {
		t.Errorf("the new queue: %v", err)
	}
	lines := logged.FilterMessage("entities of the embedded broker stay as they are").AllUntimed()
	if len(lines) != 1 {
		t.Fatalf("logged %v, want one line about what stays", logged.AllUntimed())
	}
	want := []any{"queue orders: lockDuration is 1m0s in force and 30s in the configuration", "queue gone is not in the configuration any more"}
	if diff := cmp.Diff(want, lines[0].ContextMap()["differences"]); diff != "" {
		t.Errorf("what stays (-want +got):\n%s", diff)
	}
	// Nothing is said again, and a wrong one changes nothing.
	if changed, restart, err = adopt(next + "log: {level: warn}\n"); err != nil || len(restart) > 0 || !slices.Equal(changed, []string{"log.level is warn, was info"}) {
		t.Errorf("once more: changed %q, restart %q, %v", changed, restart, err)
	}
	if _, _, err := adopt(strings.Replace(next, "lockDuration: 30s", "forwardTo: orders", 1)); err == nil || !strings.Contains(err.Error(), "ForwardTo leads to itself") {
		t.Errorf("a queue that forwards to itself: %v, want an error that says so", err)
	}
	if logged.Len() != 1 {
		t.Errorf("logged %v, want nothing more", logged.AllUntimed())
	}
}

// A log in the folder of the configuration is written without a pause.
func TestAChangeIsNoticedInABusyFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "overdue.yaml")
	if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := watchFiles([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	quiet, ended := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-quiet:
				ended <- nil
				return
			default:
			}
			if err := os.WriteFile(filepath.Join(dir, "log"), []byte("line"), 0o600); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := os.WriteFile(file, []byte("two"), 0o600); err != nil {
		t.Error(err)
	}
	select {
	case <-w.changed():
	case <-time.After(2 * time.Minute):
		t.Error("the change was not noticed while somebody else writes in the folder")
	}
	close(quiet)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
