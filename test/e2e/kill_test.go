// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"overdue/internal/testing/freeport"
	"overdue/internal/testing/hooktest"
	"overdue/internal/testing/program"
	"overdue/internal/testing/racetest"
	"overdue/internal/testing/testseed"
)

// The broker, the proxy and the monitor as processes of their own. The monitor is killed
// with SIGKILL again and again in mid-pass and started again. Everything that was acknowledged is
// dead-lettered, never early, and notified; live messages stay as they are.
//
// This is one of the few tests on the real clock: a process cannot be killed in fake time.
func TestMonitorIsKilledAndRestarted(t *testing.T) {
	racetest.Skip(t, "it runs programs that are built without the detector")
	t.Parallel() // it waits, mostly
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	h := &hooktest.Hook{}
	sink := httptest.NewServer(h)
	defer sink.Close()
	p := newProcesses(t, program.Build(t), sink.URL)
	p.start("broker")
	p.start("proxy")
	kill := p.start("monitor")

	const live, overdue, kills = 200, 400, 6
	for i := range live + overdue {
		if i%3 == 0 {
			p.send(fmt.Sprint("live-", i/3), time.Hour)
		} else {
			p.send(fmt.Sprint("overdue-", i), time.Duration(1000+rng.IntN(4000))*time.Millisecond)
		}
	}
	for range kills {
		time.Sleep(time.Duration(500+rng.IntN(600)) * time.Millisecond)
		kill()
		kill = p.start("monitor")
	}
	// Messages that a killed process held come back when their locks lapse, after five seconds on both
	// queues. They are the companions, and a message that its nudge received right before its
	// deadline.
	end := time.Now().Add(2 * time.Minute)
	for len(slices.Compact(h.Subjects())) < overdue && time.Now().Before(end) {
		time.Sleep(100 * time.Millisecond)
	}
	if notified := slices.Compact(h.Subjects()); len(notified) != overdue {
		t.Errorf("%d messages were notified, want %d", len(notified), overdue)
	}
	for _, e := range h.Events() {
		if e.Data.DeadLetteredTime.Before(e.Data.Deadline) {
			t.Errorf("%s was dead-lettered %v early", e.Subject, e.Data.Deadline.Sub(e.Data.DeadLetteredTime))
		}
	}
	dead := p.peekAll(azservicebus.SubQueueDeadLetter)
	if len(dead) != overdue {
		t.Errorf("%d dead letters, want %d", len(dead), overdue)
	}
	for _, m := range dead {
		if *m.DeadLetterReason != "TTLExpiredException" {
			t.Errorf("%s: dead-letter reason %q", m.MessageID, *m.DeadLetterReason)
		}
	}
	waiting := p.peekAll(0)
	if len(waiting) != live {
		t.Errorf("%d live messages wait, want %d", len(waiting), live)
	}
	for _, m := range waiting {
		if strings.HasPrefix(m.MessageID, "overdue") {
			t.Errorf("%s waits on delivery %d, expires at %v", m.MessageID, m.DeliveryCount, m.ExpiresAt)
		}
	}
	touched := 0
	for i, m := range waiting {
		if want := fmt.Sprint("live-", i); m.MessageID != want || string(m.Body) != "body of "+want {
			t.Errorf("live message %d is %s %q, want %s as it was sent", i, m.MessageID, m.Body, want)
		}
		touched += int(m.DeliveryCount) - 1 // the SDK counts one more than the broker
	}
	// A monitor that dies in the very moment in which it has a live message under lock to give it
	// back costs that message one delivery.
	if touched > kills {
		t.Errorf("live messages were delivered %d times, want at most once for each of %d kills", touched, kills)
	}
}

// processes are roles of the built binary that share a configuration.
type processes struct {
	*testing.T
	binary, config, endpoint string
	broker, namespace        string
	client                   *azservicebus.Client
	settings                 []string // of the scene, as variables
}

func newProcesses(t *testing.T, binary, webhook string) *processes {
	p := &processes{
		T: t, binary: binary, config: filepath.Join(t.TempDir(), "overdue.yaml"), endpoint: freeport.Address(t), broker: freeport.Address(t),
	}
	config := fmt.Sprintf(`
listen: {amqp: "127.0.0.1:0", http: %q}
broker: {listen: %q}
alerts:
  - webhook: {url: %q}
`, p.endpoint, p.broker, webhook)
	if err := os.WriteFile(p.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.namespace = connectionString(p.broker)
	client, err := azservicebus.NewClientFromConnectionString(p.namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.client = client
	t.Cleanup(func() { _ = client.Close(context.Background()) }) // the broker may be gone
	return p
}

func connectionString(addr string) string {
	return "Endpoint=sb://" + addr + ";SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
}

// A running is one role in a process of its own.
type running struct {
	role, admin string
	cmd         *exec.Cmd
	ended       func() error // waits for its end
}

// start runs one role, with settings as variables, and waits until it is ready. kill ends it
// with SIGKILL; it is killed at the latest when the test ends.
func (p *processes) start(role string, settings ...string) (kill func()) {
	p.Helper()
	r := p.begin(role, settings...)
	p.ready(r)
	return func() { p.end(r, syscall.SIGKILL) }
}

// begin runs one role, with settings as variables. It is killed at the latest when the test ends.
func (p *processes) begin(role string, settings ...string) *running {
	p.Helper()
	r := &running{role: role, admin: freeport.Address(p.T), cmd: exec.Command(p.binary, role, "--config", p.config)}
	r.cmd.Env = append(os.Environ(), "OVERDUE_LISTEN_ADMIN="+r.admin, "OVERDUE_LOG_LEVEL=error")
	if role == "broker" {
		r.cmd.Env = append(r.cmd.Env, "OVERDUE_BROKER_QUEUES=[{name: orders, deadLetteringOnMessageExpiration: true, lockDuration: 5s}, {name: companions, lockDuration: 5s, maxDeliveryCount: 2000}]")
	} else {
		// Not the monitor queue that the broker makes by itself: its locks last a minute.
		r.cmd.Env = append(r.cmd.Env, "OVERDUE_NAMESPACE="+p.namespace, "OVERDUE_MONITOR_QUEUE=companions")
	}
	r.cmd.Env = append(r.cmd.Env, settings...)
	var output bytes.Buffer
	r.cmd.Stdout, r.cmd.Stderr = &output, &output
	if err := r.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	r.ended = sync.OnceValue(func() error {
		err := r.cmd.Wait()
		if p.Failed() {
			p.Logf("%s:\n%s", role, output.String())
		}
		return err
	})
	p.Cleanup(func() { p.end(r, syscall.SIGKILL) })
	return r
}

// startTimeout is for a busy machine: a role takes a fraction of a second.
const startTimeout = 2 * time.Minute

// ready waits until r is.
func (p *processes) ready(r *running) {
	p.Helper()
	for end := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		if resp, err := http.Get("http://" + r.admin + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			p.Errorf("%s is not ready after %v", r.role, startTimeout)
			p.end(r, syscall.SIGKILL)
			p.FailNow()
		}
	}
}

// end sends a signal and waits for the end. One that is asked to stop does so cleanly.
func (p *processes) end(r *running, signal syscall.Signal) {
	p.Helper()
	_ = r.cmd.Process.Signal(signal) // it may have ended
	if err := r.ended(); err != nil && signal != syscall.SIGKILL {
		p.Errorf("%s stops with %v, want a clean stop", r.role, err)
	}
}

func (p *processes) send(id string, life time.Duration) {
	p.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+p.endpoint+"/orders/messages", bytes.NewReader([]byte("body of "+id)))
	if err != nil {
		p.Fatal(err)
	}
	req.Header.Set("BrokerProperties", fmt.Sprintf(`{"MessageId":%q,%s}`, id, ttl(life)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		p.Fatalf("send %s = %s", id, resp.Status)
	}
}

func (p *processes) peekAll(sub azservicebus.SubQueue) []*azservicebus.ReceivedMessage {
	p.Helper()
	return p.peek(workQueue, sub)
}

// peek shows all messages of a queue.
func (p *processes) peek(queue string, sub azservicebus.SubQueue) []*azservicebus.ReceivedMessage {
	p.Helper()
	r, err := p.client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{SubQueue: sub})
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = r.Close(p.Context()) }()
	var all []*azservicebus.ReceivedMessage
	for {
		page, err := r.PeekMessages(p.Context(), 250, nil)
		if err != nil {
			p.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}
