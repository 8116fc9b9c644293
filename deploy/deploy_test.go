// SPDX-License-Identifier: Apache-2.0

// Package deploy tests what is shipped beside the program with the servers it is for: Debian's
// prometheus and prometheus-alertmanager, on free ports of this machine.
package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/testing/freeport"
)

// timeout bounds what a server may take for what it does at once.
const timeout = 2 * time.Minute

func TestRulesDoWhatTheySay(t *testing.T) {
	if testing.Short() {
		t.Skip("needs promtool; not with -short")
	}
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

// Critical alerts go to the pager, and everybody else's stay where they are.
func TestTheRouteOfAlertmanagerLeadsToTheReceivers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs amtool; not with -short")
	}
	amtool := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "amtool", args...)
		cmd.Dir = "prometheus"
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := amtool("check-config", "alertmanager.yml"); err != nil {
		t.Fatalf("amtool check-config: %v\n%s", err, out)
	}
	for labels, receiver := range map[string]string{
		"alertname=OverdueKeyRefused severity=critical":  "overdue-pager",
		"alertname=OverdueSinkFails severity=warning":    "overdue-tickets",
		"alertname=OverdueDeadlineMissed severity=info":  "overdue-owners",
		"alertname=OverdueBudgetBurns severity=warning":  "overdue-owners",
		"alertname=KubePodCrashLooping severity=warning": "others",
		// Those of the sink alertmanager.
		"alertname=OverdueDeadlineMissed severity=critical source=contoso": "overdue-owners",
		"alertname=OverdueDeadlineNear severity=warning source=contoso":    "overdue-owners",
	} {
		args := []string{"config", "routes", "test", "--config.file=alertmanager.yml", "--verify.receivers=" + receiver}
		if out, err := amtool(append(args, strings.Fields(labels)...)...); err != nil {
			t.Errorf("amtool, for %s: %v\n%s", labels, err, out)
		}
	}
}

// Every alert that the file names is one of the rules, or a rule of inhibition holds for nothing.
func TestInhibitionRulesNameAlerts(t *testing.T) {
	rules, err := os.ReadFile("prometheus/overdue.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("prometheus/alertmanager.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("inhibit_rules:"))
	named := regexp.MustCompile(`Overdue[A-Z]\w+`).FindAllString(string(text), -1)
	if len(named) < 20 {
		t.Errorf("the inhibition rules name %d alerts", len(named))
	}
	for _, name := range named {
		if !strings.Contains(string(rules), "- alert: "+name+"\n") {
			t.Errorf("alertmanager.yml names %s, which is no alert", name)
		}
	}
}

// Alertmanager holds back what follows from a cause, in the namespace of the cause alone.
func TestAlertmanagerHoldsBackWhatFollowsFromACause(t *testing.T) {
	addr := startAlertmanager(t, "prometheus/alertmanager.yml")
	type labels map[string]string
	fire := func(all ...labels) {
		t.Helper()
		var alerts []map[string]labels
		for _, l := range all {
			alerts = append(alerts, map[string]labels{"labels": l})
		}
		body, err := json.Marshal(alerts)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post("http://"+addr+"/api/v2/alerts", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("Alertmanager answers %s", resp.Status)
		}
	}
	of := func(name, namespace string, more ...string) labels {
		l := labels{"alertname": name, "servicebus_namespace": namespace}
		for i := 0; i+1 < len(more); i += 2 {
			l[more[i]] = more[i+1]
		}
		return l
	}
	fire(
		of("OverdueNamespaceDown", "contoso"), of("OverdueCanaryLost", "contoso"), of("OverdueStuck", "contoso", "entity", "orders"), of("OverdueMonitorQueueFull", "contoso"),
		of("OverdueCanaryLost", "fabrikam"), of("OverdueDeadlineMissed", "contoso", "entity", "orders"),
		of("OverdueNoMonitor", "tailspin"), of("OverdueProcessGone", "tailspin", "role", "monitor"), of("OverdueProcessGone", "tailspin", "role", "proxy"),
		of("OverdueCertificateExpired", "adatum", "use", "namespace"), of("OverdueNamespaceDown", "adatum"), of("OverdueNotReady", "adatum", "reason", "other"),
		of("OverdueBudgetBurns", "northwind", "entity", "orders"), of("OverdueDeadlinesTight", "northwind", "entity", "orders"), of("OverdueDeadlinesTight", "northwind", "entity", "bills"),
		of("OverdueWorkQueueMissing", "wingtip", "entity", "orders"), of("OverdueStuck", "wingtip", "entity", "orders"), of("OverdueStuck", "wingtip", "entity", "bills"),
		of("OverdueDeadlineMissed", "", "entity", "bills", "source", "contoso"), of("OverdueDeadlineMissed", "northwind", "entity", "bills"),
		of("OverdueProcessGone", "embedded", "role", "broker"),
	)
	want := []string{
		"OverdueBudgetBurns northwind", "OverdueCanaryLost fabrikam", "OverdueCertificateExpired adatum", "OverdueDeadlineMissed ", "OverdueDeadlineMissed contoso",
		"OverdueDeadlinesTight northwind bills", "OverdueNamespaceDown contoso",
		"OverdueNoMonitor tailspin", "OverdueProcessGone tailspin proxy", "OverdueStuck wingtip bills", "OverdueWorkQueueMissing wingtip",
	}
	eventually(t, "what follows is inhibited", func() error {
		var got []struct {
			Labels labels
			Status struct{ State string }
		}
		if err := getJSON("http://"+addr+"/api/v2/alerts?inhibited=false&unprocessed=false", &got); err != nil {
			return err
		}
		var active []string
		for _, a := range got {
			name := a.Labels["alertname"] + " " + a.Labels["servicebus_namespace"]
			switch a.Labels["alertname"] {
			case "OverdueProcessGone":
				name += " " + a.Labels["role"]
			case "OverdueStuck", "OverdueDeadlinesTight":
				name += " " + a.Labels["entity"]
			}
			active = append(active, name)
		}
		slices.Sort(active)
		if diff := cmp.Diff(want, active); diff != "" {
			return fmt.Errorf("alerts that are not held back (-want +got):\n%s", diff)
		}
		return nil
	})
}

// startAlertmanager starts a server with a configuration, and returns its address.
func startAlertmanager(t *testing.T, file string) (addr string) {
	t.Helper()
	addr = freeport.Address(t)
	start(t, "prometheus-alertmanager", "--config.file="+file, "--storage.path="+filepath.Join(t.TempDir(), "data"),
		"--web.listen-address="+addr, "--cluster.listen-address=")
	eventually(t, "Alertmanager is ready", func() error { return getJSON("http://"+addr+"/api/v2/status", new(any)) })
	return addr
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
	for _, file := range []string{"prometheus/overdue.rules.yml", "grafana/overdue.json", "grafana/overdue-entity.json", "keda/scaledobject.yaml", "../docs/operate/troubleshoot.md"} {
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
		for _, want := range []string{"**Means**", "**Check**", "**Fix"} {
			if !strings.Contains(text, want) {
				t.Errorf("the section on %s lacks %s", name, want)
			}
		}
	}
	for name := range alerts {
		t.Errorf("docs/operate/troubleshoot.md has no section on %s", name)
	}
}

// runbook_url of each rule leads to the section of its alert.
func TestEveryRunbookURLLeadsToItsSection(t *testing.T) {
	page, err := os.ReadFile("../docs/operate/troubleshoot.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("prometheus/overdue.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(rules), "      - alert: ")[1:]
	for _, block := range blocks {
		name, rest, _ := strings.Cut(block, "\n")
		if !strings.Contains(string(page), "\n### "+name+"\n") {
			t.Errorf("the page has no heading %s", name)
		}
		section := "docs/operate/troubleshoot.md#" + strings.ToLower(name)
		ofQueue := "'{{ with $labels.runbook }}{{ . }}{{ else }}" + section + "{{ end }}'"
		if !strings.Contains(rest, "runbook_url: "+section+"\n") && !strings.Contains(rest, "runbook_url: "+ofQueue+"\n") {
			t.Errorf("%s lacks a runbook_url with %s", name, section)
		}
	}
	if len(blocks) < 10 {
		t.Errorf("%d alerts were read", len(blocks))
	}
}

// Every query of the dashboard and every rule is one that Prometheus can answer from what the
// program shows.
func TestPrometheusScrapesAndEvaluates(t *testing.T) {
	dir := t.TempDir()
	overdue := startOverdue(t, fmt.Sprintf("onMonitorDown: pass\njournal: {directory: %q}\ncompanions: each\nalerts: [{webhook: {url: \"http://%s/\"}}]\n", dir, serveNothing(t)))
	addr := startPrometheus(t, dir, overdue.admin)
	query := func(expr string) ([]sample, error) { return ask(addr, expr) }
	eventually(t, "the program is scraped", func() error {
		got, err := query("overdue_build_info")
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("%d series of overdue_build_info", len(got))
		}
		return err
	})
	// An increase shows only in what was scraped at 0.
	eventually(t, "all queues and topics are scraped", func() error {
		got, err := query(`sum by (entity) (overdue_deadlines_total{entity=~"orders|events/.*",verdict="missed"}) == 0`)
		if err == nil && len(got) != 2 {
			err = fmt.Errorf("%v, want orders and the subscription of events", got)
		}
		return err
	})
	// A send that is refused behind its companion, one that calls itself a canary, and two of a
	// topic.
	overdue.refuse(t, "orders")
	if status := overdue.post(t, "orders", "refused", time.Second); status < 400 {
		t.Fatalf("a send that the queue refuses is answered %d", status)
	}
	overdue.send(t, "overdue-canary-of-an-app", time.Second)
	for _, id := range []string{"event-1", "event-2"} {
		if status := overdue.post(t, "events", id, time.Second); status != http.StatusCreated {
			t.Fatalf("send %s to a topic: %d", id, status)
		}
	}
	for expr, want := range map[string]float64{
		`overdue_deadlines_total{entity="orders",verdict="missed"}`:                           1, // whatever it calls itself
		`sum(overdue_deadlines_total{entity=~"events(/Subscriptions/.+)?",verdict="missed"})`: 2, // joined with the sends
		`sum(overdue_sends_total{entity=~"events(/Subscriptions/.+)?",result="monitored"})`:   2,
		`sum(overdue_deadlines_total{verdict="canary",entity!="canary"})  or vector(0)`:       0,
		`sum(overdue_deadlines_total{entity="canary",verdict!="canary"}) or vector(0)`:        0,
		`sum(overdue_sends_total{entity="canary"}) or vector(0)`:                              0,
		`round(sum(increase(overdue_deadlines_total{verdict="missed"}[1h])))`:                 3,
	} {
		eventually(t, expr, func() error {
			got, err := query(expr)
			if err == nil && (len(got) != 1 || got[0].value != want) {
				err = fmt.Errorf("%v, want %v", got, want)
			}
			return err
		})
	}
	// A sink that got nothing has taken nothing: otherwise canaries would hide one that is down.
	eventually(t, "a canary has come back", func() error {
		got, err := query(`overdue_canaries_total{result="noticed"} > 1`)
		if err == nil && len(got) == 0 {
			err = fmt.Errorf("not twice yet")
		}
		return err
	})
	taken, err := query(`overdue_alerts_total{sink="webhook",result="ok"}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(taken) != 1 || taken[0].value != 3 {
		t.Errorf("the sink has taken %v, want the 3 missed deadlines", taken)
	}
	// Its companion was due three seconds ago by now.
	got, err := query(`overdue_deadlines_total{entity="orders",verdict=~"met|unknown"}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got {
		if s.value != 0 {
			t.Errorf("a refused send is a deadline with a verdict: %v", s)
		}
	}
	// Panels that have data only after messages were settled, with Redis, or some minutes after the
	// start: those of the service level, whose rules have tests.
	empty := []string{
		"Time left when messages were settled", "Settled after", "Used share of the deadline", "Used share of the deadline, p99", "Redis",
		"Budget of the service level", "Deadlines met in 30 days",
	}
	variables := strings.NewReplacer("$instance", ".*", "$entity", "events", "$__rate_interval", "1m")
	for _, d := range dashboards {
		for _, p := range d.panels {
			for _, q := range p.queries {
				eventually(t, d.file+": "+p.title, func() error {
					got, err := query(variables.Replace(q.expr))
					if err == nil && len(got) == 0 && !slices.Contains(empty, p.title) {
						err = fmt.Errorf("nothing comes of %s", q.expr)
					}
					return err
				})
			}
		}
	}
	eventually(t, "the rules are evaluated", func() error {
		var got struct {
			Data struct {
				Groups []struct {
					Name  string
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
		for _, g := range got.Data.Groups {
			for _, r := range g.Rules {
				isLater := r.Health == "unknown" && g.Name == "overdue-service-level" // it has minutes between evaluations
				if r.Health != "ok" && !isLater {
					return fmt.Errorf("%s is %s: %s", r.Name, r.Health, r.LastError)
				}
			}
		}
		return nil
	})
}

// sample is one value that Prometheus answers.
type sample struct {
	labels map[string]string
	value  float64
}

// ask asks Prometheus.
func ask(addr, expr string) ([]sample, error) {
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := getJSON("http://"+addr+"/api/v1/query?query="+url.QueryEscape(expr), &answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	var all []sample
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, sample{r.Metric, v})
	}
	return all, nil
}

// A missed deadline fires in a real Alertmanager, once for its group, and ends.
func TestAlertmanagerGetsTheAlerts(t *testing.T) {
	addr := startAlertmanager(t, "prometheus/alertmanager.yml")
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
