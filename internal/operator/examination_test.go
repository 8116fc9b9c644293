// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"overdue/internal/config"
	"overdue/internal/operator/doctor"
	"overdue/internal/testing/redistest"
)

// load reads a configuration file.
func load(t *testing.T, yaml string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "overdue.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, func(string) string { return "" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// problems returns "subject: check" of every finding that is worse than OK.
func problems(r *doctor.Report) []string {
	all := []string{}
	for _, f := range r.Findings {
		if f.Severity > doctor.OK {
			all = append(all, f.Subject+": "+f.Check)
		}
	}
	return all
}

func TestTheDoctorExaminesWhatIsConfigured(t *testing.T) {
	redis := redistest.InMemory(t)
	c := load(t, `
namespace: `+namespaceAt(serve(t))+`
redis: redis://`+redis.Addr()+`
monitor:
  entities:
    - {queue: orders, deadline: 10s, requiresSession: true, forwardMissedTo: missed, labels: {team: payments}}
    - {topic: events, subscriptions: [{name: audit}]}
canary: {queue: canaries}
alerts:
  - {serviceBus: {entity: notified}, labels: team=payments}
  - {webhook: {url: "http://127.0.0.1:1/"}, events: incomplete}
`)
	client, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(t.Context()) })
	down := func(context.Context) error { return errors.New("connection refused") }
	cfg := client.Examination(ExaminationOptions{
		Role: "run", Others: append(doctor.SinkChecks("webhook", "alerts[1].webhook", down, nil), doctor.HeartbeatCheck(down)),
	})
	if diff := cmp.Diff([]string{"notified"}, cfg.Unmonitored); diff != "" || !cfg.OnlyEntities || !cfg.ListsAll {
		t.Errorf("only entities %v, lists all %v, unmonitored (-want +got):\n%s", cfg.OnlyEntities, cfg.ListsAll, diff)
	}
	want := []string{
		"queue orders: contradiction", "queue orders: dead-lettering", "queue orders: lock-duration",
		"topic events: subscriptions", "topic events: sinks", "queue canaries: exists", "target missed: exists", "target notified: exists",
		"side effects: prefetch", "sink webhook: reachable", "heartbeat: reachable",
	}
	got := problems(doctor.Examine(t.Context(), cfg))
	for _, problem := range want {
		if !slices.Contains(got, problem) {
			t.Errorf("the report lacks %q", problem)
		}
	}
	if slices.Contains(got, "queue orders: sinks") || slices.Contains(got, "queue canaries: sinks") {
		t.Error("a queue whose events a sink gets, or that of canaries, is reported as one without sinks")
	}
	if t.Failed() {
		t.Logf("it has %q", got)
	}

	named := client.Examination(ExaminationOptions{Role: "proxy", Names: []string{"orders"}})
	if len(named.Entities) != 1 || named.Entities[0].Setting != "monitor.entities[0]" || !named.Proxy || named.Monitor {
		t.Errorf("examination of orders for a proxy: %+v", named)
	}
	if monitor := client.Examination(ExaminationOptions{Role: "monitor"}); monitor.Proxy || !monitor.Monitor {
		t.Error("the examination for a monitor has the rights of a proxy")
	}
}

func TestTheDoctorExaminesRedisAsItIsConfigured(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "redis")
	if err := os.WriteFile(secret, []byte("rediss://app:secret@redis.test:6380"), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := Open(load(t, "namespace: "+namespaceAt("127.0.0.1:1")+"\nredisFile: "+secret+"\ncompanionStore: redis\n"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(t.Context()) })
	r := client.Examination(ExaminationOptions{Role: "run"}).Redis
	if r == nil || r.Setting != "redisFile" || !r.TLS || !r.Password || r.User != "app" || !r.Keeps || r.Open == nil {
		t.Errorf("Redis %+v", r)
	}
}

// The embedded broker of another process is not examined, but the rest of the configuration is.
func TestWithAnEmbeddedBrokerTheDoctorExaminesTheRest(t *testing.T) {
	c, err := config.Load("", func(string) string { return "" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := OpenAny(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(t.Context()) })
	sink := doctor.SinkChecks("pager", "alerts[0]", nil, func(context.Context) error { return nil })
	cfg := client.ExaminationOfOthers(ExaminationOptions{Others: sink})
	if cfg.Dial != nil || len(cfg.Entities) > 0 || cfg.Redis != nil || len(cfg.Others) != 2 {
		t.Errorf("examination %+v, want the sink, and whether something waits for a restart", cfg)
	}
}

func TestOurOwnPortIsReportedAsNoAdministrationAPI(t *testing.T) {
	c := open(t, map[string]string{"namespace": namespaceAt("127.0.0.1"), "listen.http": "127.0.0.1:5300"})
	if cfg := c.Examination(ExaminationOptions{Role: "run"}); cfg.Admin != nil || cfg.NoAdmin == "" {
		t.Errorf("administration API %v, reason %q; want none, and why", cfg.Admin, cfg.NoAdmin)
	}
}

// A host that accepts connections may refuse all alerts, which only the process knows that sends
// them.
func TestTheDoctorSaysWhichSinksRefuseTheirAlerts(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		if r.URL.Path == "/healthz/outbound" {
			asked.Add(1)
			_, _ = io.WriteString(w, "[+] namespace\n[-] sink pager2 (127.0.0.1:1): other trouble\n"+
				"[-] sink pager (127.0.0.1:1): it did not take the last alert, 3m ago: 503 Service Unavailable\nnot reachable\n")
		}
	}))
	defer server.Close()
	c := load(t, "listen: {admin: "+server.Listener.Addr().String()+"}\nalerts: [{name: pager, webhook: {url: 'http://127.0.0.1:1'}}, {name: mail, webhook: {url: 'http://127.0.0.1:1'}}]\n")
	client, err := OpenAny(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	got := doctor.ExamineOthers(t.Context(), client.ExaminationOfOthers(ExaminationOptions{})).Findings
	if len(got) != 1 || got[0].Subject != "sink pager" || got[0].Severity != doctor.Error ||
		!strings.HasSuffix(got[0].Summary, " it did not take the last alert, 3m ago: 503 Service Unavailable.") {
		t.Errorf("findings %v, want the sink that refuses", got)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the process was asked %d times for two sinks, want once: it asks every sink each time", n)
	}
}

// The person at the console need not know the metric.
func TestTheDoctorSaysWhatWaitsForARestart(t *testing.T) {
	answer := "[+] state\n[+] upstream\nready\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, answer) // the test fails without it
	}))
	defer server.Close()
	c := load(t, "listen: {admin: "+server.Listener.Addr().String()+"}\n")
	client, err := OpenAny(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	found := func() (all []doctor.Finding) {
		for _, f := range doctor.ExamineOthers(t.Context(), client.ExaminationOfOthers(ExaminationOptions{})).Findings {
			if f.Subject == "process" {
				all = append(all, f)
			}
		}
		return all
	}
	if got := found(); len(got) != 0 {
		t.Errorf("findings %v of a process whose settings are in force, want none", got)
	}
	answer = "[+] state\n[+] upstream\n[+] configuration: changed settings wait for a restart: namespace, redis\nready\n"
	got := found()
	if len(got) != 1 || got[0].Severity != doctor.Warning || got[0].Summary != "Changed settings wait for a restart: namespace, redis." {
		t.Errorf("findings %v, want the settings that wait", got)
	}
}
