// SPDX-License-Identifier: Apache-2.0

// Package deploy tests what is shipped beside the program with the servers it is for: Debian's
// prometheus and prometheus-alertmanager, on free ports of this machine.
package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"overdue/internal/testing/freeport"
)

// timeout bounds what a server may take for what it does at once.
const timeout = 30 * time.Second

func TestRulesDoWhatTheySay(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", "overdue.rules.yml"},
		{"test", "rules", "overdue.rules.test.yml"},
	} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

var metric = regexp.MustCompile(`\boverdue_[a-z_]+`)

// A metric that is renamed in the code is renamed here, or an alert is silent for ever.
func TestEveryMetricNamedIsExported(t *testing.T) {
	exported := map[string]bool{}
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range regexp.MustCompile(`"(overdue_[a-z_]+)"`).FindAllSubmatch(text, -1) {
			exported[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, file := range []string{"prometheus/overdue.rules.yml", "grafana/overdue.json", "keda/scaledobject.yaml", "../docs/operate/troubleshoot.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named := metric.FindAllString(string(text), -1)
		if len(named) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range named {
			if !exported[name] && !exported[suffix.ReplaceAllString(name, "")] {
				t.Errorf("%s names %s, which no code exports", file, name)
			}
		}
	}
}

// The runbook of every alert says what to do.
func TestEveryAlertHasASectionThatSaysWhatToDo(t *testing.T) {
	page, err := os.ReadFile("../docs/operate/troubleshoot.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("prometheus/overdue.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllSubmatch(rules, -1) {
		alerts[string(m[1])] = true
	}
	_, rest, _ := strings.Cut(string(page), "\n## Alerts\n")
	sections := strings.Split(rest, "\n### ")[1:]
	for _, section := range sections {
		name, text, _ := strings.Cut(section, "\n")
		if !alerts[name] {
			t.Errorf("docs/operate/troubleshoot.md has a section on %s, which is no alert", name)
		}
		delete(alerts, name)
		for _, want := range []string{"**Means**", "**Check**", "**Cure"} {
			if !strings.Contains(text, want) {
				t.Errorf("the section on %s lacks %s", name, want)
			}
		}
	}
	for name := range alerts {
		t.Errorf("docs/operate/troubleshoot.md has no section on %s", name)
	}
}

// Every query of the dashboard and every rule is one that Prometheus can answer from what the
// program shows.
func TestPrometheusScrapesAndEvaluates(t *testing.T) {
	overdue := startOverdue(t, "")
	dir := t.TempDir()
	rules, err := filepath.Abs("prometheus/overdue.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: overdue
    static_configs: [{targets: [%q]}]
`, rules, overdue.admin))
	addr := freeport.Address(t)
	start(t, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	query := func(expr string) (n int, err error) {
		var got struct {
			Status, Error string
			Data          struct{ Result []any }
		}
		err = getJSON("http://"+addr+"/api/v1/query?query="+url.QueryEscape(expr), &got)
		if err == nil && got.Status != "success" {
			err = fmt.Errorf("%s: %s", got.Status, got.Error)
		}
		return len(got.Data.Result), err
	}
	eventually(t, "the program is scraped", func() error {
		n, err := query("overdue_build_info")
		if err == nil && n != 1 {
			err = fmt.Errorf("%d series of overdue_build_info", n)
		}
		return err
	})
	text, err := os.ReadFile("grafana/overdue.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$instance", ".*", "$entity", ".*", "$__rate_interval", "1m")
	queries := 0
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries++
			if _, err := query(variables.Replace(target.Expr)); err != nil {
				t.Errorf("panel %q: %v", p.Title, err)
			}
		}
	}
	if queries == 0 {
		t.Error("the dashboard has no query")
	}
	eventually(t, "the rules are evaluated", func() error {
		var got struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		if err := getJSON("http://"+addr+"/api/v1/rules", &got); err != nil {
			return err
		}
		if len(got.Data.Groups) == 0 {
			return fmt.Errorf("no rules are loaded")
		}
		for _, r := range got.Data.Groups[0].Rules {
			if r.Health != "ok" {
				return fmt.Errorf("%s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
		return nil
	})
}

// A missed deadline fires in a real Alertmanager, once for its group, and ends.
func TestAlertmanagerGetsTheAlerts(t *testing.T) {
	addr := freeport.Address(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "alertmanager.yml"), "route: {receiver: none}\nreceivers: [{name: none}]\n")
	start(t, "prometheus-alertmanager", "--config.file="+filepath.Join(dir, "alertmanager.yml"), "--storage.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr, "--cluster.listen-address=")
	eventually(t, "Alertmanager is ready", func() error { return getJSON("http://"+addr+"/api/v2/status", new(any)) })
	overdue := startOverdue(t, fmt.Sprintf("alerts: [{alertmanager: {url: \"http://%s\"}, group: {interval: 1s, resolveAfter: 8s}}]\n", addr))
	for i := range 3 {
		overdue.send(t, fmt.Sprint("order-", i), time.Second)
	}
	type firing struct {
		Labels, Annotations map[string]string
		EndsAt              time.Time
	}
	alerts := func() (got []firing) {
		if err := getJSON("http://"+addr+"/api/v2/alerts?active=true", &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	eventually(t, "the alert fires", func() error {
		got := alerts()
		if len(got) != 1 {
			return fmt.Errorf("%d alerts, want 1", len(got))
		}
		if l := got[0].Labels; l["alertname"] != "OverdueDeadlineMissed" || l["entity"] != "orders" {
			return fmt.Errorf("labels %v", l)
		}
		if got[0].Annotations["summary"] == "" {
			return fmt.Errorf("annotations %v", got[0].Annotations)
		}
		return nil
	})
	eventually(t, "the alert ends", func() error {
		if got := alerts(); len(got) != 0 {
			return fmt.Errorf("%d alerts, want none: %v", len(got), got)
		}
		return nil
	})
}

// program is a running `overdue run`.
type program struct{ rest, admin string }

// startOverdue builds and starts the program with a queue orders, and more settings.
func startOverdue(t *testing.T, more string) program {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "overdue")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/overdue")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	p := program{rest: freeport.Address(t), admin: freeport.Address(t)}
	write(t, filepath.Join(dir, "overdue.yaml"), fmt.Sprintf(`
listen: {amqp: 127.0.0.1:0, http: %q, admin: %q}
broker: {listen: 127.0.0.1:0, queues: [{name: orders, deadLetteringOnMessageExpiration: true}]}
canary: {queue: canary, interval: 10s}
%s`, p.rest, p.admin, more))
	start(t, binary, "run", "--config", filepath.Join(dir, "overdue.yaml"))
	eventually(t, "the program is ready", func() error { return get("http://" + p.admin + "/readyz") })
	return p
}

func (p program) send(t *testing.T, id string, ttl time.Duration) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.rest+"/orders/messages", strings.NewReader("order"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId":%q,"TimeToLive":%g}`, id, ttl.Seconds()))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("send %s: %s", id, resp.Status)
	}
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
