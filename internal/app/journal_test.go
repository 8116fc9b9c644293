// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"overdue/internal/broker"
	"overdue/internal/config"
	"overdue/internal/testing/brokertest"
	"overdue/scheduler/journal"
)

// postDue sends a message with a deadline through the REST endpoint and returns the status.
func postDue(t *testing.T, p *Process, id string) int {
	t.Helper()
	return postWith(t, p, "hello", "BrokerProperties", fmt.Sprintf(`{"MessageId":%q,"TimeToLive":3600}`, id))
}

// postBatch sends many messages with deadlines.
func postBatch(t *testing.T, p *Process, id string) int {
	t.Helper()
	var messages []string
	for i := range 500 {
		messages = append(messages, fmt.Sprintf(`{"Body":"hello","BrokerProperties":{"MessageId":"%s-%d-%s","TimeToLive":%d}}`, id, i, strings.Repeat("x", 100), 3600+i))
	}
	return postWith(t, p, "["+strings.Join(messages, ",")+"]", "Content-Type", "application/vnd.microsoft.servicebus.json")
}

func postWith(t *testing.T, p *Process, body, header, value string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.RestAddr()+"/orders/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(header, value)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// While the monitor queue is down and sends go through, the process is ready, and says what is wrong where
// operators look.
func TestAProcessThatPassesIsReadyWithItsMonitorQueueDown(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "journal")
	p := startTest(t, "broker: {queues: [{name: orders}]}\nonMonitorDown: pass\njournal: {directory: "+directory+"}\n")
	eventually(t, "the process is ready", func() bool { status, _ := askAdmin(p.admin, "GET", "/readyz", ""); return status == http.StatusOK })
	space := p.broker.Default()
	heal := space.Inject(broker.Fault{Entity: p.cfg.MonitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
	for i := range 3 {
		if status := postDue(t, p, fmt.Sprint("m", i)); status != http.StatusCreated {
			t.Fatalf("send %d = %d with onMonitorDown: pass, want 201", i, status)
		}
	}
	for _, test := range []struct {
		target string
		status int
		say    string
	}{
		{"/readyz", http.StatusOK, "ready"},
		{"/readyz?verbose", http.StatusOK, "[+] journal: 3 companions wait for the monitor queue, which is down: The maximum entity size has been reached or exceeded (amqp:resource-limit-exceeded)"},
		{"/healthz/outbound", http.StatusServiceUnavailable, "[-] journal: 3 companions wait for the monitor queue, which is down: "},
		{"/metrics", http.StatusOK, "overdue_journal_companions 3\n"},
		{"/metrics", http.StatusOK, "overdue_companions_total{result=\"journaled\"} 3\n"},
	} {
		if status, body := askAdmin(p.admin, "GET", test.target, ""); status != test.status || !strings.Contains(body, test.say) {
			t.Errorf("GET %s = %d, want %d with %q in:\n%s", test.target, status, test.status, test.say, body)
		}
	}
	heal()
	eventually(t, "the journal is empty", func() bool {
		_, body := askAdmin(p.admin, "GET", "/readyz?verbose", "")
		return strings.Contains(body, "[+] journal\n")
	})
	if status, body := askAdmin(p.admin, "GET", "/healthz/outbound", ""); status != http.StatusOK {
		t.Errorf("/healthz/outbound = %d %s after the outage, want 200", status, body)
	}

	// A monitor queue that is gone ends no process that goes on without it.
	if err := space.DeleteQueue(p.cfg.MonitorQueue); err != nil {
		t.Fatal(err)
	}
	if status := postDue(t, p, "gone"); status != http.StatusCreated {
		t.Errorf("send with the monitor queue deleted = %d, want 201", status)
	}
	eventually(t, "the process has seen that the monitor queue is gone", func() bool {
		_, body := askAdmin(p.admin, "GET", "/readyz?verbose", "")
		return strings.Contains(body, "[+] upstream: ")
	})
	if status, body := askAdmin(p.admin, "GET", "/readyz", ""); status != http.StatusOK {
		t.Errorf("/readyz = %d %s with the monitor queue deleted, want 200", status, body)
	}
	if _, err := space.CreateQueue(broker.QueueConfig{Name: p.cfg.MonitorQueue}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the journal is empty again", func() bool {
		_, body := askAdmin(p.admin, "GET", "/readyz?verbose", "")
		return strings.Contains(body, "[+] journal\n")
	})
	select {
	case err := <-p.life.Failed:
		t.Errorf("the process failed: %v", err)
	default:
	}
}

// A balancer must not send where sends are refused. It sends nothing then, so the end of the
// refusal shows without a send.
func TestAProcessThatPassesIsNotReadyWhileSendsAreRefused(t *testing.T) {
	t.Parallel()
	p := startTest(t, "broker: {queues: [{name: orders}]}\ncompanions: each\nonMonitorDown: pass\njournal: {directory: "+filepath.Join(t.TempDir(), "journal")+", maxSize: 1MiB}\n")
	isReady := func() bool { status, _ := askAdmin(p.admin, "GET", "/readyz", ""); return status == http.StatusOK }
	eventually(t, "the process is ready", isReady)
	heal := p.broker.Default().Inject(broker.Fault{Entity: p.cfg.MonitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
	for i := 0; isReady() && i < 100; i++ {
		postBatch(t, p, fmt.Sprint("batch", i))
	}
	if status := postBatch(t, p, "refused"); status != http.StatusServiceUnavailable {
		t.Fatalf("send = %d with a full journal, want 503", status)
	}
	for path, check := range map[string]string{"/readyz": "[-] journal: ", "/healthz/outbound": "[-] journal: "} {
		status, body := askAdmin(p.admin, "GET", path, "")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, check) || !strings.Contains(body, "; sends are refused: ") {
			t.Errorf("GET %s = %d, want 503 with %q and that sends are refused, in:\n%s", path, status, check, body)
		}
	}
	heal()
	eventually(t, "the process is ready again", isReady)
	if status, body := askAdmin(p.admin, "GET", "/readyz?verbose", ""); strings.Contains(body, "refused") {
		t.Errorf("/readyz = %d after the outage, and still says that sends are refused:\n%s", status, body)
	}
}

func TestAJournalThatCannotBeOpenedKeepsTheProcessFromStarting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadText(t, "onMonitorDown: pass\njournal:\n  directory: "+file+"\n", map[string]string{
		"OVERDUE_LISTEN_AMQP": "127.0.0.1:0", "OVERDUE_LISTEN_HTTP": "127.0.0.1:0", "OVERDUE_LISTEN_ADMIN": "127.0.0.1:0", "OVERDUE_BROKER_LISTEN": "127.0.0.1:0",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), config.RoleRun, c, zap.NewNop(), zap.NewAtomicLevel())
	if err == nil || !strings.Contains(err.Error(), "overdue.yaml:3: journal.directory: ") {
		t.Errorf("start = %v, want an error that names the setting and its line", err)
	}
}

// With refuse a journal that an earlier run has left is emptied and takes nothing; where there is none, none is made.
func TestAProcessThatRefusesEmptiesTheJournalOfAnEarlierRun(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "journal")
	startTest(t, "broker: {queues: [{name: orders}]}\njournal: {directory: "+directory+"}\n")
	if _, err := os.Stat(directory); !os.IsNotExist(err) {
		t.Errorf("the journal's directory: %v, want none with onMonitorDown: refuse", err)
	}
	earlier := startTest(t, "broker: {queues: [{name: orders}]}\nonMonitorDown: pass\njournal: {directory: "+directory+"}\n")
	earlier.broker.Default().Inject(broker.Fault{Entity: earlier.cfg.MonitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
	if status := postDue(t, earlier, "m"); status != http.StatusCreated {
		t.Fatalf("send = %d, want 201", status)
	}
	if err := earlier.Stop(); err != nil {
		t.Fatal(err)
	}

	p := startTest(t, "broker: {queues: [{name: orders}]}\njournal: {directory: "+directory+"}\n")
	q, ok := p.broker.Queue(p.cfg.MonitorQueue)
	if !ok {
		t.Fatal("there is no monitor queue")
	}
	eventually(t, "the companion of the earlier run is on the monitor queue", func() bool { return len(brokertest.Seen(q.Peek(nil, 0, 10))) == 1 })
	p.broker.Default().Inject(broker.Fault{Entity: p.cfg.MonitorQueue, Operation: broker.OnSend, Error: broker.EntityFull()})
	if status := postDue(t, p, "refused"); status != http.StatusServiceUnavailable {
		t.Errorf("send with onMonitorDown: refuse = %d, want 503", status)
	}
}

func TestTheJournalIsLoggedByWhatHappens(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	log := journalLog(zap.New(core))
	log("it went wrong", os.ErrClosed, journal.Status{Companions: 3, Bytes: 700})
	log("it is well again", nil, journal.Status{})
	all := logs.All()
	if len(all) != 2 || all[0].Level != zap.WarnLevel || all[1].Level != zap.InfoLevel || all[0].ContextMap()["companions"] != int64(3) {
		t.Errorf("logged %v, want a warning with 3 companions and then good news", all)
	}
}
